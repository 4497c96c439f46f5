"""What more labels will bring: a learning curve per class, with an interval.

    1 − AP_k(n) = (1 − AP_k) (n / n_k)^−β

n_k is the number of labels that class k has, AP_k its estimated average precision, and β the rate
at which errors fall with more labels. β is measured: a linear model is fitted by folds with 50, 70
and 100 % of the labels, and its mAP estimated each time. Without features (images, scores of
another model) β is that of other data sets, and the interval is wide. F1 follows the same curve,
faster: more labels also make the levels of the classes comparable.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from halftruth.data.splits import fold_of_rows
from halftruth.labels import PRESENT, UNKNOWN
from halftruth.metrics import roc_auc
from halftruth.presence.estimated_scores import estimate_scores
from halftruth.presence.ranking import NoRankingError
from halftruth.presence.solvers import sigmoid
from halftruth.presence.uncertainty import Z90, Estimate
from halftruth.train.ensemble.members import fit_linear_path
from halftruth.train.inputs.batches import fit_standardization

METRICS = ("mAP", "OF1")
# From data sets with complete labels (benchmarks/results/audit.md): mean and standard deviation of
# β, the standard deviation of a measured β, and β of OF1 relative to that of mAP.
_RATE, _RATE_SPREAD, _MEASURED_SPREAD = 0.12, 0.10, 0.08
_FASTER = {"mAP": 1.0, "OF1": 1.5}
# Parts of the labels that the linear model is fitted to; the smallest twice, since it varies most.
_PARTS = (0.5, 0.5, 0.7, 1.0)
_FOLDS, _MOST_ROWS, _RIDGE = 3, 4000, 2.0
# Below this mean AUC of shown labels the curve cannot be measured.
_TELLING = 0.6
# Standard deviations of the outcome around the curve: relative to the gain, and in points.
_RELATIVE, _POINTS = {"mAP": 0.4, "OF1": 0.5}, {"mAP": 0.6, "OF1": 1.0}
_DRAWS = 400


@dataclass(frozen=True)
class Rate:
    """β, and its standard deviation."""

    value: float = _RATE
    spread: float = _RATE_SPREAD


class Forecast:
    """Forecasts estimated mAP and OF1 after more labels.

    `present` (N, K) is P(present) of every label; `rate` comes from `measure_rate`.
    """

    def __init__(
        self,
        labels: np.ndarray,
        scores: np.ndarray,
        present: np.ndarray,
        rate: Rate | None = None,
        *,
        seed: int = 0,
    ) -> None:
        self.shown = (labels == PRESENT).sum(axis=0)
        self.measured = rate is not None
        self._rate, self._seed = rate or Rate(), seed
        expected = present.sum(axis=0)
        # As many predictions per class as it has present labels, by the scores: P(present) knows
        # the labels, which the model will not.
        rank = (-scores).argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
        now = estimate_scores(scores, labels, rank < expected, present, draws=20, seed=seed)
        self._errors = {"mAP": 1 - now.ap[:, 0], "OF1": 1 - now.f1[:, 0]}
        # mAP counts classes, OF1 counts labels.
        self._weights = {"mAP": np.minimum(expected, 1.0), "OF1": expected}
        self.scores = {"mAP": now.mAP, "OF1": now.OF1}

    def gain(self, metric: str, found: np.ndarray, count: Estimate) -> Estimate:
        """The gain in points, with a 90 % interval, from `found` (K,) more labels per class.

        `count` is their total with its interval.
        """
        random = np.random.default_rng(self._seed)
        # Both ends as factors of the value; a low end of 0 says that little is known.
        low, high = (max(end / max(count.value, 1e-9), 0.2) for end in (count.low, count.high))
        spread = np.log(high / low) / (2 * Z90)
        factor = np.sqrt(low * high) * np.exp(spread * random.normal(size=_DRAWS))
        rates = self._rate.value + self._rate.spread * random.normal(size=_DRAWS)
        # Chance moves the scores even where hardly anything is added, but not if nothing is.
        chance = _POINTS[metric] * min(1.0, 10 * found.sum() / max(self.shown.sum(), 1))
        draws = [
            self._gain(metric, found * one, beta) * (1 + _RELATIVE[metric] * random.normal())
            + chance * random.normal()
            for one, beta in zip(factor, np.maximum(rates, 0.0), strict=True)
        ]
        value = self._gain(metric, found, max(self._rate.value, 0.0))
        ends = np.quantile(draws, (0.05, 0.95))
        return Estimate(value, float(min(ends[0], value)), float(max(ends[1], value)))

    def _gain(self, metric: str, found: np.ndarray, rate: float) -> float:
        better = 1 - (1 + found / (self.shown + 1.0)) ** -(_FASTER[metric] * rate)
        weight = self._weights[metric]
        return float(100 * (weight * self._errors[metric] * better).sum() / max(weight.sum(), 1e-9))


def measure_rate(features: np.ndarray, labels: np.ndarray, *, seed: int = 0) -> Rate:
    """Measure β: how the estimated error 1 − mAP falls with the number of labels."""
    random = np.random.default_rng(seed)
    if len(labels) > _MOST_ROWS:
        rows = np.sort(random.choice(len(labels), _MOST_ROWS, replace=False))
        features, labels = features[rows], labels[rows]
    x = fit_standardization(features)(torch.as_tensor(np.asarray(features))).float()
    fold = fold_of_rows(len(labels), _FOLDS, seed)
    shown = (labels == PRESENT).sum(axis=0)
    level = np.log((shown + 0.5) / (len(labels) - shown + 0.5))
    sizes, errors = [], []
    for part in _PARTS:
        kept = np.where(random.random(labels.shape) < part, labels, UNKNOWN).astype(np.int8)
        logits = np.zeros(labels.shape)
        for one in range(_FOLDS):
            inside, out = torch.from_numpy(fold != one), fold == one
            layer = fit_linear_path(x[inside], torch.from_numpy(kept[~out]), (_RIDGE,))[_RIDGE]
            with torch.no_grad():
                held = layer(x[~inside]).double().numpy()
            # The level of a fold's model depends on how many labels its rows happen to have.
            logits[out] = (held - held.mean(axis=0)) / (held.std(axis=0) + 1e-6)
        try:
            found = estimate_scores(sigmoid(logits + level), labels, 0.5, draws=20)
        except NoRankingError:
            # Features that explain no label tell nothing of the curve.
            return Rate()
        sizes.append(np.log((kept == PRESENT).sum() + 1))
        errors.append(np.log(max(1 - found.mAP.value, 1e-3)))
    # Features that tell nothing of the labels tell nothing of the curve (the last fit has all).
    auc = roc_auc(logits, labels)
    if np.isnan(auc).all() or np.nanmean(auc) < _TELLING:
        return Rate()
    # The slope of the errors, combined with the rates of other data sets.
    centred = np.array(sizes) - np.mean(sizes)
    slope = -float((centred * errors).sum() / max((centred**2).sum(), 1e-12))
    weight = _RATE_SPREAD**2 / (_RATE_SPREAD**2 + _MEASURED_SPREAD**2)
    return Rate(weight * slope + (1 - weight) * _RATE, float(np.sqrt(weight) * _MEASURED_SPREAD))
