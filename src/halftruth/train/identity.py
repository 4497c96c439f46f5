"""What a checkpoint belongs to, and whether it may be taken up here."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from halftruth.train.checkpoint import CheckpointError
from halftruth.train.config import FIXED, FREE, SETTINGS, Config
from halftruth.train.task import Task

_WORDS = {
    "classes": "class list",
    "inputs": "number of features",
    "labels": "label file (its rows, labels or split)",
}


def identify(config: Config, task: Task) -> dict[str, Any]:
    """What a run is: its classes, its data and the settings that decide what is learnt."""
    settings = {k: v for k, v in config.to_dict().items() if SETTINGS[k].on_resume != FREE}
    return {
        "classes": list(task.classes),
        "inputs": None if task.features is None else task.features.shape[1],
        "labels": fingerprint(task),
        "settings": settings,
    }


def fingerprint(task: Task) -> str:
    """A digest of the rows: their names, labels and parts."""
    digest = hashlib.sha256(np.ascontiguousarray(task.labels.values).tobytes())
    if task.labels.items is not None:
        digest.update("\0".join(map(str, task.labels.items)).encode())
    for part in (task.splits.train, task.splits.val, task.splits.test):
        digest.update(np.asarray(part, dtype=np.int64).tobytes() + b"|")
    return digest.hexdigest()[:16]


def check_same(saved: dict[str, Any], here: dict[str, Any], path: Path) -> list[str]:
    """Refuse a checkpoint of something else; notes about settings that have changed since."""
    wrong = [
        f"its {words} is {_short(saved.get(name))}, here it is {_short(here[name])}"
        for name, words in _WORDS.items()
        if saved.get(name) != here[name]
    ]
    before, now = saved.get("settings", {}), here["settings"]
    notes: list[str] = []
    for name in sorted(now):
        old, new = before.get(name), now[name]
        if old != new:
            fixed = SETTINGS[name].on_resume == FIXED or (name == "ema" and 0 in (old, new))
            (wrong if fixed else notes).append(
                f"{name} was {_short(old)}, here it is {_short(new)}"
            )
    if wrong:
        lines = [f"{path} belongs to another run:", *(f"  - {text}" for text in wrong)]
        lines.append("Resume with the settings of that run, or choose another folder (--out)")
        raise CheckpointError("\n".join(lines))
    return notes


def _short(value: Any) -> str:
    text = repr(value)
    if len(text) <= 100:
        return text
    return (
        f"{text[:80]}... ({len(value)} entries)" if isinstance(value, (list, dict)) else text[:100]
    )
