"""Decisions of a review: an append-only log; a decision is on disk before it is confirmed.

Each line is an event: {"n": 7, "ids": [3, 5], "verdict": "accept", "tab": "x1", "who": "anna",
"time": ...}, or {"n": 8, "undo": 7, ...}. Per annotator, the last event of a candidate that was
not undone counts. The verdict on a candidate is that of the majority of its annotators; where
they are divided equally it is "conflict", which changes no label.
"""

from __future__ import annotations

import json
import os
import reprlib
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from halftruth.data.errors import DataError

VERDICTS = ("accept", "reject", "skip")
CONFLICT = "conflict"


def find_consensus(votes: Iterable[str]) -> str | None:
    """The verdict of the majority; a skip only counts where nobody decided.

    >>> [find_consensus(v) for v in (["accept", "skip"], ["accept", "reject"], ["skip"], [])]
    ['accept', 'conflict', 'skip', None]
    """
    count = Counter(votes)
    yes, no = count["accept"], count["reject"]
    if yes == no:
        return CONFLICT if yes else ("skip" if count["skip"] else None)
    return "accept" if yes > no else "reject"


class ReviewLog:
    """The log of an audit; safe to use from several threads of one process."""

    def __init__(self, path: str | Path, candidates: int, *, write: bool = True) -> None:
        self.path, self.candidates = Path(path), candidates
        self.events: list[dict[str, Any]] = []
        self.verdicts: dict[int, str] = {}
        self.votes: dict[int, dict[str, str]] = {}
        self._of_candidate: dict[int, dict[str, list[int]]] = {}
        self._undone: set[int] = set()
        self._lock = threading.RLock()
        self._file: int | None = None
        if write:
            self._open()
        try:
            whole = self._read()
        except DataError:
            self.close()
            raise
        if self._file is not None:
            os.ftruncate(self._file, whole)
        # Earlier events are from tabs that no longer exist.
        self._first = len(self.events)

    @property
    def version(self) -> int:
        """The number of events."""
        return len(self.events)

    def decide(
        self, ids: Sequence[int], verdict: str, tab: str = "", who: str = ""
    ) -> dict[str, Any]:
        """Write a verdict on some candidates; returns when it is on disk."""
        event = {"ids": list(ids), "verdict": verdict, "tab": tab, "who": who}
        # First, since only numbers can be compared.
        self._check(event)
        return self._append({**event, "ids": list(dict.fromkeys(ids))})

    def undo(self, tab: str = "", who: str = "") -> dict[str, Any] | None:
        """Undo the last decision of this browser tab, or of this annotator before a restart.

        Returns None if there is none.
        """
        with self._lock:
            for event in reversed(self.events):
                mine = event["tab"] == tab or event["n"] < self._first
                mine &= "ids" in event and event.get("who", "") == who
                if mine and event["n"] not in self._undone:
                    self._append({"undo": event["n"], "tab": tab, "who": who})
                    return event
        return None

    def annotators(self) -> list[str]:
        """The names of all annotators, in the order of their first decision."""
        return list(dict.fromkeys(event.get("who", "") for event in self.events))

    def close(self) -> None:
        with self._lock:
            file, self._file = self._file, None
            if file is not None:
                os.close(file)

    def _check(self, event: Mapping[str, object]) -> None:
        if "undo" in event:
            if event["undo"] not in range(len(self.events)) or event["undo"] in self._undone:
                raise DataError(f"there is no decision {event['undo']!r:.80} to undo")
            return
        ids, verdict = event["ids"], event["verdict"]
        if verdict not in VERDICTS:
            raise DataError(f"expected a verdict in {VERDICTS}, got {verdict!r:.80}")
        known = isinstance(ids, list) and all(
            type(i) is int and 0 <= i < self.candidates for i in ids
        )
        if not ids or not known:
            raise DataError(
                f"expected ids of candidates (whole numbers below {self.candidates:,}), "
                f"got {reprlib.repr(ids)}"
            )

    def _append(self, event: Mapping[str, object]) -> dict[str, object]:
        with self._lock:
            if self._file is None:
                raise DataError(f"{self.path}: is open for reading only")
            now = datetime.now(UTC).isoformat(timespec="seconds")
            event = {"n": len(self.events), **event, "time": now}
            line = (json.dumps(event) + "\n").encode()
            start = os.lseek(self._file, 0, os.SEEK_END)
            try:
                _write_all(self._file, line)
                os.fsync(self._file)
            except OSError:
                # An incomplete line would make the next one invalid.
                os.ftruncate(self._file, start)
                raise
            self._add(event)
            return event

    def _add(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        if "undo" in event:
            self._undone.add(event["undo"])
            undone = self.events[event["undo"]]
            touched, who = undone["ids"], undone.get("who", "")
        else:
            touched, who = event["ids"], event.get("who", "")
            for i in touched:
                self._of_candidate.setdefault(i, {}).setdefault(who, []).append(event["n"])
        for i in touched:
            held = [n for n in self._of_candidate[i][who] if n not in self._undone]
            votes = self.votes.setdefault(i, {})
            if held:
                votes[who] = self.events[held[-1]]["verdict"]
            else:
                votes.pop(who, None)
            verdict = find_consensus(votes.values())
            if verdict is None:
                self.verdicts.pop(i, None)
            else:
                self.verdicts[i] = verdict

    def _read(self) -> int:
        """Read the log; returns the length of its complete lines."""
        if not self.path.exists():
            return 0
        raw = self.path.read_bytes()
        # An incomplete last line is from a crash; that decision was not confirmed.
        whole = raw.rfind(b"\n") + 1
        for number, line in enumerate(raw[:whole].splitlines(), start=1):
            try:
                event = {"tab": "", **json.loads(line)}
                if event["n"] != len(self.events):
                    raise ValueError(f"expected event {len(self.events)}, got {event['n']}")
                self._check(event)
                _check_time(event)
                self._add(event)
            except (ValueError, KeyError, TypeError, IndexError, DataError) as error:
                raise DataError(
                    f"{self.path} line {number}: is not a decision of this review ({error}); "
                    "restore the file, or move it away to start again"
                ) from None
        return whole

    def _open(self) -> None:
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            import fcntl

            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # Windows has no such locks
            pass
        except OSError:
            self.close()
            raise DataError(
                f"{self.path}: another `halftruth review` is open on this audit; use its page (any "
                "number of tabs), or stop it first"
            ) from None


def _check_time(event: dict[str, Any]) -> None:
    """Refuse a time that cannot be compared with those of other decisions."""
    if "time" in event and datetime.fromisoformat(event["time"]).tzinfo is None:
        raise ValueError(f"expected a time with its time zone, got {event['time']!r:.80}")


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
