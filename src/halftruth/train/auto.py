"""`method="auto"`: look at the labels, choose method and recipe, and say why in words.

docs/auto.md has the reasons and the measurements behind every number here.
"""

import dataclasses
import math
import time
from dataclasses import MISSING, dataclass, field
from typing import Any

import numpy as np

from halftruth.labels import ABSENT, PRESENT, UNKNOWN
from halftruth.train.checks import limits
from halftruth.train.config import OVER_FEATURES, Config, ConfigError

AUTO = "auto"
# Steps of an epoch on features: more of them cost time and change nothing.
STEPS = 300
# Where rows without any class teach something of their own.
MANY_EMPTY = 0.2
RIDGE = 2.0
HIDDEN = {"hidden": 128, "dropout": 0.5, "head_lr": 1e-3}
# Settings tried by default where rows have several positives.
USUAL_TRIALS = 6


@dataclass(frozen=True)
class Choice:
    """Settings, the reasons for them, and what else may be tried in their place."""

    settings: dict[str, Any]
    reasons: list[str] = field(default_factory=list)
    rivals: list[dict[str, Any]] = field(default_factory=list)
    trials: int = 0


def choose(labels: np.ndarray, dim: int, *, features: bool) -> Choice:
    """Method and recipe for the labels (N, K) of the training rows and D features.

    >>> choose(np.eye(4, dtype=np.int8), 100, features=True).settings["method"]
    'whisper'
    """
    there = (labels == PRESENT).sum(axis=1)
    unknown = float((labels == UNKNOWN).mean())
    if unknown == 0:
        method, reasons = _for_known(float((there == 0).mean()))
        rivals, trials = [], 0
    else:
        reasons = [
            f"{unknown:.1%} of the labels are unknown, with {there.mean():.2f} positives a row"
        ]
        if verified := int((labels == ABSENT).sum()):
            reasons.append(f"{verified:,} labels are verified as absent and count in full")
        if there.max(initial=0) <= 1:
            method, reason = _for_one(labels.shape[1], features)
            rivals, trials = [{"ridge": v} for v in (4.0, 1.0, 8.0, 0.5)], 0
        else:
            method, reason = _for_several(labels.shape[1])
            rivals, trials = _weights(labels.shape[1]), USUAL_TRIALS
        reasons.append(reason)
    if features:
        # Raw measurements often need a hidden layer, learnt features and word counts do not.
        rivals, trials = [dict(HIDDEN), *rivals], max(trials, 2) + (trials > 0)
    recipe, reason = _recipe(len(labels), dim, features)
    return Choice({**method, **recipe}, [*reasons, reason], rivals, trials)


def _for_known(empty: float) -> tuple[dict[str, Any], list[str]]:
    """Nothing is missing: cross-entropy, with the any-class term where many rows are empty."""
    if empty < MANY_EMPTY:
        reason = "all labels are known, so nothing has to be corrected for: cross-entropy"
        return {"method": "bce", "options": {}}, [reason]
    reason = (
        f"all labels are known and {empty:.0%} of the rows have no class at all: cross-entropy "
        "with the any-class term"
    )
    return {"method": "any-class", "options": {"base": "bce"}}, [reason]


def _for_one(classes: int, features: bool) -> tuple[dict[str, Any], str]:
    """One positive a row: most of what is there may be missing."""
    if features:
        return {"method": "whisper", "options": {}}, (
            "no row has more than one positive, so many are missing: whisper takes an unknown "
            f"label for a negative of weight {1 / math.sqrt(2 * classes):.2g} (1/√(2K), "
            f"K = {classes}), and a row's unknowns together never outvote its positive"
        )
    return {"method": "em", "options": {}}, (
        "no row has more than one positive, so many are missing: em keeps unknown labels "
        "undecided, which does best where the whole network is trained"
    )


def _for_several(classes: int) -> tuple[dict[str, Any], str]:
    """Several positives a row: how much is missing shows in rows held out."""
    weight = _two_digits(2 / math.sqrt(2 * classes))
    return {"method": "whisper", "options": {"weight": min(weight, 1.0)}}, (
        "rows have several positives, so some, or most, of what is there is labelled: whisper "
        "takes unknown labels for weak negatives; how weak is tried on held-out training rows"
    )


def _weights(classes: int) -> list[dict[str, Any]]:
    """From full weight to that for one positive a row, with more and less of the prior."""
    small = 1 / math.sqrt(2 * classes)
    weights = sorted({1.0, *(_two_digits(min(f * small, 1.0)) for f in (1, 2, 4))}, reverse=True)
    found = [
        {"options": {"weight": w}, "ridge": v} for v in (RIDGE, 8.0, 1.0, 0.5) for w in weights
    ]
    return found


def _recipe(rows: int, dim: int, features: bool) -> tuple[dict[str, Any], str]:
    """Rate, prior, steps: from the sizes alone."""
    rate = _two_digits(0.04 / math.sqrt(dim))
    recipe: dict[str, Any] = {"ridge": RIDGE, "head_lr": rate}
    reason = (
        f"on {dim} standardised features a head gets a ridge prior that fades with its {rows:,} "
        f"rows, and the rate {rate:g} (0.04/√D)"
    )
    if features:
        size = 2 ** round(math.log2(min(max(rows / STEPS, 32), 1024)))
        recipe |= {"batch_size": int(size), "ema": 0.99, "epochs": 20, "select": "last"}
        return recipe, f"{reason}; it does not overfit then, so the last epoch is taken"
    recipe |= {"head_epochs": 20, "epochs": 6}
    return recipe, (
        f"{reason}; then everything is trained gently, with crops, batch-norm statistics kept and "
        "weights averaged"
    )


def settled(
    config: Config, labels: np.ndarray, dim: int, defaults: dict[str, Any] | None = None
) -> tuple[Config, Choice]:
    """The configuration with "auto" replaced by what it means for these labels, and the choice.

    What differs from the `defaults` (of `Config` unless given) is the user's wish and stays.
    """
    features = bool(config.features)
    choice = choose(labels, dim, features=features)
    plain = {f.name: f.default for f in dataclasses.fields(Config) if f.default is not MISSING}
    usual = plain | (OVER_FEATURES if features else {}) | (defaults or {})
    if config.patience is not None:
        # Who stops early wants an epoch to be chosen.
        choice.settings.pop("select", None)
    kept = {
        name: value
        for name, value in choice.settings.items()
        if name in ("method", "options") or getattr(config, name) == usual[name]
    }
    own = {
        name
        for name, value in usual.items()
        if getattr(config, name, value) not in (value, plain.get(name, value))
    }
    rivals = [rival for rival in choice.rivals if not rival.keys() & own]
    reasons = choice.reasons
    if stays := sorted(set(choice.settings) - set(kept)):
        reasons = [*reasons, f"as you set it: {', '.join(stays)}"]
    choice = dataclasses.replace(choice, reasons=reasons, rivals=rivals)
    return dataclasses.replace(config, **kept), choice


class Budget:
    """How many settings may be tried: "12", "12 trials", or as many as "10 minutes" allow.

    >>> Budget("3 trials", usual=6).allows(3)
    False
    """

    def __init__(self, text: str | int | None, usual: int) -> None:
        self.trials, self.seconds = float(usual), math.inf
        self.started = time.monotonic()
        if text is None:
            return
        if (found := limits(text)) is None:
            raise ConfigError([f"budget: expected trials or a time (12, 10 minutes), got {text!r}"])
        self.trials, self.seconds = found

    def allows(self, done: int) -> bool:
        """Whether another trial may begin after so many."""
        return done < self.trials and time.monotonic() - self.started < self.seconds


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")
