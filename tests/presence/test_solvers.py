"""Curves of probabilities: their equations hold, computed by a second way."""

import numpy as np
import pytest

from halftruth.presence.labelling_model import _DEVIATION, _LEAST_SLOPE, Presence, _maximise
from halftruth.presence.solvers import fit_shared_curve, sigmoid

START = Presence("missing_at_random", np.zeros(3), np.ones(3), np.ones(3))


@pytest.mark.parametrize("certain", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_curves_expect_what_is_present_also_where_one_class_is_certain(certain, weighted):
    """Of rows that are not empty: P(k) is p / (1 − Π (1 − p))."""
    random = np.random.default_rng(0)
    z = random.normal(size=(40_000, 3))
    present = (random.random(z.shape) < sigmoid(z * [1.5, 0.7, 1.0] - [1.0, 0.3, 2.0])).astype(
        float
    )
    rows = random.random((len(z), 1)) < certain
    kept = present.any(axis=1) | ~rows[:, 0]
    z, present, rows = z[kept], present[kept], rows[kept]
    weight = random.random(z.shape) if weighted else None
    found = _maximise(START, z, present, rows, steps=40, weight=weight)
    p = sigmoid(found.offset + found.slope * z)
    expected = np.where(rows, p / (1 - np.prod(1 - p, axis=1, keepdims=True)), p)
    gap = (present - expected) * (1.0 if weight is None else weight)
    at = np.stack([found.offset, found.slope], axis=1)
    # The slope of the likelihood is that of the prior, which draws classes towards their mean.
    slopes = np.stack([gap.sum(axis=0), (gap * z).sum(axis=0)], axis=1)
    assert slopes == pytest.approx((at - at.mean(axis=0)) @ _DEVIATION, abs=1.0)
    assert found.slope == pytest.approx([1.5, 0.7, 1.0], abs=0.2)
    assert found.offset == pytest.approx([-1.0, -0.3, -2.0], abs=0.2)


def test_a_curve_does_not_reverse_the_ranking():
    """The slope stays at its least, and the offset gives the share of rows."""
    z = np.random.default_rng(0).normal(size=(40_000, 3)) + 1
    present = (np.random.default_rng(1).random(z.shape) < sigmoid(-2 - z)).astype(float)
    found = _maximise(START, z, present, np.zeros((len(z), 1), bool), steps=40)
    assert found.slope == pytest.approx([_LEAST_SLOPE] * 3)
    p = sigmoid(found.offset + found.slope * z)
    assert p.mean(axis=0) == pytest.approx(present.mean(axis=0), rel=0.02)


@pytest.mark.parametrize(("shown", "moved"), [(0.7, 0.5), (0.99, 0.5), (0.54, None), (0.6, None)])
def test_a_step_is_at_most_a_half(shown, moved):
    """The whole step is the one that the likelihood of an offset alone has, (y − p) / p (1 − p)."""
    z = np.zeros((100_000, 3))
    present = (np.arange(len(z)) < shown * len(z))[:, None] * np.ones(3)
    found = _maximise(START, z, present, np.zeros((len(z), 1), bool), steps=1)
    expected = 4 * (shown - 0.5) if moved is None else moved
    assert found.offset == pytest.approx([expected] * 3, rel=0.01)


@pytest.mark.parametrize(("offset", "slope"), [(-1.0, 0.5), (2.0, 6.0), (0.5, 7.9), (-3.0, 0.05)])
def test_a_shared_curve_is_found(offset, slope):
    z, cells = np.linspace(-3, 3, 41), np.linspace(5, 50, 41)
    present = cells * sigmoid(offset + slope * z)
    found = fit_shared_curve(z, cells, present)
    assert found == pytest.approx((offset, slope), abs=1e-3)
    assert (cells * sigmoid(found[0] + found[1] * z)).sum() == pytest.approx(present.sum())


def test_a_shared_curve_is_not_steeper_than_8():
    z, cells = np.linspace(-3, 3, 40), np.full(40, 10.0)
    assert fit_shared_curve(z, cells, cells * (z > 0)) == pytest.approx((0, 8), abs=1e-6)


def test_scores_in_the_wrong_order_keep_the_level():
    z, cells = np.linspace(-3, 3, 41), np.full(41, 10.0)
    offset, slope = fit_shared_curve(z, cells, cells * sigmoid(-z))
    assert 0 < slope < 0.05
    assert sigmoid(offset + slope * z).mean() == pytest.approx(0.5)
