"""Combine the scores of a model with hints: scores of anything else, for some rows and classes.

How much a hint is worth is learnt per class from the shown labels alone, on rows that the model was
not fitted on. A hint that does not help, or whose scores are inverted, gets the weight 0.
"""

import dataclasses
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from halftruth.data import DataError
from halftruth.labels import PRESENT
from halftruth.metrics import mean_roc_auc
from halftruth.train.ensemble.member_weights import fit_curve

if TYPE_CHECKING:
    from halftruth.train.scored_rows import ScoredRows
    from halftruth.train.task import Task

# Scores between 0 and 1 are probabilities: their log-odds are used, within these bounds.
_LEAST = 1e-3
# Scores that tell their units.
_SEVERAL = 10
# The least AUC of a hint that ranks the labels.
_RANKS = 0.55
# Standard deviations before looking at the labels: offset and slope of the model's own scores (0
# and 1 where the hint tells nothing), and the weight of a hint.
_OFFSET, _SLOPE, _WEIGHT = 5.0, 1.0, 4.0
# Standard errors that are taken off the weights, so that chance alone gives none.
_CAUTION = 1.0
_NEWTON_STEPS = 12
# Labels that are fitted at once: bounds the memory.
_MOST_CELLS = 2_000_000


@dataclass(frozen=True)
class HintScale:
    """How the raw scores of one hint become comparable: log-odds or not, mean and deviation."""

    are_probabilities: bool
    mean: np.ndarray
    std: np.ndarray

    @classmethod
    def fit(cls, scores: np.ndarray) -> "HintScale":
        """Learn it from scores (N, K) with NaN where there is none."""
        known = scores[np.isfinite(scores)]
        are_probabilities = bool(known.size and known.min() >= 0 and known.max() <= 1)
        values = _transform(scores, are_probabilities)
        there = np.isfinite(values)
        count = np.maximum(there.sum(axis=0), 1)
        mean = np.where(there, values, 0).sum(axis=0) / count
        std = np.sqrt(np.where(there, (values - mean) ** 2, 0).sum(axis=0) / count)
        # A constant hint tells nothing; only rounding errors would be enlarged.
        std = np.where(std > 1e-6 * np.maximum(np.abs(mean), 1), std, np.inf)
        return cls(are_probabilities, mean, std)

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """Return standardised scores; 0 where there is none. Other units are refused."""
        known = scores[np.isfinite(scores)]
        low, high = (known.min(), known.max()) if known.size else (0, 1)
        lost = np.isfinite(self.std) & ~np.isfinite(scores).any(axis=0)
        if lost.any():
            warnings.warn(
                f"hints (--hints): no score at all for {lost.sum()} of {len(lost)} classes, for "
                "which training had some; there these are the predictions of the model alone",
                stacklevel=2,
            )
        if self.are_probabilities and (low < 0 or high > 1):
            raise DataError(
                "hints (--hints): expected scores between 0 and 1, as in training, got "
                f"{low:g} to {high:g}; give them in the same units"
            )
        if not self.are_probabilities and known.size >= _SEVERAL and low >= 0 and high <= 1:
            warnings.warn(
                f"hints (--hints): all {known.size:,} scores are between 0 and 1, those of "
                "training were not; are they in the same units?",
                stacklevel=2,
            )
        values = _transform(scores, self.are_probabilities)
        # As a training row would at most be, in case new rows are of another kind.
        standard = np.clip((values - self.mean) / self.std, -8, 8)
        return np.nan_to_num(standard, nan=0.0)


def _transform(scores: np.ndarray, are_probabilities: bool) -> np.ndarray:
    if not are_probabilities:
        return scores
    p = np.clip(scores, _LEAST, 1 - _LEAST)
    return np.log(p) - np.log1p(-p)


@dataclass(frozen=True)
class HintWeights:
    """The combination of a model's logits z with hints h, per class k.

        z'_k = offset_k + slope_k z_k + Σ_i weight_ik h_ik

    Where a row has no hint for a class, z'_k = z_k: both have the same scale.
    """

    scales: tuple[HintScale, ...]
    offset: np.ndarray
    slope: np.ndarray
    weight: np.ndarray

    def __call__(self, logits: np.ndarray, hints: Sequence[np.ndarray]) -> np.ndarray:
        """Return combined logits (N, K); `hints`: one array (N, K) per hint, NaN where missing."""
        standard = np.stack([s(h) for s, h in zip(self.scales, hints, strict=True)])
        there = np.isfinite(np.stack(list(hints))) & (self.weight > 0)[:, None]
        combined = self.offset + self.slope * logits
        combined = combined + (self.weight[:, None] * standard).sum(axis=0)
        return np.where(there.any(axis=0), combined, logits)

    def to_dict(self) -> dict[str, object]:
        """Return plain lists, for JSON."""
        scales = [
            {"are_probabilities": s.are_probabilities, "mean": s.mean.tolist(),
             "std": [float(v) if math.isfinite(v) else None for v in s.std]}
            for s in self.scales
        ]  # fmt: skip
        rest = {name: getattr(self, name).tolist() for name in ("offset", "slope", "weight")}
        return {"scales": scales, **rest}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "HintWeights":
        """Return the weights that `to_dict` described."""
        scales = tuple(
            HintScale(
                bool(one["are_probabilities"]),
                np.array(one["mean"], dtype=float),
                np.array([np.inf if v is None else v for v in one["std"]], dtype=float),
            )
            for one in values["scales"]
        )
        return cls(scales, *(np.array(values[n], float) for n in ("offset", "slope", "weight")))


def fit_hints(logits: np.ndarray, labels: np.ndarray, hints: Sequence[np.ndarray]) -> HintWeights:
    """Find how much each hint is worth per class, by labels (N, K) of out-of-sample rows.

        logit P(labelled) = a_k + s_k t_k + Σ_i w_ik h_ik       t: calibrated logits of the model

    A class with few labels says little about its own weight: weights are drawn towards the mean of
    all classes, by the spread between classes that is more than chance (random effects). A standard
    error is taken off, and negative weights are 0.
    """
    mean, std = logits.mean(axis=0), logits.std(axis=0)
    std = np.where(std > 1e-9, std, 1.0)
    z = (logits - mean) / std
    curve = fit_curve(torch.from_numpy(z).float(), torch.from_numpy(labels))
    slope, offset = (part.double().numpy() for part in curve)
    scales = tuple(HintScale.fit(one) for one in hints)
    standard = np.stack([scale(one) for scale, one in zip(scales, hints, strict=True)])
    there = np.isfinite(np.stack(list(hints))).any(axis=0)
    count, classes = len(hints), labels.shape[1]
    prior_mean = np.array([0.0, 1.0, *[0.0] * count])
    prior_std = np.array([_OFFSET, _SLOPE, *[_WEIGHT] * count])
    found, errors = np.zeros((classes, 2 + count)), np.full((classes, count), np.inf)
    present = (labels == PRESENT).astype(float)
    data = []
    for k in range(classes):
        rows = np.flatnonzero(there[:, k])
        if len(rows) > (most := max(_MOST_CELLS // classes, 500)):
            rows = np.random.default_rng(0).choice(rows, most, replace=False)
        t = offset[k] + slope[k] * z[rows, k]
        design = np.column_stack([np.ones(len(rows)), t, standard[:, rows, k].T])
        data.append((design, present[rows, k]))
        found[k], errors[k] = prior_mean, np.inf
        if present[rows, k].any():
            found[k], variance = _fit_class(*data[k], prior_mean, prior_std)
            useful = np.array([math.isfinite(scale.std[k]) for scale in scales])
            errors[k] = np.where(useful, np.sqrt(np.diag(variance)[2:]), np.inf)
    weight = np.stack([_shrink(found[:, 2 + i], errors[:, i]) for i in range(count)])
    a, s = np.zeros(classes), np.ones(classes)
    for k in range(classes):
        if weight[:, k].any():
            design, target = data[k]
            shift = design[:, 2:] @ weight[:, k]
            (a[k], s[k]), _ = _fit_class(
                design[:, :2], target, prior_mean[:2], prior_std[:2], shift
            )
    # From calibrated logits back to the scale of the model's.
    s = np.maximum(s, 0)
    return HintWeights(
        scales,
        mean + std * (a + s * offset - offset) / slope - s * mean,
        s,
        weight * std / slope,
    )


def _fit_class(
    x: np.ndarray, y: np.ndarray, mean: np.ndarray, std: np.ndarray, shift: object = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients of a logistic regression with a normal prior, and their covariance.

    `shift` is added to the logits.
    """
    beta, precision = mean.copy(), np.diag(1 / std**2)
    for _ in range(_NEWTON_STEPS):
        p = 1 / (1 + np.exp(-np.clip(x @ beta + shift, -30, 30)))
        hessian = (x * (p * (1 - p))[:, None]).T @ x + precision
        step = np.linalg.solve(hessian, x.T @ (y - p) - precision @ (beta - mean))
        # A full step may overshoot where the labels are separable.
        beta = beta + step * min(1, 2 / max(np.abs(step).max(), 1e-9))
        if np.abs(step).max() < 1e-6:
            break
    return beta, np.linalg.inv(hessian)


def _shrink(weight: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Return weights per class, drawn towards their mean, less a standard error, not negative."""
    known = np.isfinite(error)
    if not known.any():
        return np.zeros_like(weight)
    w, v = weight[known], error[known] ** 2
    centre = (w / v).sum() / (1 / v).sum()
    excess = ((w - centre) ** 2 / v).sum() - (len(w) - 1)
    scale = (1 / v).sum() - (1 / v**2).sum() / (1 / v).sum()
    between = max(excess / scale, 0.0) if scale > 0 else 0.0
    centre = (w / (v + between)).sum() / (1 / (v + between)).sum()
    centre_error = (1 / (v + between)).sum() ** -0.5
    out = np.zeros_like(weight)
    if between == 0:
        out[known] = centre - _CAUTION * centre_error
    else:
        own = 1 / (1 / v + 1 / between)
        out[known] = own * (w / v + centre / between)
        out[known] -= _CAUTION * np.sqrt(own + (own / between * centre_error) ** 2)
    return np.maximum(out, 0.0)


def describe_hints(
    weights: HintWeights, logits: np.ndarray, labels: np.ndarray, hints: Sequence[np.ndarray],
    names: Sequence[str],
) -> list[str]:  # fmt: skip
    """Return a table of the hints: rows and classes with scores, AUC on the labels, weight."""
    lines = [f"{'hint':<24}{'rows':>8}{'classes':>9}{'used':>6}{'AUC':>8}{'weight':>8}"]
    spread = logits.std(axis=0)
    for i, (name, hint) in enumerate(zip(names, hints, strict=True)):
        there = np.isfinite(hint)
        columns = np.flatnonzero(there.any(axis=0) & (labels == PRESENT).any(axis=0))
        auc = math.nan
        if len(columns):
            filled = np.where(there, hint, np.nan)[:, columns]
            filled = np.where(np.isnan(filled), np.nanmin(filled, axis=0), filled)
            auc = mean_roc_auc(filled, labels[:, columns])
        if len(columns) and auc < _RANKS:
            warnings.warn(
                f"hint {name}: its scores hardly rank the labels (AUC {100 * auc:.0f}, 50 is "
                "chance); check the order of its rows and columns, and whether they are inverted",
                stacklevel=3,
            )
        share = weights.weight[i] / np.maximum(
            weights.weight.sum(axis=0) + weights.slope * spread, 1e-9
        )
        used = int((weights.weight[i] > 0).sum())
        lines.append(
            f"{name[-23:]:<24}{there.any(axis=1).sum():8,}{there.any(axis=0).sum():9}{used:6}"
            f"{100 * auc:8.2f}{share.mean():8.0%}"
        )
    return lines


def combine_with_hints(
    task: "Task", given: "ScoredRows", logits: dict[str, np.ndarray]
) -> tuple["ScoredRows", dict[str, np.ndarray], dict[str, Any]]:
    """Return logits of out-of-sample rows and of the parts with the hints of a run, and a record.

    The record is what `TrainedRun` needs to do the same with new rows.
    """
    if not task.hints:
        return given, logits, {}
    scores = [hint.scores for hint in task.hints]
    own, labels = [one[given.rows] for one in scores], given.labels
    weights = fit_hints(given.logits, labels, own)
    places = [hint.place for hint in task.hints]
    record = {
        "files": places,
        "names": task.hint_names,
        "weights": weights.to_dict(),
        "table": describe_hints(weights, given.logits, labels, own, places),
    }
    rows = {"val": task.splits.val, "test": task.splits.test}
    combined = {
        part: weights(values, [one[rows[part]] for one in scores])
        for part, values in logits.items()
    }
    return dataclasses.replace(given, logits=weights(given.logits, own)), combined, record
