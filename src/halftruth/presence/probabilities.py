"""Calibrated probabilities P(present | x) and prevalences, from incomplete labels.

The model of labelling (labelling_model.py) turns out-of-sample logits z into

    P(present | x) = σ(a_k + b_k z_k)

with a prevalence π_k and a probability c_k that a present label is shown, per class. What single
labels cannot tell is said by an interval:

- where rows show several labels or none, the probability c that a present label is shown is the
  same for all classes; the interval is over the values of c that fit the labels;
- where every row shows exactly one label, there are three fits: classes independent of each other,
  independent given that at least one is present, and one c for all classes. The estimate is their
  mean in logits, the interval covers all three;
- where some rows show nothing, one positive per row means that these rows have nothing: a person
  who gives one label to every row with a present class leaves only the empty rows blank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from halftruth.labels import ABSENT, PRESENT, UNKNOWN
from halftruth.presence.labelling_model import (
    Presence,
    choose_selection,
    fit_presence,
    logit,
    sigmoid,
)
from halftruth.presence.labelling_range import fit_shares

# The curves are fitted to at most this many labels.
_MOST_LABELS = 2_000_000
# From this share of rows without a label, blank rows settle the level (see above).
_SOME_BLANK = 0.02
# Standard deviation of the logarithm of a prevalence where the assumption on missing labels holds
# only roughly: shared by all classes, and per class; from data sets with complete labels.
_DOUBT, _CLASS_DOUBT = 0.15, 0.3
_NORMAL_90 = 1.645


@dataclass(frozen=True)
class Estimate:
    """An estimated number with a 90 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


@dataclass(frozen=True)
class Probabilities:
    """Curves from logits to P(present | x), prevalences and their intervals, one per class."""

    offset: np.ndarray
    slope: np.ndarray
    # (K, 3): estimate, low and high end of the 90 % interval.
    prevalence: np.ndarray
    # The number of PRESENT labels that the fit has seen.
    shown: np.ndarray
    rows: int
    selection: str
    labels_per_row: Estimate

    def __call__(self, logits: Any) -> np.ndarray:
        """Return P(present | x) of logits (N, K)."""
        return sigmoid(self.offset + self.slope * np.asarray(logits, dtype=np.float64))

    @property
    def shown_probability(self) -> np.ndarray:
        """(K, 3) the probability that a present label is shown: estimate, low, high."""
        present = np.maximum(self.prevalence[:, [0, 2, 1]] * self.rows, 1e-9)
        return np.clip(self.shown[:, None] / present, 0.0, 1.0)

    def to_dict(self) -> dict[str, Any]:
        """Return the curves and estimates as plain numbers and lists, for a file."""
        return {
            "offset": self.offset.tolist(),
            "slope": self.slope.tolist(),
            "prevalence": self.prevalence.tolist(),
            "shown": self.shown.tolist(),
            "rows": self.rows,
            "selection": self.selection,
            "labels_per_row": list(vars(self.labels_per_row).values()),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Probabilities:
        """Return the object of `to_dict`."""
        arrays = {k: np.asarray(values[k], float) for k in ("offset", "slope", "prevalence")}
        return cls(
            **arrays,
            shown=np.asarray(values["shown"], int),
            rows=int(values["rows"]),
            selection=str(values["selection"]),
            labels_per_row=Estimate(*values["labels_per_row"]),
        )


def fit_probabilities(
    labels: np.ndarray,
    logits: np.ndarray,
    *,
    selection: str = "auto",
    verified: np.ndarray | None = None,
    labels_per_row: float | None = None,
    prevalence: Mapping[int, float] | None = None,
    complete: np.ndarray | None = None,
    seed: int = 0,
) -> Probabilities:
    """Fit P(present | x) to out-of-sample logits (N, K) and incomplete labels (N, K).

    `verified`: verdicts of a review (+1 present, −1 absent, 0 none). What the user knows:
    `labels_per_row`, the mean number of present classes; `prevalence`, the share of rows by class
    number; `complete`, classes (K,) of which every present label is shown.

    >>> z = np.array([[3.0], [2.0], [-3.0], [-4.0]] * 50)
    >>> fitted = fit_probabilities(np.sign(z).astype(np.int8), z)
    >>> fitted([[3.0], [-3.0]]).round().ravel().tolist()
    [1.0, 0.0]
    """
    values, z = np.asarray(labels), np.asarray(logits, dtype=np.float64)
    if labels_per_row is not None and labels_per_row > z.shape[1]:
        raise ValueError(
            f"labels_per_row: expected at most {z.shape[1]}, the number of classes, got "
            f"{labels_per_row:g}"
        )
    how = choose_selection(values) if selection == "auto" else selection
    blank = ~(values == PRESENT).any(axis=1)
    shown = (values == PRESENT).sum(axis=0)
    if complete is not None:
        values = np.where(complete & (values == UNKNOWN), ABSENT, values)
    if how == "one":
        values = np.where(blank[:, None] & (values == UNKNOWN), ABSENT, values)
    if verified is not None:
        values = np.where(verified == 0, values, verified)
    some = _draw_rows(values.shape, seed)
    v, s = values[some].astype(np.int8), sigmoid(z[some])
    known = not bool((v == UNKNOWN).any())
    alone = how == "one" and blank.mean() >= _SOME_BLANK
    fits = [] if how == "random" else [fit_presence(v, s, selection=how, given_one=False)]
    if how == "one" and not alone and not known:
        fits.append(fit_presence(v, s, selection=how, given_one=True))
    if known or not (v == PRESENT).any():
        fits = [fit_presence(v, s, selection="random")]
    middle, levels = [_predict(fit, s) for fit in fits], [_predict(fit, s) for fit in fits]
    if not known and not alone and (v == PRESENT).any():
        shares = fit_shares(v, s)
        middle.append(shares[1].prior(s))
        levels += [fit.prior(s) for fit in shares]
        fits.append(shares[1])
    mean = sigmoid(sum(logit(p) for p in middle) / len(middle))  # type: ignore[arg-type]
    offset, slope = _fit_line(z[some], mean, fits[0])
    result = Probabilities(
        offset, slope, np.zeros((len(offset), 3)), shown, len(values), how, Estimate(0, 0, 0)
    )
    certain = ~(values == UNKNOWN).any(axis=0)
    result = _add_intervals(result, z, [p.mean(axis=0) for p in levels], certain)
    return _use_knowledge(result, z, labels_per_row, prevalence or {})


def _predict(fit: Presence, scores: np.ndarray) -> np.ndarray:
    """P(present | score); given that at least one class is present, if the fit assumes that."""
    p = fit.prior(scores)
    if not fit.given_one:
        return p
    none = np.exp(np.log1p(-np.minimum(p, 1 - 1e-12)).sum(axis=1, keepdims=True))
    return np.minimum(p / np.maximum(1 - none, 1e-12), 1 - 1e-9)


def _fit_line(z: np.ndarray, target: np.ndarray, start: Presence) -> tuple[np.ndarray, np.ndarray]:
    """Return offset and slope per class whose curve is closest to given probabilities."""
    a, b = start.offset.copy(), start.slope / start.scale
    for _ in range(30):
        p = sigmoid(a + b * z)
        gap, curve = target - p, np.maximum(p * (1 - p), 1e-12)
        h00, h01, h11 = curve.sum(0) + 1e-6, (curve * z).sum(0), (curve * z * z).sum(0) + 1e-6
        g0, g1 = gap.sum(0), (gap * z).sum(0)
        det = np.maximum(h00 * h11 - h01 * h01, 1e-12)
        da, db = (h11 * g0 - h01 * g1) / det, (h00 * g1 - h01 * g0) / det
        a, b = a + np.clip(da, -0.5, 0.5), np.maximum(b + np.clip(db, -0.5, 0.5), 1e-3)
        if max(np.abs(da).max(), np.abs(db).max()) < 1e-6:
            break
    return a, b


def _draw_rows(shape: tuple[int, ...], seed: int) -> np.ndarray:
    most = max(_MOST_LABELS // shape[1], 1)
    if shape[0] <= most:
        return np.arange(shape[0])
    return np.sort(np.random.default_rng(seed).choice(shape[0], most, replace=False))


def _add_intervals(
    fitted: Probabilities, z: np.ndarray, levels: list[np.ndarray], known: np.ndarray
) -> Probabilities:
    """Add prevalences with intervals: over the fits, and widened by sampling and by doubt.

    There is no doubt about classes (K,) of which every label is `known`. Of a class without a
    shown label nothing is known.
    """
    p = fitted(z).mean(axis=0)
    low, high = np.minimum.reduce([p, *levels]), np.maximum.reduce([p, *levels])
    # A class with few shown labels is uncertain by their number alone.
    sampling = 1 / np.sqrt(np.maximum(fitted.shown, 1))
    doubt = np.where(known, 0.0, np.hypot(_DOUBT, _CLASS_DOUBT))
    factor = np.exp(_NORMAL_90 * np.hypot(sampling, doubt))
    in_doubt = p[~known].sum() / max(p.sum(), 1e-12)
    total = np.hypot(_DOUBT * in_doubt, 1 / np.sqrt(max(fitted.shown.sum(), 1)))
    wide = float(np.exp(_NORMAL_90 * total))
    count = Estimate(float(p.sum()), float(low.sum()) / wide, float(high.sum()) * wide)
    bounds = np.stack([p, low / factor, np.minimum(high * factor, 1.0)], axis=1)
    bounds[~known & (fitted.shown == 0), 1:] = 0.0, 1.0
    return replace(fitted, prevalence=bounds, labels_per_row=count)


def _use_knowledge(
    fitted: Probabilities,
    z: np.ndarray,
    labels_per_row: float | None,
    prevalence: Mapping[int, float],
) -> Probabilities:
    """Move the curves so that prevalences and labels per row are those that the user knows."""
    offset, bounds, count = fitted.offset.copy(), fitted.prevalence.copy(), fitted.labels_per_row
    for k, share in prevalence.items():
        column = z[:, [k]] * fitted.slope[k]
        offset[k] = _find_shift(offset[[k]] + column, share) + offset[k]
        more = share - bounds[k, 0]
        count = Estimate(*(max(end + more, 0.0) for end in vars(count).values()))
        bounds[k] = share
    if labels_per_row is not None:
        free = np.array([k not in prevalence for k in range(len(offset))])
        rest = labels_per_row - sum(prevalence.values())
        at = offset[free] + z[:, free] * fitted.slope[free]
        shift = _find_shift(at, rest)
        ratio = sigmoid(at + shift).mean(axis=0) / np.maximum(bounds[free, 0], 1e-12)
        offset[free] += shift
        bounds[free] = np.minimum(bounds[free] * ratio[:, None], 1.0)
        count = Estimate(labels_per_row, labels_per_row, labels_per_row)
    return replace(fitted, offset=offset, prevalence=bounds, labels_per_row=count)


def _find_shift(logits: np.ndarray, total: float) -> float:
    """Return the number to add to logits so that the probabilities of a row add up to `total`."""
    low, high = -30.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        enough = sigmoid(logits + middle).sum(axis=1).mean() > total
        low, high = (low, middle) if enough else (middle, high)
    return (low + high) / 2
