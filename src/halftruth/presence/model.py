"""How likely each class is in each row, learnt from labels of which most are missing.

    z = logit(score) / scale,   p = P(class there | z) = σ(a + b z)          a, b of each class

Only PRESENT and ABSENT labels are certain; whether an UNKNOWN one is there is a hidden variable,
and p is found by expectation-maximisation over it. How labels come to be missing decides what
an unknown label tells ("selection"):

- "random": each positive is labelled with the chance c of its class (Elkan and Noto, KDD 2008):
  P(there | unlabelled) = p (1 − c) / (1 − c p);
- "one": each row shows one of its n positives, any with equal chance (Cole et al., CVPR 2021):
  P(there | j shown) = p I₂ / (p I₂ + (1 − p) I₁),  I₁ = E[1/(1+M)], I₂ = E[1/(2+M)],
  M being how many further classes are there: E[1/(1+M)] = ∫₀¹ Π (1 − pₘ + pₘ t) dt.

Whether classes are independent given their scores decides what high scores beside a shown label
mean, and single labels cannot tell it. `given_one` takes the classes of a row as independent but
for the fact that at least one is there: what looks like two classes may then be one that was mixed
up with another, and few labels are missing. Without it they are independent outright, and every
second class that is seen counts. The truth lies between the two.

Slopes and offsets of the classes are drawn towards each other: rare classes borrow from the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from halftruth.labels import ABSENT, PRESENT

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
# How strongly a class's (offset, slope) and its chance to be labelled are drawn to those of all;
# chosen on VOC 2012 and COCO 2014, where the complete labels are known.
_DEVIATION, _CHANCE = np.diag([10.0, 300.0]), 20.0
# So that the curve stays finite where few rows say everything.
_CENTRE = np.diag([0.1, 1.0])
_CLOSE = 1e-4


@dataclass(frozen=True)
class Presence:
    """The fitted curve of each class, and its chance to be labelled where it is there."""

    selection: str
    offset: np.ndarray
    slope: np.ndarray
    chance: np.ndarray
    given_one: bool = False
    scale: float = 1.0

    def prior(self, scores: np.ndarray) -> np.ndarray:
        """P(there | score), whatever the label says."""
        return sigmoid(self.offset + self.slope * logit(scores) / self.scale)

    def posterior(
        self, labels: np.ndarray, scores: np.ndarray, verified: np.ndarray | None = None
    ) -> np.ndarray:
        """P(there | score, label): 1 where PRESENT, 0 where ABSENT; verdicts overrule labels."""
        known = labels if verified is None else np.where(verified == 0, labels, verified)
        p = np.where(known == 0, self.prior(scores), known == PRESENT)
        if self.selection == "random":
            hidden = p * (1 - self.chance) / (1 - p * self.chance)
        else:
            hidden = _beside_the_one_shown(p, labels == PRESENT)
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
) -> Presence:
    """Expectation-maximisation; rows may be weighted (a bootstrap), a former fit be the start."""
    # One scale for all classes: the priors mean the same for bold and for timid scores.
    scale = float(logit(scores).std()) or 1.0 if start is None else start.scale
    z = logit(scores) / scale
    rows = np.ones((len(z), 1)) if weights is None else weights[:, None]
    present = labels == PRESENT
    labelled = (rows * present).sum(axis=0)
    certain = present.any(axis=1, keepdims=True) & given_one
    now = start
    if now is None:
        flat = np.zeros(z.shape[1])
        now = Presence(selection, flat, flat + 1, flat + 0.7, given_one, scale)
        now = _maximise(now, z, present.astype(float), rows, np.zeros_like(certain), steps=15)
    before = 0.0
    for _ in range(steps):
        there = now.posterior(labels, scores, verified)
        total = (rows * there).sum(axis=0)
        common = labelled.sum() / max(total.sum(), 1.0)
        chance = (labelled + _CHANCE * common) / (total + _CHANCE)
        now = replace(_maximise(now, z, there, rows, certain), chance=np.clip(chance, 0.01, 0.999))
        hidden = float(total.sum() - labelled.sum())
        if abs(hidden - before) < _CLOSE * max(hidden, 1.0):
            break
        before = hidden
    return now


def _maximise(
    now: Presence,
    z: np.ndarray,
    there: np.ndarray,
    rows: np.ndarray,
    certain: np.ndarray,
    steps: int = 2,
) -> Presence:
    """Newton's steps of each class's logistic regression of `there` on z.

    In `certain` rows at least one class is there: P(k | one at least) = p / (1 − Π (1 − pₘ)).
    """
    at = np.stack([now.offset, now.slope], axis=1)
    for _ in range(steps):
        p = sigmoid(at[:, 0] + at[:, 1] * z)
        if certain.any():
            none = np.exp(np.log1p(-np.minimum(p, 1 - 1e-12)).sum(axis=1, keepdims=True))
            p = np.where(certain, p / np.maximum(1 - none, 1e-12), p)
        gap, curve = rows * (there - p), rows * np.maximum(p * (1 - p), 1e-9)
        slopes = np.stack([gap.sum(axis=0), (gap * z).sum(axis=0)], axis=1)
        h00, h01, h11 = curve.sum(axis=0), (curve * z).sum(axis=0), (curve * z * z).sum(axis=0)
        bend = np.stack([np.stack([h00, h01], axis=1), np.stack([h01, h11], axis=1)], axis=1)
        at = at + np.clip(_newton(at, slopes, bend), -0.5, 0.5)
        # A score that speaks against its class would turn the ranking round.
        at[:, 1] = np.maximum(at[:, 1], 0.01)
    return replace(now, offset=at[:, 0], slope=at[:, 1])


def _newton(at: np.ndarray, slopes: np.ndarray, bend: np.ndarray) -> np.ndarray:
    """(K, 2) step for each class = a common centre + its own deviation, which has the prior."""
    centre = at.mean(axis=0)
    held = bend + _DEVIATION
    own = np.linalg.solve(held, (slopes - (at - centre) @ _DEVIATION)[..., None])
    follow = np.linalg.solve(held, bend)
    left = (bend - bend @ follow).sum(axis=0) + _CENTRE
    pull = (slopes[..., None] - bend @ own).sum(axis=0)[:, 0] - _CENTRE @ (centre - [0.0, 1.0])
    common = np.linalg.solve(left, pull)
    return np.asarray(common + (own - follow @ common[:, None])[..., 0])


def _beside_the_one_shown(p: np.ndarray, shown: np.ndarray) -> np.ndarray:
    """P(there | another class is the one shown); rows that show none tell nothing more than p."""
    one, two = np.zeros_like(p), np.zeros_like(p)
    for node, weight in zip((_NODES + 1) / 2, _WEIGHTS / 2, strict=True):
        others = np.where(shown, 0.0, np.log1p(p * (node - 1)))
        product = weight * np.exp(others.sum(axis=1, keepdims=True) - others)
        one += product
        two += node * product
    beside = p * two / (p * two + (1 - p) * one)
    return np.where(shown.any(axis=1, keepdims=True), beside, p)


def logit(scores: np.ndarray) -> np.ndarray:
    """log(s / (1 − s)), finite for 0 and 1."""
    safe = np.clip(scores, 1e-6, 1 - 1e-6)
    return np.asarray(np.log(safe) - np.log1p(-safe))


def sigmoid(z: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(−z)) without overflow."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * z)))
