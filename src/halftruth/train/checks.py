"""What each setting may hold."""

import difflib
import math
import re
import types
import typing
from typing import Any

CHOICES: dict[str, tuple[Any, ...]] = {
    "tune": ("all", "head", "head-first"),
    "optimizer": ("adam", "adamw", "sgd"),
    "schedule": ("one-cycle", "cosine", "constant"),
    "device": ("auto", "cpu", "cuda", "mps"),
    "precision": ("auto", "no", "fp16", "bf16"),
    "augment": ("none", "flip", "weak", "strong"),
    "cache": ("auto", "memory", "disk", "none"),
    "memory": ("auto", "device", "host"),
    "bad_images": ("fail", "skip"),
    "select": ("auto", "both", "auc", "observed", "truth", "last"),
}
AT_LEAST = {
    "epochs": 1, "head_epochs": 1, "batch_size": 1, "patience": 1, "image_size": 8,
    "seed": 0, "workers": 0, "checkpoint_every": 0, "hidden": 0,
    "weight_decay": 0, "l1": 0, "clip": 0,
}  # fmt: skip
MORE_THAN_0 = ("lr", "head_lr", "head_lr_mult")
BELOW_1 = ("ema", "dropout", "warmup")
_BUDGET = re.compile(
    r"\s*(?:(?P<trials>\d+)\s*(?:trials?)?"
    r"|(?P<time>\d+(?:\.\d+)?)\s*(?P<unit>s|m|h|sec|min|seconds?|minutes?|hours?))\s*"
)
_SECONDS = {"s": 1, "m": 60, "h": 3600}


def expected(name: str, kind: Any, value: Any) -> str | None:
    """What a setting should have been, or None where it is."""
    if not _fits(value, kind):
        return _words(kind)
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return "a finite number"
    if name in CHOICES and value not in CHOICES[name]:
        close = difflib.get_close_matches(value, CHOICES[name], n=1, cutoff=0.7)
        hint = f" (did you mean {close[0]}?)" if close else ""
        return "one of " + ", ".join(CHOICES[name]) + hint
    if name in AT_LEAST and value < AT_LEAST[name]:
        return f"at least {AT_LEAST[name]}"
    if name in MORE_THAN_0 and value <= 0:
        return "more than 0"
    if name in BELOW_1 and not 0 <= value < 1:
        return "a number in [0, 1)"
    if name == "val" and not 0 < value < 1:
        return "a share between 0 and 1"
    if name == "budget" and limits(value) is None:
        return "a number of trials or a time (12, 10 minutes)"
    return "less than 2^32" if name == "seed" and value >= 2**32 else None


def limits(budget: str | int) -> tuple[float, float] | None:
    """The most trials and seconds that a budget such as "12" or "10 minutes" allows.

    >>> limits("12 trials"), limits("1.5 h"), limits("soon")
    ((12.0, inf), (inf, 5400.0), None)
    """
    match = _BUDGET.fullmatch(str(budget))
    if match is None:
        return None
    if match["trials"]:
        return float(match["trials"]), math.inf
    return math.inf, float(match["time"]) * _SECONDS[match["unit"][0]]


def _fits(value: Any, kind: Any) -> bool:
    if isinstance(kind, types.UnionType):
        return any(_fits(value, one) for one in typing.get_args(kind))
    if typing.get_origin(kind) is list:
        return isinstance(value, list) and all(isinstance(entry, str) for entry in value)
    plain = typing.get_origin(kind) or kind
    if plain in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if plain is float else plain)


def _words(kind: Any) -> str:
    if isinstance(kind, types.UnionType):
        first, *_ = typing.get_args(kind)
        return f"{_words(first)} or nothing"
    plain = typing.get_origin(kind) or kind
    return {
        int: "a whole number", float: "a number", bool: "true or false", str: "text",
        list: "a list of paths", dict: "a mapping of names to values",
    }[plain]  # fmt: skip


def as_number(value: Any) -> Any:
    """YAML takes 1e-4, which lacks a point, for text."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value
