"""An audit after the decisions so far: probabilities, order, counts and expected precision.

The command line, the report, the review page, `repair` and the exports all use this module, so
that they show the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from halftruth.audit.audit_folder import DECISIONS, AuditFolder
from halftruth.audit.candidates import count_at_precision, precision_table
from halftruth.data.decisions import CONFLICT, Decisions
from halftruth.presence.estimate import Estimate
from halftruth.presence.remaining import (
    MISSING_SPREADS,
    WRONG_SPREADS,
    Remaining,
    Spreads,
    VerdictModel,
)

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
        self._models = (
            self._model(self.missing, audit.missing, audit.missing_total, MISSING_SPREADS),
            self._model(~self.missing, audit.wrong, audit.wrong_total, WRONG_SPREADS),
        )

    def _model(
        self, among: np.ndarray, before: list[Estimate], total: Estimate, spreads: Spreads
    ) -> VerdictModel:
        return VerdictModel(
            self.probability[among], self.column[among], before, total, spreads=spreads
        )

    def update(self, verdicts: Mapping[int, str]) -> Current:
        """Take account of all verdicts on candidates, by their ids."""
        codes = np.zeros(len(self.missing), dtype=np.int8)
        # A copy: another thread may be deciding.
        decided = dict(verdicts)
        codes[list(decided)] = [CODES[verdict] for verdict in decided.values()]
        judged = np.where(np.abs(codes) == 1, codes, 0)
        probability = np.empty(len(codes))
        left = []
        for among, model in zip((self.missing, ~self.missing), self._models, strict=True):
            found = model.update(judged[among])
            probability[among] = found.probability
            left.append(found)
        return Current(self, codes, probability, *left)


@dataclass(frozen=True)
class Current:
    """Verdict codes (0 undecided) and probabilities per candidate, and what is left to find."""

    candidates: Candidates
    codes: np.ndarray
    probability: np.ndarray
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

    def take(self, precision: float) -> np.ndarray:
        """The ids of the longest list of undecided missing labels with this expected precision."""
        return self.undecided()[: count_at_precision(self.expected_precision(), precision)]

    def expect_next(self, count: int, *, missing: bool = True) -> tuple[int, float]:
        """How many of the next `count` candidates there are, and how many are expected right."""
        p = self.probability[self.undecided(missing=missing)[:count]]
        return len(p), float(p.sum())


def read_current(audit: AuditFolder) -> Current:
    """The audit after the decisions on disk."""
    log = Decisions(audit.path / DECISIONS, len(audit.candidates), write=False)
    return Candidates(audit).update(log.verdicts)
