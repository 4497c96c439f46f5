"""The candidates of a review: filtered, in the current order, one page at a time per annotator."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from halftruth.audit.audit_folder import DECISIONS, AuditFolder
from halftruth.audit.audit_state import AHEAD, CODES, AuditState, Candidates
from halftruth.audit.rows import ShownRows
from halftruth.data import DataError
from halftruth.data.review_log import CONFLICT, ReviewLog
from halftruth.labels import ABSENT, PRESENT
from halftruth.presence.labelling_model import logit

# "second" lists what others decided and this annotator did not.
STATES = ("open", "accept", "reject", "skip", CONFLICT, "second", "all")
KINDS = ("missing", "wrong")
_COUNTED = {"accepted": "accept", "rejected": "reject", "skipped": "skip", "conflicts": CONFLICT}
_MOST_AT_ONCE = 200
# Candidates on the page of an annotator are not shown to others, until it is silent for so long.
_HELD_SECONDS = 600.0
# The speed of an annotator is measured over the last minutes.
_SPEED_MINUTES = 10
# Wider features are projected to this many directions, which keeps the nearest rows near.
_DIMENSIONS = 64


class Queue:
    """The answers to the review page; each call is fast for 100,000 candidates."""

    # What the review is for: "audit" finds labels, "evaluate" measures (`verify.py`).
    purpose = "audit"

    def __init__(self, audit: AuditFolder, *, write: bool = True) -> None:
        self.audit, self.rows = audit, ShownRows(audit)
        self.known = Candidates(audit)
        self.decisions = ReviewLog(audit.path / DECISIONS, len(audit.candidates), write=write)
        self._place = {int(row): k for k, row in enumerate(audit.scored.rows)}
        self._neighbours: SimilarRows | None = None
        self._now: tuple[int, AuditState] | None = None
        self._held: dict[str, tuple[float, frozenset[int]]] = {}
        self._lock = threading.RLock()

    @property
    def now(self) -> AuditState:
        """The state after all decisions so far."""
        with self._lock:
            version = self.decisions.version
            if self._now is None or self._now[0] != version:
                self._now = version, self.known.update(self.decisions.verdicts)
            return self._now[1]

    def page(
        self,
        *,
        after: int = -1,
        before: int | None = None,
        limit: int = 48,
        who: str = "",
        **filters: Any,
    ) -> dict[str, object]:
        """The matching candidates after the id `after` (or before `before`), and how many match."""
        ids = self.matching(**filters, who=who)
        limit = max(1, min(limit, _MOST_AT_ONCE))
        rank = self._rank
        if before is not None:
            chosen = ids[rank[ids] < self._rank_of(before)][-limit:]
        else:
            chosen = ids[rank[ids] > self._rank_of(after)][:limit]
        if filters.get("state", "open") == "open" and who:
            with self._lock:
                self._held[who] = time.monotonic(), frozenset(chosen.tolist())
        return {
            "total": len(ids),
            "before": int(np.searchsorted(rank[ids], rank[chosen[0]])) if len(chosen) else len(ids),
            "items": [self.entry(int(i), who) for i in chosen],
            "version": self.decisions.version,
        }

    def matching(
        self,
        *,
        kind: str = "missing",
        name: str = "",
        low: float = 0.0,
        high: float = 1.0,
        state: str = "open",
        who: str = "",
    ) -> np.ndarray:
        """The ids of all candidates that match the filters, in their current order."""
        if state not in STATES or kind not in KINDS:
            raise DataError(
                f"expected a state in {STATES} and the kind missing or wrong, got {state!r:.80}, "
                f"{kind!r:.80}"
            )
        now = self.now
        fits = (self.known.missing == (kind == "missing")) & self._in_state(state, who)
        shown = now.shown
        fits &= (shown >= low) & (shown <= high)
        if name:
            if name not in self.audit.classes:
                raise DataError(f"there is no class {name!r:.80}")
            fits &= self.known.column == self.audit.classes.index(name)
        ids = np.flatnonzero(fits)
        return ids[np.argsort(self._rank[ids])]

    def entry(self, i: int, who: str = "") -> dict[str, object]:
        """One candidate as the page shows it."""
        row = int(self.known.row[i])
        votes = self.decisions.votes.get(i, {})
        found: dict[str, object] = {
            "id": i,
            "item": str(self.known.item[i]),
            "class": self.audit.classes[self.known.column[i]],
            "kind": "missing" if self.known.missing[i] else "wrong",
            "score": float(self.known.score[i]),
            "probability": float(self.now.shown[i]),
            "labels": self._names(row, PRESENT),
            "absent": self._names(row, ABSENT),
            "verdict": self.decisions.verdicts.get(i),
            "mine": votes.get(who),
            "votes": [[name, vote] for name, vote in votes.items() if name != who],
        }
        if not self.known.missing[i] and abs(self.now.codes[i]) != 1:
            found["range"] = [float(self.now.least[i]), float(self.now.most[i])]
        if self.rows.store is None:
            found["columns"] = self.rows.columns(row)
        return found

    def similar(self, i: int, count: int = 4) -> dict[str, object]:
        """The nearest rows that have the class of a candidate, and the nearest without it."""
        if not 0 <= i < len(self.known.row):
            raise DataError(f"there is no candidate {i}")
        if self._neighbours is None:
            self._neighbours = SimilarRows(self.audit, self.rows)
        place = self._place[int(self.known.row[i])]
        labels = self.audit.scored.labels
        with_class = labels[:, self.known.column[i]] == PRESENT
        return {
            "by": self._neighbours.by,
            **{
                key: [self._example(k) for k in self._neighbours.find(place, count, among)]
                for key, among in (("labelled", with_class), ("similar", ~with_class))
            },
        }

    def _example(self, place: int) -> dict[str, object]:
        row = int(self.audit.scored.rows[place])
        found: dict[str, Any] = {
            "place": place,
            "item": self.item_at(place),
            "labels": self._names(row, PRESENT),
        }
        if self.rows.store is None:
            found["columns"] = self.rows.columns(row)
        return found

    def item_at(self, place: int) -> str:
        """The name of an audited row."""
        if not 0 <= place < len(self.audit.scored.rows):
            raise DataError(f"there is no row {place}")
        return str(self.audit.scored.items[place])

    def _names(self, row: int, code: int) -> list[str]:
        labels = self.audit.scored.labels[self._place[row]]
        return [self.audit.classes[k] for k in np.flatnonzero(labels == code)]

    def states(self, ids: Sequence[int]) -> dict[int, str | None]:
        """The current verdicts on some candidates."""
        return {i: self.decisions.verdicts.get(i) for i in ids}

    def progress(self, who: str = "") -> dict[str, object]:
        """Counts of decisions, current estimates, and what the next candidates are worth."""
        now = self.now
        with self._lock:
            if who in self._held:
                self._held[who] = time.monotonic(), self._held[who][1]
        judged = [
            [vote for vote in votes.values() if vote != "skip"]
            for votes in list(self.decisions.votes.values())
        ]
        several = [votes for votes in judged if len(votes) > 1]
        ahead = {kind: now.expect_next(AHEAD, missing=kind == "missing") for kind in KINDS}
        left, wrong = now.missing_left.total, now.wrong_left.total
        return {
            "version": self.decisions.version,
            **_count_codes(now.codes),
            "lists": {
                kind: _count_codes(now.codes[self.known.missing == (kind == "missing")])
                for kind in KINDS
            },
            "left": {"estimate": left.value, "low": left.low, "high": left.high},
            "wrong_left": {"estimate": wrong.value, "low": wrong.low, "high": wrong.high},
            "ahead": {
                kind: {"count": count, "expected": one.value, "low": one.low, "high": one.high}
                for kind, (count, one) in ahead.items()
            },
            "wrong_words": now.describe_wrong(),
            "annotators": self.decisions.annotators(),
            "judged_twice": len(several),
            "agreed": sum(len({*votes}) == 1 for votes in several),
            "per_minute": self._speed(who),
        }

    def counts(self) -> list[dict[str, object]]:
        """The number of candidates per class, for the filter."""
        known, classes = self.known, self.audit.classes
        missing = np.bincount(known.column[known.missing], minlength=len(classes))
        wrong = np.bincount(known.column[~known.missing], minlength=len(classes))
        return [
            {"class": name, "missing": int(missing[k]), "wrong": int(wrong[k])}
            for k, name in enumerate(classes)
        ]

    @property
    def _rank(self) -> np.ndarray:
        """The place of every candidate in the order of the page."""
        return self.now.rank

    def _rank_of(self, i: int) -> int:
        rank = self._rank
        return int(rank[i]) if 0 <= i < len(rank) else i

    def _in_state(self, state: str, who: str) -> np.ndarray:
        codes = self.now.codes
        if state == "all":
            return np.ones(len(codes), dtype=bool)
        if state == "second":
            others = [
                i for i, votes in list(self.decisions.votes.items()) if votes and who not in votes
            ]
            return np.isin(np.arange(len(codes)), others)
        if state != "open":
            return codes == CODES[state]
        fits = codes == 0
        fits[self._held_by_others(who)] = False
        return fits

    def _held_by_others(self, who: str) -> list[int]:
        with self._lock:
            oldest = time.monotonic() - _HELD_SECONDS
            self._held = {name: one for name, one in self._held.items() if one[0] > oldest}
            return [i for name, (_, ids) in self._held.items() if name != who for i in ids]

    def _speed(self, who: str) -> float:
        """Decided candidates per minute of this annotator; 0 without two recent decisions."""
        since = datetime.now(UTC) - timedelta(minutes=_SPEED_MINUTES)
        times, decided = [], 0
        for event in reversed(self.decisions.events):
            at = datetime.fromisoformat(event["time"]) if "time" in event else since
            if at <= since:
                break
            if event.get("who", "") == who and "ids" in event:
                times.append(at)
                decided += len(event["ids"])
        if len(times) < 2:
            return 0.0
        return 60 * decided / max((times[0] - times[-1]).total_seconds(), 5.0)


def _count_codes(codes: np.ndarray) -> dict[str, int]:
    """How many candidates of a list have which verdict."""
    counts = {name: int((codes == CODES[verdict]).sum()) for name, verdict in _COUNTED.items()}
    return {"candidates": len(codes), **counts}


class SimilarRows:
    """Finds the nearest rows by cosine similarity of features, or of scores if there are none."""

    def __init__(self, audit: AuditFolder, rows: ShownRows) -> None:
        values, self.by = rows.feature_matrix, "features"
        if values is None:
            values, self.by = np.asarray(logit(audit.scored.scores), dtype=np.float32), "scores"
        values = (values - values.mean(axis=0)) / (values.std(axis=0) + 1e-6)
        if values.shape[1] > _DIMENSIONS:
            random = np.random.default_rng(0)
            values = values @ random.normal(size=(values.shape[1], _DIMENSIONS)).astype(np.float32)
        self.points = values / (np.linalg.norm(values, axis=1, keepdims=True) + 1e-12)

    def find(self, place: int, count: int, among: np.ndarray) -> list[int]:
        """The places of the nearest other rows `among` (N,) some, the nearest first."""
        likeness = self.points @ self.points[place]
        places = np.flatnonzero(among & (np.arange(len(among)) != place))
        return [int(k) for k in places[np.argsort(-likeness[places], kind="stable")[:count]]]
