"""An audit after the decisions so far: probabilities, order, counts and expected precision.

The command line, the report, the review page, `repair` and the exports all use this module, so
that they show the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from halftruth.audit.audit_folder import DECISIONS, AuditFolder
from halftruth.audit.candidates import count_at_precision, precision_table
from halftruth.data.review_log import CONFLICT, ReviewLog
from halftruth.presence.review_update import Remaining, ReviewPosterior
from halftruth.presence.solvers import find_shift, logit, sigmoid
from halftruth.presence.uncertainty import MISSING_SPREADS, WRONG_SPREADS, Z90, Estimate

# So many decisions on labels that may be wrong tell how many of the others are.
ENOUGH_WRONG = 20
# Advice is about so many candidates.
AHEAD = 100
# No fewer labels are taken to be missing than this share of the expected number.
_FEWEST = 0.1
CODES = {"accept": 1, "reject": -1, "skip": 2, CONFLICT: 3}


class Candidates:
    """The candidates of an audit as arrays, and the models that decisions update."""

    def __init__(self, audit: AuditFolder) -> None:
        table = audit.candidates
        self.audit = audit
        self.missing = (table["kind"] == "missing").to_numpy()
        place = {name: k for k, name in enumerate(audit.classes)}
        self.column = table["class"].map(place).to_numpy(dtype=np.intp)
        self.row = table["row"].to_numpy()
        self.item = table["item"].to_numpy(dtype=object)
        self.score = table["score"].to_numpy()
        self.probability = table["probability"].to_numpy()
        wrong = ~self.missing
        ends = table["at_least"].to_numpy()[wrong], table["at_most"].to_numpy()[wrong]
        p, column = self.probability, self.column
        self._models = (
            ReviewPosterior(
                p[self.missing], column[self.missing], audit.missing, audit.missing_total,
                spreads=MISSING_SPREADS,
            ),
            ReviewPosterior(
                p[wrong], column[wrong], audit.wrong, audit.wrong_total, ends=ends,
                spreads=WRONG_SPREADS,
            ),
        )  # fmt: skip

    def update(self, verdicts: Mapping[int, str]) -> AuditState:
        """Take account of all verdicts on candidates, by their ids."""
        codes = np.zeros(len(self.missing), dtype=np.int8)
        # A copy: another thread may be deciding.
        decided = dict(verdicts)
        codes[list(decided)] = [CODES[verdict] for verdict in decided.values()]
        judged = np.where(np.abs(codes) == 1, codes, 0)
        probability, least, most = np.empty((3, len(codes)))
        left = []
        for among, model in zip((self.missing, ~self.missing), self._models, strict=True):
            found = model.update(judged[among])
            probability[among] = found.probability
            least[among], most[among] = found.least, found.most
            left.append(found)
        return AuditState(self, codes, probability, least, most, *left)


@dataclass(frozen=True)
class AuditState:
    """Verdict codes (0 undecided) and probabilities per candidate, and what is left to find.

    `least` and `most` are the range of the probability that a label is wrong.
    """

    candidates: Candidates
    codes: np.ndarray
    probability: np.ndarray
    least: np.ndarray
    most: np.ndarray
    missing_left: Remaining
    wrong_left: Remaining

    @cached_property
    def shown(self) -> np.ndarray:
        """The probability to show: before its verdict for a decided candidate."""
        return np.where(np.abs(self.codes) == 1, self.candidates.probability, self.probability)

    @cached_property
    def rank(self) -> np.ndarray:
        """The place of every candidate; missing labels first, the most probable ones first."""
        missing = self.candidates.missing
        order = np.lexsort((np.arange(len(missing)), -self.shown, ~missing))
        rank = np.empty(len(order), dtype=np.intp)
        rank[order] = np.arange(len(order))
        return rank

    def undecided(self, *, missing: bool = True) -> np.ndarray:
        """The ids of undecided candidates of one kind, the most probable ones first."""
        ids = np.flatnonzero((self.candidates.missing == missing) & (self.codes == 0))
        return ids[np.argsort(self.rank[ids])]

    def expected_precision(self) -> np.ndarray:
        """The expected precision of the first 1, 2, ... undecided missing labels."""
        p = self.probability[self.undecided()]
        return np.cumsum(p) / np.arange(1, len(p) + 1)

    def precision_table(self) -> pd.DataFrame:
        """How many undecided candidates have which expected precision."""
        return precision_table(self.expected_precision())

    def safe_precision(self) -> np.ndarray:
        """The same with fewer missing labels, see `find_safe_precision`."""
        return find_safe_precision(self.probability[self.undecided()], self.missing_left.total)

    def take(self, precision: float) -> np.ndarray:
        """The ids of the longest list of undecided missing labels with this safe precision."""
        return self.undecided()[: count_at_precision(self.safe_precision(), precision)]

    def expect_next(self, count: int, *, missing: bool = True) -> tuple[int, Estimate]:
        """How many of the next `count` candidates there are, and how many are expected right.

        The interval is that of the range and of chance; for missing labels of chance alone.
        """
        ids = self.undecided(missing=missing)[:count]
        return len(ids), expect_right(self.probability[ids], self.least[ids], self.most[ids])

    def describe_wrong(self) -> str:
        """How many of the next labels that may be wrong are wrong; as a range before decisions."""
        wrong = ~self.candidates.missing
        decided = int((np.abs(self.codes[wrong]) == 1).sum())
        count, found = self.expect_next(AHEAD, missing=False)
        if not count:
            return ""
        ends = math.floor(found.low), math.ceil(found.high)
        share = " to ".join(f"{100 * end / count:.0f}" for end in ends)
        some = f"Of the {'next' if decided else 'first'} {count} labels that may be wrong,"
        if decided >= ENOUGH_WRONG:
            return f"{some} about {100 * found.value / count:.0f} % are ({share} %)."
        enough = min(ENOUGH_WRONG, int(wrong.sum()))
        return (
            f"{some} {share} % are: correct labels that the model does not recognise look the "
            f"same. {enough} decisions narrow this (so far: {decided})."
        )


def find_safe_precision(p: np.ndarray, total: Estimate) -> np.ndarray:
    """Return the expected precision of the first 1, 2, ... candidates with fewer missing labels.

    Halfway, in logits, to the low end of their number.

    With the low end itself hardly a label would be taken where the number is not known well;
    halfway was chosen on made-up audits (docs/explained/audit.md).
    """
    safe = p
    if len(p) and total.value > 0:
        part = max(total.low / total.value, _FEWEST)
        fewest = np.clip(part * p.sum(), 1e-9, 0.999 * len(p))
        z = logit(p)
        safe = sigmoid(z + find_shift(z[None], float(fewest)) / 2)
    return np.asarray(np.cumsum(safe) / np.arange(1, len(p) + 1))


def expect_right(p: np.ndarray, least: np.ndarray, most: np.ndarray) -> Estimate:
    """How many candidates are expected right; the interval is that of the range and of chance."""
    low = least.sum() - Z90 * np.sqrt((least * (1 - least)).sum())
    high = most.sum() + Z90 * np.sqrt((most * (1 - most)).sum())
    return Estimate(float(p.sum()), max(float(low), 0.0), min(float(high), len(p)))


def read_audit_state(audit: AuditFolder) -> AuditState:
    """The audit after the decisions on disk."""
    log = ReviewLog(audit.path / DECISIONS, len(audit.candidates), write=False)
    return Candidates(audit).update(log.verdicts)
