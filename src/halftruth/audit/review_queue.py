"""The candidates of a review: filtered by class, probability and state, one page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from halftruth.audit.audit_folder import DECISIONS, AuditFolder, Rows
from halftruth.audit.decisions import Decisions
from halftruth.data import DataError
from halftruth.presence.remaining import still_missing

STATES = ("open", "accept", "reject", "skip", "all")
_MOST_AT_ONCE = 200
_CODE = {"accept": 1, "reject": -1, "skip": 2}


class Queue:
    """The answers to the review page; each call is fast for 100,000 candidates."""

    def __init__(self, audit: AuditFolder, *, write: bool = True) -> None:
        table = audit.candidates
        self.audit, self.rows = audit, Rows(audit)
        self.decisions = Decisions(audit.path / DECISIONS, len(table), write=write)
        self.missing = (table["kind"] == "missing").to_numpy()
        place = {name: k for k, name in enumerate(audit.classes)}
        self.column = table["class"].map(place).to_numpy(dtype=np.intp)
        self.row = table["row"].to_numpy()
        self.item = table["item"].to_numpy(dtype=object)
        self.score = table["score"].to_numpy()
        self.probability = table["probability"].to_numpy()
        listed = np.bincount(
            self.column[self.missing], self.probability[self.missing], minlength=len(place)
        )
        self._unlisted = np.maximum(np.array(audit.info["missing_by_class"]) - listed, 0.0)
        self._place = {int(row): k for k, row in enumerate(audit.scored["rows"])}

    def page(
        self,
        *,
        kind: str = "missing",
        name: str = "",
        low: float = 0.0,
        high: float = 1.0,
        state: str = "open",
        after: int = -1,
        before: int | None = None,
        limit: int = 48,
    ) -> dict[str, Any]:
        """The matching candidates after the id `after` (or before `before`), and how many match."""
        if state not in STATES or kind not in ("missing", "wrong"):
            raise DataError(
                f"expected a state in {STATES} and the kind missing or wrong, got {state!r:.80}, "
                f"{kind!r:.80}"
            )
        fits = (self.missing == (kind == "missing")) & self._in_state(state)
        fits &= (self.probability >= low) & (self.probability <= high)
        if name:
            if name not in self.audit.classes:
                raise DataError(f"there is no class {name!r:.80}")
            fits &= self.column == self.audit.classes.index(name)
        ids = np.flatnonzero(fits)
        limit = max(1, min(limit, _MOST_AT_ONCE))
        if before is not None:
            chosen = ids[ids < before][-limit:]
        else:
            chosen = ids[ids > after][:limit]
        return {
            "total": len(ids),
            "before": int(np.count_nonzero(ids < chosen[0])) if len(chosen) else len(ids),
            "items": [self.entry(int(i)) for i in chosen],
            "version": self.decisions.version,
        }

    def entry(self, i: int) -> dict[str, Any]:
        """One candidate as the page shows it."""
        row = int(self.row[i])
        labels = self.audit.scored["labels"][self._place[row]]
        present = [self.audit.classes[k] for k in np.flatnonzero(labels > 0)]
        found: dict[str, Any] = {
            "id": i,
            "item": str(self.item[i]),
            "class": self.audit.classes[self.column[i]],
            "score": float(self.score[i]),
            "probability": float(self.probability[i]),
            "labels": present,
            "verdict": self.decisions.verdicts.get(i),
        }
        if self.rows.store is None:
            found["columns"] = self.rows.columns(row)
        return found

    def states(self, ids: Sequence[int]) -> dict[int, str | None]:
        """The current verdicts on some candidates."""
        return {i: self.decisions.verdicts.get(i) for i in ids}

    def progress(self) -> dict[str, Any]:
        """Counts of decisions, and the current estimate of labels that are still missing."""
        verdicts = self._verdicts()
        reviewed = verdicts[self.missing]
        left = still_missing(
            self.probability[self.missing],
            self.column[self.missing],
            np.where(np.abs(reviewed) == 1, reviewed, 0),
            self._unlisted,
        )
        return {
            "version": self.decisions.version,
            "candidates": len(verdicts),
            "accepted": int((verdicts == 1).sum()),
            "rejected": int((verdicts == -1).sum()),
            "skipped": int((verdicts == 2).sum()),
            "found": int((reviewed == 1).sum()),
            "left": {"estimate": left.estimate, "low": left.low, "high": left.high},
        }

    def counts(self) -> list[dict[str, Any]]:
        """The number of candidates per class, for the filter."""
        missing = np.bincount(self.column[self.missing], minlength=len(self.audit.classes))
        wrong = np.bincount(self.column[~self.missing], minlength=len(self.audit.classes))
        return [
            {"class": name, "missing": int(missing[k]), "wrong": int(wrong[k])}
            for k, name in enumerate(self.audit.classes)
        ]

    def _verdicts(self) -> np.ndarray:
        codes = np.zeros(len(self.missing), dtype=np.int8)
        # A copy: another thread may be deciding.
        for i, verdict in list(self.decisions.verdicts.items()):
            codes[i] = _CODE[verdict]
        return codes

    def _in_state(self, state: str) -> np.ndarray:
        if state == "all":
            return np.ones(len(self.missing), dtype=bool)
        return self._verdicts() == (0 if state == "open" else _CODE[state])
