"""What more labels will bring: a learning curve per class, with an interval.

    1 − AP_k(n) = (1 − AP_k) (n / n_k)^−β

n_k is the number of labels that class k has, AP_k its estimated average precision, and β the rate
at which errors fall with more labels; the same curve with another β serves F1. β is measured: a
linear model is fitted by folds with 50, 70 and 100 % of the labels, and the scores of each are
estimated on all of them. Without features (images, scores of another model) β is that of other data
sets, and the interval is wide.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from halftruth.audit.audit_folder import AuditFolder, Rows
from halftruth.data.splits import fold_of_rows
from halftruth.labels import PRESENT, UNKNOWN
from halftruth.presence.decisions import decide
from halftruth.presence.estimate import Estimate
from halftruth.presence.estimated_scores import estimate_scores
from halftruth.presence.labelling_model import sigmoid
from halftruth.train.inputs import fit_standardization
from halftruth.train.members import fit_linear_path

METRICS = ("mAP", "OF1")
# Mean and standard deviation of β over data sets with complete labels (docs/audit.md), and the
# standard deviation of one measured β.
_RATES = {"mAP": (0.12, 0.10), "OF1": (0.12, 0.10)}
_MEASURED_SPREAD = 0.08
# Parts of the labels that the linear model is fitted to; the smallest twice, since it varies most.
_PARTS = (0.5, 0.5, 0.7, 1.0)
_FOLDS, _MOST_ROWS, _RIDGE = 3, 4000, 2.0
# Standard deviations of the outcome around the curve: relative to the gain, and in points.
_RELATIVE, _POINTS = 0.4, 0.5
_DRAWS, _Z90 = 400, 1.645


@dataclass(frozen=True)
class Gain:
    """An expected gain in points, with a 90 % interval.

    >>> print(Gain(1.25, -0.2, 2.7))
    +1.2 (-0.2 to +2.7)
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:+.1f} ({self.low:+.1f} to {self.high:+.1f})"


@dataclass(frozen=True)
class Rate:
    """β of one metric, and its standard deviation."""

    value: float
    spread: float


class Forecast:
    """Forecasts estimated mAP and OF1 after more labels.

    `present` (N, K) is P(present) of every label; `rates` come from `measure_rates`.
    """

    def __init__(
        self,
        labels: np.ndarray,
        scores: np.ndarray,
        present: np.ndarray,
        rates: dict[str, Rate] | None = None,
        *,
        seed: int = 0,
    ) -> None:
        self.shown = (labels == PRESENT).sum(axis=0)
        self.measured = rates is not None
        self._rates = rates or {name: Rate(*_RATES[name]) for name in METRICS}
        decided = decide(present, self.shown)(present)
        now = estimate_scores(scores, labels, decided, present, draws=20, seed=seed)
        expected = present.sum(axis=0)
        self._errors = {"mAP": 1 - now.ap[:, 0], "OF1": 1 - now.f1[:, 0]}
        # mAP counts classes, OF1 counts labels.
        self._weights = {"mAP": np.minimum(expected, 1.0), "OF1": expected}
        self.scores = {"mAP": now.mAP, "OF1": now.OF1}
        self._seed = seed

    def gain(self, metric: str, found: np.ndarray, count: Estimate) -> Gain:
        """The gain in points from `found` (K,) more present labels per class.

        `count` is the interval of their total.
        """
        rate, random = self._rates[metric], np.random.default_rng(self._seed)
        spread = np.log(max(count.high, 1e-9) / max(count.low, count.high / 20, 1e-9)) / 4
        factor = np.exp(spread * random.normal(size=_DRAWS))
        rates = np.maximum(rate.value + rate.spread * random.normal(size=_DRAWS), 0.0)
        value = self._gain(metric, found, max(rate.value, 0.0))
        draws = [
            self._gain(metric, found * one, beta) * (1 + _RELATIVE * random.normal())
            + _POINTS * min(1.0, found.sum() / max(self.shown.sum(), 1) * 10) * random.normal()
            for one, beta in zip(factor, rates, strict=True)
        ]
        low, high = np.quantile(draws, (0.05, 0.95))
        return Gain(value, float(min(low, value)), float(max(high, value)))

    def _gain(self, metric: str, found: np.ndarray, rate: float) -> float:
        better = 1 - (1 + found / (self.shown + 1.0)) ** -rate
        weight = self._weights[metric]
        return float(100 * (weight * self._errors[metric] * better).sum() / max(weight.sum(), 1e-9))


def measure_rates(features: np.ndarray, labels: np.ndarray, *, seed: int = 0) -> dict[str, Rate]:
    """Measure β of mAP and OF1: how the estimated errors fall with the number of labels."""
    random = np.random.default_rng(seed)
    if len(labels) > _MOST_ROWS:
        rows = np.sort(random.choice(len(labels), _MOST_ROWS, replace=False))
        features, labels = features[rows], labels[rows]
    steps = fit_standardization(features)
    x = steps(torch.as_tensor(np.asarray(features))).float()
    fold = fold_of_rows(len(labels), _FOLDS, seed)
    sizes: list[float] = []
    errors: dict[str, list[float]] = {name: [] for name in METRICS}
    for part in _PARTS:
        kept = np.where(random.random(labels.shape) < part, labels, UNKNOWN)
        logits = np.zeros(labels.shape)
        for one in range(_FOLDS):
            inside = torch.from_numpy(kept[fold != one].astype(np.int8))
            rows = x[torch.from_numpy(fold != one)]
            layer = fit_linear_path(rows, inside, (_RIDGE,))[_RIDGE]
            held = _apply(layer, x[torch.from_numpy(fold == one)])
            # The level of a fold's model depends on how many labels its rows happen to have.
            logits[fold == one] = (held - held.mean(axis=0)) / (held.std(axis=0) + 1e-6)
        shown = (labels == PRESENT).sum(axis=0)
        scores = sigmoid(logits + np.log((shown + 0.5) / (len(labels) - shown + 0.5)))
        found = estimate_scores(scores, labels, _best_decisions(scores, labels), draws=20)
        sizes.append(float(np.log((kept == PRESENT).sum() + 1)))
        for name in METRICS:
            errors[name].append(float(np.log(max(1 - getattr(found, name).value, 1e-3))))
    return {name: _combine(name, np.array(sizes), np.array(errors[name])) for name in METRICS}


def _best_decisions(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """As many predictions per class as it has labels, times a factor for those that are missing."""
    shown = (labels == PRESENT).sum(axis=0)
    rank = (-scores).argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
    return np.asarray(rank < 1.5 * shown)


def _apply(layer: nn.Module, x: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(layer(x).numpy(), dtype=np.float64)


def _combine(name: str, sizes: np.ndarray, errors: np.ndarray) -> Rate:
    """The slope of the errors, combined with the rates of other data sets."""
    centred = sizes - sizes.mean()
    slope = -float((centred * errors).sum() / max((centred**2).sum(), 1e-12))
    prior, prior_spread = _RATES[name]
    weight = prior_spread**2 / (prior_spread**2 + _MEASURED_SPREAD**2)
    value = weight * slope + (1 - weight) * prior
    return Rate(value, float(np.sqrt(weight) * _MEASURED_SPREAD))


def find_features(audit: AuditFolder) -> np.ndarray | None:
    """The features of the audited rows: of its folds, or of its feature file; None without any."""
    rows = audit.scored["rows"]
    saved = sorted(audit.path.glob("folds*/features.npy"), key=lambda path: path.stat().st_mtime)
    for path in reversed(saved):
        matrix = np.load(path)
        if len(matrix) == len(rows):
            return np.asarray(matrix)
    matrix = Rows(audit).feature_matrix
    if matrix is None or rows.max(initial=-1) >= len(matrix):
        return None
    return np.nan_to_num(np.asarray(matrix[rows], dtype=np.float32))
