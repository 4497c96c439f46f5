"""How likely each class is present in each row, estimated from incomplete labels.

    z = logit(score) / scale,   p = P(present | z) = σ(a + b z)          a, b per class

Only PRESENT and ABSENT labels are certain. Whether an UNKNOWN label is present is a hidden
variable, and p is fitted by expectation-maximisation over it. What an unknown label means depends
on how labels came to be missing ("selection"):

- "random": each positive is labelled with the probability c of its class (Elkan and Noto, KDD
  2008), and each negative with the probability d, which is 0 where nothing is labelled ABSENT:
  P(present | unlabelled) = p (1 − c) / (p (1 − c) + (1 − p) (1 − d));
- "one": each row shows one of its n positives, all equally likely (Cole et al., CVPR 2021):
  P(present | j shown) = p I₂ / (p I₂ + (1 − p) I₁),  I₁ = E[1/(1+M)], I₂ = E[1/(2+M)],
  where M is the number of further present classes: E[1/(1+M)] = ∫₀¹ Π (1 − pₘ + pₘ t) dt.

High scores next to a shown label mean different things depending on whether classes are
independent given their scores, and single labels cannot show which is true. `given_one` assumes
independence given that at least one class is present: two high scores may then be one class
confused with another, and few labels are missing. Without it the classes are fully independent,
and every second high score counts. The true number lies between the two.

Slopes and offsets of the classes are regularised towards their mean, which helps rare classes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from halftruth.labels import ABSENT, PRESENT

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
# How strongly the (offset, slope) and the labelling probability of a class are regularised towards
# the mean of all classes; chosen on VOC 2012 and COCO 2014, where the complete labels are known.
_DEVIATION, _CHANCE = np.diag([10.0, 300.0]), 20.0
# Keeps the curve finite where a few rows separate the classes perfectly.
_CENTRE = np.diag([0.1, 1.0])
_CLOSE = 1e-4


@dataclass(frozen=True)
class Presence:
    """The fitted curve per class, and the probability (`chance`) that a positive is labelled.

    `absent_chance` is the probability that a negative is labelled, ABSENT.
    """

    selection: str
    offset: np.ndarray
    slope: np.ndarray
    chance: np.ndarray
    given_one: bool = False
    scale: float = 1.0
    absent_chance: np.ndarray | float = 0.0

    def prior(self, scores: np.ndarray) -> np.ndarray:
        """P(present | score), without using the label."""
        return sigmoid(self.offset + self.slope * logit(scores) / self.scale)

    def posterior(
        self, labels: np.ndarray, scores: np.ndarray, verified: np.ndarray | None = None
    ) -> np.ndarray:
        """P(present | score, label): 1 where PRESENT, 0 where ABSENT; verdicts override labels."""
        known = labels if verified is None else np.where(verified == 0, labels, verified)
        p = np.where(known == 0, self.prior(scores), known == PRESENT)
        if self.selection == "random":
            missed = p * (1 - self.chance)
            hidden = missed / (missed + (1 - p) * (1 - self.absent_chance))
        else:
            hidden = _next_to_shown_label(p, labels == PRESENT)
        return np.where(known == 0, hidden, p)


def choose_selection(labels: np.ndarray) -> str:
    """ "one" where no row has more than one PRESENT label and nothing is ABSENT, else "random"."""
    alone = np.count_nonzero(labels == PRESENT, axis=1).max(initial=0) <= 1
    return "one" if alone and labels.shape[1] > 1 and not (labels == ABSENT).any() else "random"


def fit_presence(
    labels: np.ndarray,
    scores: np.ndarray,
    *,
    selection: str,
    given_one: bool = False,
    verified: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    start: Presence | None = None,
    steps: int = 60,
    share: float | None = None,
) -> Presence:
    """Fit by expectation-maximisation, with optional row weights (bootstrap) and a starting fit.

    `share` fixes P(shown | present) of all classes instead of fitting one per class.
    """
    # One scale for all classes, so that the priors do not depend on how confident the scores are.
    scale = float(logit(scores).std()) or 1.0 if start is None else start.scale
    z = logit(scores) / scale
    rows = np.ones((len(z), 1)) if weights is None else weights[:, None]
    present = labels == PRESENT
    labelled = (rows * present).sum(axis=0)
    negative = (rows * (labels == ABSENT)).sum(axis=0)
    certain = present.any(axis=1, keepdims=True) & given_one
    now = start
    if now is None:
        flat = np.zeros(z.shape[1])
        now = Presence(selection, flat, flat + 1, flat + 0.7, given_one, scale)
        now = _maximise(now, z, present.astype(float), rows, np.zeros_like(certain), steps=15)
    before = 0.0
    if share is not None:
        now = replace(now, chance=np.full(z.shape[1], share))
    for _ in range(steps):
        expected = now.posterior(labels, scores, verified)
        total = (rows * expected).sum(axis=0)
        common = labelled.sum() / max(total.sum(), 1.0)
        chance = (labelled + _CHANCE * common) / (total + _CHANCE)
        if share is not None:
            chance = now.chance
        now = replace(
            _maximise(now, z, expected, rows, certain),
            chance=np.clip(chance, 0.01, 0.999),
            absent_chance=np.minimum(negative / np.maximum(rows.sum() - total, 1.0), 0.999),
        )
        hidden = float(total.sum() - labelled.sum())
        if abs(hidden - before) < _CLOSE * max(hidden, 1.0):
            break
        before = hidden
    return now


def _maximise(
    now: Presence,
    z: np.ndarray,
    present: np.ndarray,
    rows: np.ndarray,
    certain: np.ndarray,
    steps: int = 2,
) -> Presence:
    """Newton steps of the logistic regression of `present` on z, per class.

    In `certain` rows at least one class is present: P(k | at least one) = p / (1 − Π (1 − pₘ)).
    """
    at = np.stack([now.offset, now.slope], axis=1)
    for _ in range(steps):
        p = sigmoid(at[:, 0] + at[:, 1] * z)
        if certain.any():
            none = np.exp(np.log1p(-np.minimum(p, 1 - 1e-12)).sum(axis=1, keepdims=True))
            p = np.where(certain, p / np.maximum(1 - none, 1e-12), p)
        gap, curve = rows * (present - p), rows * np.maximum(p * (1 - p), 1e-9)
        slopes = np.stack([gap.sum(axis=0), (gap * z).sum(axis=0)], axis=1)
        h00, h01, h11 = curve.sum(axis=0), (curve * z).sum(axis=0), (curve * z * z).sum(axis=0)
        bend = np.stack([np.stack([h00, h01], axis=1), np.stack([h01, h11], axis=1)], axis=1)
        at = at + np.clip(_newton(at, slopes, bend), -0.5, 0.5)
        # A negative slope would reverse the ranking.
        at[:, 1] = np.maximum(at[:, 1], 0.01)
    return replace(now, offset=at[:, 0], slope=at[:, 1])


def _newton(at: np.ndarray, slopes: np.ndarray, bend: np.ndarray) -> np.ndarray:
    """(K, 2) step per class: a shared centre plus the regularised deviation of the class."""
    centre = at.mean(axis=0)
    held = bend + _DEVIATION
    own = np.linalg.solve(held, (slopes - (at - centre) @ _DEVIATION)[..., None])
    follow = np.linalg.solve(held, bend)
    left = (bend - bend @ follow).sum(axis=0) + _CENTRE
    pull = (slopes[..., None] - bend @ own).sum(axis=0)[:, 0] - _CENTRE @ (centre - [0.0, 1.0])
    common = np.linalg.solve(left, pull)
    return np.asarray(common + (own - follow @ common[:, None])[..., 0])


def _next_to_shown_label(p: np.ndarray, shown: np.ndarray) -> np.ndarray:
    """P(present | another class is the one shown); p for rows that show none."""
    one, two = np.zeros_like(p), np.zeros_like(p)
    for node, weight in zip((_NODES + 1) / 2, _WEIGHTS / 2, strict=True):
        others = np.where(shown, 0.0, np.log1p(p * (node - 1)))
        product = weight * np.exp(others.sum(axis=1, keepdims=True) - others)
        one += product
        two += node * product
    given = p * two / (p * two + (1 - p) * one)
    return np.where(shown.any(axis=1, keepdims=True), given, p)


def logit(scores: np.ndarray) -> np.ndarray:
    """log(s / (1 − s)), finite for 0 and 1."""
    safe = np.clip(scores, 1e-6, 1 - 1e-6)
    return np.asarray(np.log(safe) - np.log1p(-safe))


def sigmoid(z: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(−z)) without overflow."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * z)))
