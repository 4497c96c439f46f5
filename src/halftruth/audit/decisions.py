"""Decisions of a review: an append-only log; a decision is on disk before it is confirmed.

Each line is an event: {"n": 7, "ids": [3, 5], "verdict": "accept", "tab": "x1", "time": ...}, or
{"n": 8, "undo": 7, ...}. The last event of a candidate that was not undone counts.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from halftruth.data import DataError

VERDICTS = ("accept", "reject", "skip")


class Decisions:
    """The log of an audit; safe to use from several threads of one process."""

    def __init__(self, path: str | Path, candidates: int, *, write: bool = True) -> None:
        self.path, self.candidates = Path(path), candidates
        self.events: list[dict[str, Any]] = []
        self.verdicts: dict[int, str] = {}
        self._of_candidate: dict[int, list[int]] = {}
        self._undone: set[int] = set()
        self._lock = threading.RLock()
        self._file: int | None = None
        if write:
            self._open()
        whole = self._read()
        if self._file is not None:
            os.ftruncate(self._file, whole)

    @property
    def version(self) -> int:
        """The number of events."""
        return len(self.events)

    def decide(self, ids: Sequence[int], verdict: str, tab: str = "") -> dict[str, Any]:
        """Write a verdict on some candidates; returns when it is on disk."""
        if verdict not in VERDICTS:
            raise DataError(f"expected a verdict in {VERDICTS}, got {verdict!r:.80}")
        if not ids or not all(type(i) is int and 0 <= i < self.candidates for i in ids):
            raise DataError(
                f"expected ids of candidates (whole numbers below {self.candidates:,}), "
                f"got {ids!r:.80}"
            )
        return self._append({"ids": list(dict.fromkeys(ids)), "verdict": verdict, "tab": tab})

    def undo(self, tab: str = "") -> dict[str, Any] | None:
        """Undo the last decision of this browser tab; returns None if it has made none."""
        with self._lock:
            for event in reversed(self.events):
                mine = "ids" in event and event["tab"] == tab
                if mine and event["n"] not in self._undone:
                    self._append({"undo": event["n"], "tab": tab})
                    return event
        return None

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _append(self, event: dict[str, Any]) -> dict[str, Any]:
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
            touched = self.events[event["undo"]]["ids"]
        else:
            touched = event["ids"]
            for i in touched:
                self._of_candidate.setdefault(i, []).append(event["n"])
        for i in touched:
            held = [n for n in self._of_candidate[i] if n not in self._undone]
            if held:
                self.verdicts[i] = self.events[held[-1]]["verdict"]
            else:
                self.verdicts.pop(i, None)

    def _read(self) -> int:
        """Read the log; returns the length of its complete lines."""
        if not self.path.exists():
            return 0
        raw = self.path.read_bytes()
        # An incomplete last line is from a crash; that decision was not confirmed.
        whole = raw.rfind(b"\n") + 1
        for number, line in enumerate(raw[:whole].splitlines(), start=1):
            try:
                event = json.loads(line)
                if event["n"] != len(self.events):
                    raise ValueError(f"expected event {len(self.events)}, got {event['n']}")
                self._add(event)
            except (ValueError, KeyError, TypeError, IndexError) as error:
                raise DataError(
                    f"{self.path} line {number}: is not a decision of a review ({error}); restore "
                    "the file, or move it away to start again"
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


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
