"""`method="auto"`: look at the labels, choose method and recipe, and say why in words."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from halftruth.labels import ABSENT, PRESENT, UNKNOWN
from halftruth.train.config import OVER_FEATURES, Config

AUTO = "auto"
# Steps of an epoch on features: more of them cost time and change nothing.
STEPS = 300
# Where rows without any class teach something of their own.
MANY_EMPTY = 0.2


@dataclass(frozen=True)
class Choice:
    """Settings, and the reasons for them."""

    settings: dict[str, Any]
    reasons: list[str] = field(default_factory=list)


def choose(labels: np.ndarray, dim: int, *, features: bool) -> Choice:
    """Method and recipe for the labels (N, K) of the training rows and D features.

    >>> one_each = np.eye(4, dtype=np.int8)
    >>> choose(one_each, 100, features=True).settings["method"]
    'whisper'
    """
    rows, classes = labels.shape
    there = (labels == PRESENT).sum(axis=1)
    unknown = float((labels == UNKNOWN).mean())
    empty = float((there == 0).mean())
    if unknown == 0:
        method, reasons = _for_known(empty)
    else:
        weight = 1 / math.sqrt(2 * classes)
        method = {"method": "whisper", "options": {}}
        reasons = [
            f"{unknown:.1%} of the labels are unknown, with {there.mean():.2f} positives a row: "
            f"whisper takes an unknown label for a negative of weight {weight:.2g} (1/√(2K), "
            f"K = {classes}), so that a row's unknowns together never outvote one positive",
        ]
        if verified := int((labels == ABSENT).sum()):
            reasons.append(f"{verified:,} labels are verified as absent and count in full")
    rate = _two_digits(0.04 / math.sqrt(dim))
    recipe: dict[str, Any] = {"ridge": 4.0, "head_lr": rate, "select": "last"}
    reasons.append(
        f"on {dim} standardised features a head gets a ridge prior (logits of standard deviation "
        f"2, {rows:,} rows) and the rate {rate:g} (0.04/√D); with both it does not overfit, so "
        "that no epoch has to be chosen"
    )
    if features:
        size = 2 ** round(math.log2(min(max(rows / STEPS, 32), 1024)))
        recipe |= {"batch_size": int(size), "ema": 0.99, "epochs": 20}
    else:
        recipe |= {"head_epochs": 20, "epochs": 6}
        reasons.append(
            "head first on frozen features, then everything gently with crops, batch-norm "
            "statistics kept, and averaged weights"
        )
        # Training everything can go wrong where training a head cannot: there an epoch is chosen.
        del recipe["select"]
        reasons[-2] = reasons[-2].replace(", so that no epoch has to be chosen", "")
    return Choice({**method, **recipe}, reasons)


def _for_known(empty: float) -> tuple[dict[str, Any], list[str]]:
    """Nothing is missing: cross-entropy, with the any-class term where many rows are empty."""
    if empty < MANY_EMPTY:
        return {"method": "bce", "options": {}}, [
            "all labels are known, so nothing has to be corrected for: cross-entropy"
        ]
    return {"method": "any-class", "options": {"base": "bce"}}, [
        f"all labels are known and {empty:.0%} of the rows have no class at all: cross-entropy "
        "with the any-class term"
    ]


def settled(
    config: Config, labels: np.ndarray, dim: int, defaults: dict[str, Any] | None = None
) -> tuple[Config, list[str]]:
    """The configuration with "auto" replaced by what it means for these labels, and the reasons.

    What differs from the `defaults` (of `Config` unless given) is the user's wish and stays.
    """
    if config.method != AUTO:
        return config, []
    features = bool(config.features)
    choice = choose(labels, dim, features=features)
    usual = {f.name: f.default for f in dataclasses.fields(Config)}
    usual |= (OVER_FEATURES if features else {}) | (defaults or {})
    kept = {
        name: value
        for name, value in choice.settings.items()
        if name in ("method", "options") or getattr(config, name) == usual[name]
    }
    own = sorted(set(choice.settings) - set(kept))
    reasons = [*choice.reasons, f"as you set it: {', '.join(own)}"] if own else choice.reasons
    return dataclasses.replace(config, **kept), reasons


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")
