"""The candidates of a review: found by class, score and state, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from halftruth.audit.decisions import Decisions
from halftruth.audit.folder import DECISIONS, AuditFolder
from halftruth.audit.remaining import still_missing
from halftruth.audit.row_views import Rows
from halftruth.data import DataError

STATES = ("open", "accept", "reject", "skip", "all")
_MOST_AT_ONCE = 200
_CODE = {"accept": 1, "reject": -1, "skip": 2}


class Queue:
    """Everything the page asks for; each call is quick for 100,000 candidates."""

    def __init__(self, audit: AuditFolder, *, write: bool = True) -> None:
        table = audit.candidates
        self.audit, self.rows = audit, Rows(audit)
        self.decisions = Decisions(audit.path / DECISIONS, len(table), write=write)
        self.kind = (table["kind"] == "missing").to_numpy()
        place = {name: k for k, name in enumerate(audit.classes)}
        self.column = table["class"].map(place).to_numpy(dtype=np.intp)
        self.row = table["row"].to_numpy()
        self.item = table["item"].to_numpy(dtype=object)
        self.score = table["score"].to_numpy()
        self.probability = table["probability"].to_numpy()
        listed = np.bincount(
            self.column[self.kind], self.probability[self.kind], minlength=len(place)
        )
        self._unlisted = np.maximum(np.array(audit.info["missing_by_class"]) - listed, 0.0)
        self._shown = {int(row): k for k, row in enumerate(audit.scored["rows"])}

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
        """Candidates in order, from behind the id `after` (or up to `before`), and how many fit."""
        if state not in STATES or kind not in ("missing", "wrong"):
            raise DataError(
                f"expected a state in {STATES} and missing or wrong, got {state}, {kind}"
            )
        fits = (self.kind == (kind == "missing")) & self._in_state(state)
        fits &= (self.probability >= low) & (self.probability <= high)
        if name:
            if name not in self.audit.classes:
                raise DataError(f"there is no class {name!r}")
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
        """One candidate, as the page shows it."""
        row = int(self.row[i])
        labels = self.audit.scored["labels"][self._shown[row]]
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
        """What holds for some candidates now."""
        return {i: self.decisions.verdicts.get(i) for i in ids}

    def progress(self) -> dict[str, Any]:
        """Counts of decisions, and the live estimate of what is still missing."""
        verdicts = self._verdicts()
        missing = verdicts[self.kind]
        left = still_missing(
            self.probability[self.kind],
            self.column[self.kind],
            np.where(np.abs(missing) == 1, missing, 0),
            self._unlisted,
        )
        found = int((missing == 1).sum())
        return {
            "version": self.decisions.version,
            "candidates": len(verdicts),
            "accepted": int((verdicts == 1).sum()),
            "rejected": int((verdicts == -1).sum()),
            "skipped": int((verdicts == 2).sum()),
            "found": found,
            "left": {"estimate": left.estimate, "low": left.low, "high": left.high},
        }

    def counts(self) -> list[dict[str, Any]]:
        """For the filter: every class with its candidates."""
        missing = np.bincount(self.column[self.kind], minlength=len(self.audit.classes))
        wrong = np.bincount(self.column[~self.kind], minlength=len(self.audit.classes))
        return [
            {"class": name, "missing": int(missing[k]), "wrong": int(wrong[k])}
            for k, name in enumerate(self.audit.classes)
        ]

    def _verdicts(self) -> np.ndarray:
        codes = np.zeros(len(self.kind), dtype=np.int8)
        # A copy: another thread may be deciding.
        for i, verdict in list(self.decisions.verdicts.items()):
            codes[i] = _CODE[verdict]
        return codes

    def _in_state(self, state: str) -> np.ndarray:
        if state == "all":
            return np.ones(len(self.kind), dtype=bool)
        return self._verdicts() == (0 if state == "open" else _CODE[state])
