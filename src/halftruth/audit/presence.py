"""How likely each class is in each row, learnt from labels of which most are missing.

    z = logit(score),   p = P(class there | z) = σ(a + b z)          a, b of each class

Only PRESENT and ABSENT labels are certain; whether an UNKNOWN one is there is a hidden variable,
and p is found by expectation-maximisation over it. How labels come to be missing decides what
an unknown label tells ("selection"):

- "random": each positive is labelled with the chance c of its class (Elkan and Noto, KDD 2008):
  P(there | unlabelled) = p (1 − c) / (1 − c p);
- "one": each row shows one of its n positives, any with equal chance (Cole et al., CVPR 2021):
  P(there | j shown) = p I₂ / (p I₂ + (1 − p) I₁),  I₁ = E[1/(1+M)], I₂ = E[1/(2+M)],
  M being how many further classes are there: E[1/(1+M)] = ∫₀¹ Π (1 − pₘ + pₘ t) dt.

Slopes and offsets of the classes are drawn towards each other: rare classes borrow from the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from halftruth.labels import ABSENT, PRESENT

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
# Strengths of the priors, in rows: on a class's slope, its offset, and its chance to be labelled.
_SLOPE, _OFFSET, _CHANCE = 10.0, 1.0, 20.0
_CLOSE = 1e-3


@dataclass(frozen=True)
class Presence:
    """The fitted curve of each class, and its chance to be labelled where it is there."""

    selection: str
    offset: np.ndarray
    slope: np.ndarray
    chance: np.ndarray

    def prior(self, scores: np.ndarray) -> np.ndarray:
        """P(there | score), whatever the label says."""
        return sigmoid(self.offset + self.slope * logit(scores))

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
    verified: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    start: Presence | None = None,
    steps: int = 100,
) -> Presence:
    """Expectation-maximisation; rows may be weighted (a bootstrap), a former fit be the start."""
    z = logit(scores)
    rows = np.ones((len(z), 1)) if weights is None else weights[:, None]
    labelled = (rows * (labels == PRESENT)).sum(axis=0)
    now = start
    if now is None:
        flat = np.zeros(z.shape[1])
        now = Presence(selection, flat, flat + 1, flat + 0.7)
        now = _maximise(now, z, (labels == PRESENT).astype(float), rows, steps=15)
    before = 0.0
    for _ in range(steps):
        there = now.posterior(labels, scores, verified)
        total = (rows * there).sum(axis=0)
        common = labelled.sum() / max(total.sum(), 1.0)
        chance = (labelled + _CHANCE * common) / (total + _CHANCE)
        now = replace(_maximise(now, z, there, rows), chance=np.clip(chance, 0.01, 0.999))
        hidden = float(total.sum() - labelled.sum())
        if abs(hidden - before) < _CLOSE * max(hidden, 1.0):
            break
        before = hidden
    return now


def _maximise(
    now: Presence, z: np.ndarray, there: np.ndarray, rows: np.ndarray, steps: int = 2
) -> Presence:
    """Newton's steps of each class's logistic regression of `there` on z."""
    a, b = now.offset, now.slope
    centre_a, centre_b = a.mean(), np.median(b)
    for _ in range(steps):
        p = sigmoid(a + b * z)
        gap, curve = rows * (there - p), rows * p * (1 - p)
        g0 = gap.sum(axis=0) - _OFFSET * (a - centre_a)
        g1 = (gap * z).sum(axis=0) - _SLOPE * (b - centre_b)
        h00, h01 = curve.sum(axis=0) + _OFFSET, (curve * z).sum(axis=0)
        h11 = (curve * z * z).sum(axis=0) + _SLOPE
        det = h00 * h11 - h01**2
        a = a + np.clip((h11 * g0 - h01 * g1) / det, -2, 2)
        # A score that speaks against its class would turn the ranking round.
        b = np.maximum(b + np.clip((h00 * g1 - h01 * g0) / det, -0.5, 0.5), 0.01)
    return replace(now, offset=a, slope=b)


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
