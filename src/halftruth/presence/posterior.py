"""P(present) of every label, given P(present | x) and which labels are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from halftruth.labels import ABSENT, PRESENT, UNKNOWN, find_complete_rows
from halftruth.presence.labelling_model import infer_missing, infer_next_to_shown


@dataclass(frozen=True)
class PresenceRange:
    """P(present | score, label), (N, K): the best estimate, and the ends of what is plausible.

    `low` and `high` are the fits with the fewest and the most present labels, about 90 % apart.
    """

    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray
    selection: str


def infer_presence(
    labels: np.ndarray,
    p: np.ndarray,
    assumptions: Mapping[str, float],
    verified: np.ndarray,
    propensity: np.ndarray | None = None,
) -> np.ndarray:
    """P(present | x, label): 1 where PRESENT, 0 where ABSENT, else by the selection.

    `p` (N, K) is P(present | x) of the rows. `assumptions` are weights of:

    - "random": labels are missing at random, classes are independent given x;
    - "no empty row": the same, given that at least one class of every row is present;
    - "one": each row shows one of its present labels; "one, at least one": with the same condition.

    Verdicts (`verified`) override labels; which labels were shown is read from `labels` alone.
    """
    shown = labels == PRESENT
    known = np.where(verified == 0, labels, verified)
    sure = known != UNKNOWN
    certain = (known == PRESENT).astype(float)
    whole = find_complete_rows(labels)[:, None]
    part = np.ones(len(labels), bool) if whole.all() else ~whole[:, 0]
    present = np.maximum(np.where(sure, certain, p)[part].sum(axis=0), 1e-9)
    chance = np.clip(shown[part].sum(axis=0) / np.maximum(p[part].sum(axis=0), 1e-9), 0.01, 0.999)
    negative = (labels[part] == ABSENT).sum(axis=0)
    absent_chance = np.minimum(negative / np.maximum(part.sum() - present, 1.0), 0.999)
    found = np.zeros(p.shape)
    free = None
    for name, weight in assumptions.items():
        if "," in name or name == "no empty row":
            free = _remove_condition(p) if free is None else free
        if name == "random":
            hidden = infer_missing(p, chance, absent_chance)
        elif name == "no empty row":
            assert free is not None
            hidden = _infer_missing_in_rows(free, shown, chance, absent_chance)
        else:
            assert name == "one" or free is not None
            open_ones = p if name == "one" or free is None else free
            hidden = infer_next_to_shown(np.where(sure, certain, open_ones), shown, propensity)
        found += weight * hidden
    return np.where(sure, certain, np.clip(found, 0.0, 1.0))


def _infer_missing_in_rows(
    p: np.ndarray, shown: np.ndarray, chance: np.ndarray, absent_chance: np.ndarray
) -> np.ndarray:
    """P(present | unlabelled) given that no row is empty; `p` is without that condition."""
    hidden = infer_missing(p, chance, absent_chance)
    none = np.log1p(-np.minimum(hidden, 1 - 1e-12)).sum(axis=1, keepdims=True)
    blank = ~shown.any(axis=1, keepdims=True)
    # Without a label, at least one class is missing.
    return np.where(blank, np.minimum(hidden / np.maximum(-np.expm1(none), 1e-12), 1.0), hidden)


def _remove_condition(p: np.ndarray) -> np.ndarray:
    """Probabilities q of independent classes with q / (1 − Π (1 − q)) = p.

    q = s p, where s = 1 − Π (1 − s p), one number per row; it tends to 0 where a row's p add up to
    1, since then exactly one class is present.
    """
    low, high = np.full((len(p), 1), 1e-4), np.ones((len(p), 1))
    for _ in range(25):
        s = (low + high) / 2
        none = np.log1p(-np.minimum(s * p, 1 - 1e-12)).sum(axis=1, keepdims=True)
        # Above the solution s is larger than the probability that the row is not empty.
        above = s > -np.expm1(none)
        low, high = np.where(above, low, s), np.where(above, s, high)
    return np.asarray((low + high) / 2 * p)
