"""Identities between methods that the papers state or that follow directly."""

import math

import pytest
import torch

from halftruth import losses
from halftruth.losses.lasd import balanced_lam_neg
from loss_batches import mixed, value_and_gradient
from test_against_golden import read

K = 5
BCE = {"name": "bce"}
IGNORE = {"name": "bce", "unknown": "ignore"}
FLAT = {"w": (0.0, 0.0), "sigma": (1e9, 1e9)}
NEVER = {**FLAT, "b": (-800.0, -800.0)}
LEVERS = {"lam_pos": 1.0, "lam_neg": 1.0}


def splc(base: object, **settings: object) -> dict[str, object]:
    return {"name": "splc", "base": base, **settings}


IDENTITIES = {
    "lasd with levers 1 is splc without margin (004, 5.3)": (
        {"name": "lasd", **LEVERS, "tau": 0.6, "gamma_pos": 1.0, "gamma_neg": 3.0},
        splc({"name": "las", "lam": 1.0, "gamma_pos": 1.0, "gamma_neg": 3.0}, tau=0.6),
    ),
    "lasd with levers 1 and equal gammas is splc over focal": (
        {"name": "lasd", **LEVERS, "tau": 0.7, "gamma_pos": 2.0, "gamma_neg": 2.0},
        splc("focal", tau=0.7),
    ),
    "lasd with levers 1 and tau 1 is asl without shift (004, 5.3)": (
        {"name": "lasd", **LEVERS, "tau": 1.0},
        {"name": "asl", "margin": 0.0},
    ),
    "lasd with tau 1 and gamma 0 is wan (004, 5.3)": (
        {"name": "lasd", "tau": 1.0, "gamma_neg": 0.0, "lam_neg": 1 / (K - 1)},
        {"name": "wan"},
    ),
    "lasd with tau 1 and gamma 0 takes wan's weight for one expected positive": (
        {"name": "lasd", "tau": 1.0, "gamma_neg": 0.0},
        {"name": "wan"},
    ),
    "las with lever 1 is asl without shift": (
        {"name": "las", "lam": 1.0},
        {"name": "asl", "margin": 0.0},
    ),
    "lasd with tau 1 is las": (
        {"name": "lasd", "tau": 1.0, "lam_neg": 0.3},
        {"name": "las", "lam": 0.3},
    ),
    "focal-margin without margin is focal (003, III-E)": (
        {"name": "focal-margin", "margin": 0.0},
        {"name": "focal"},
    ),
    "focal with gamma 0 is cross-entropy": ({"name": "focal", "gamma": 0.0}, BCE),
    "asl with gammas and margin 0 is cross-entropy": (
        {"name": "asl", "gamma_neg": 0.0, "margin": 0.0},
        BCE,
    ),
    "asl with equal gammas and no margin is focal": (
        {"name": "asl", "gamma_pos": 2.0, "gamma_neg": 2.0, "margin": 0.0},
        {"name": "focal"},
    ),
    "gr with q 0, k 0 and v 1 is cross-entropy (002, 3.3)": (
        {"name": "gr", "q2": 0.0, "q3": 0.0, **NEVER},
        BCE,
    ),
    "gr's k becomes a threshold for large w (002, eq. 8)": (
        {"name": "gr", "q2": 0.0, "q3": 0.0, **FLAT, "w": (1e7, 1e7), "b": (-6e6, -6e6)},
        splc("bce", tau=0.6),
    ),
    "las without a lever takes wan's weight": (
        {"name": "las", "gamma_neg": 0.0},
        {"name": "wan"},
    ),
    "gce with q 0 is cross-entropy": ({"name": "gce", "q": 0.0}, BCE),
    "taylor with one term is the absolute error": (
        {"name": "taylor", "order": 1},
        {"name": "gce", "q": 1.0},
    ),
    "sce without its reverse term is cross-entropy": (
        {"name": "sce", "alpha": 1.0, "beta": 0.0},
        BCE,
    ),
    "csl without selection and focusing is cross-entropy": (
        {"name": "csl", "unknown": "negative", "gamma_neg": 0.0, "gamma_unknown": 0.0},
        BCE,
    ),
    "csl that selects every unknown label ignores them": (
        {"name": "csl", "top": 99.0, "gamma_neg": 0.0},
        IGNORE,
    ),
    "csl with a common class everywhere ignores the unknown": (
        {"name": "csl", "top": 0.0, "prior": [0.5] * K, "gamma_neg": 0.0},
        IGNORE,
    ),
    "splc with equal thresholds per class is splc": (
        splc("focal-margin", tau=[0.6] * K),
        splc("focal-margin", tau=0.6),
    ),
    # Table 1 of paper 002, row by row.
    "unified: en with a fixed threshold (002, Table 1)": (
        {"name": "unified", "v": {"above": 0.7, "low": 1.0, "high": 0.0}},
        {"name": "lasd", "tau": 0.7, "lam_pos": 0.0, "lam_neg": 1.0, "gamma_neg": 0.0},
    ),
    "unified: em (002, Table 1)": (
        {
            "name": "unified",
            "corrected": {"name": "em", "alpha": 1.0, "curve": "unknown"},
            "k": 1.0,
            "v": 0.2,
        },
        {"name": "em", "alpha": 0.2},
    ),
    "unified: hill (002, Table 1)": (
        {"name": "unified", "negative": "hill"},
        {"name": "hill", "margin": 0.0, "gamma": 0.0},
    ),
    "unified: focal margin + splc (002, Table 1)": (
        {"name": "unified", "positive": "focal-margin", "negative": "hill", "k": {"above": 0.6}},
        splc("hill", tau=0.6, margin_on_corrected=True),
    ),
    "label smoothing by 0 is cross-entropy": ({"name": "an-ls", "smoothing": 0.0}, BCE),
    "wan with weight 1 is cross-entropy": ({"name": "wan", "weight": 1.0}, BCE),
    "wan with weight 0 ignores the unknown": ({"name": "wan", "weight": 0.0}, IGNORE),
    "em with alpha 0 ignores the unknown": ({"name": "em", "alpha": 0.0}, IGNORE),
    "entmin with weight 0 ignores the unknown": ({"name": "entmin", "weight": 0.0}, IGNORE),
    "epr with weight 0 ignores the unknown": (
        {"name": "epr", "expected_positives": 2.0, "weight": 0.0},
        IGNORE,
    ),
    "ll-r with share 0 is cross-entropy": ({"name": "ll-r", "delta": 0.0}, BCE),
    "ll-r with share 1 ignores the unknown": ({"name": "ll-r", "delta": 1.0}, IGNORE),
    "ll-ct with share 1 is splc with tau 0": (
        {"name": "ll-ct", "delta": 1.0},
        splc("bce", tau=0.0),
    ),
    "splc with tau 1 is its base": (splc("hill", tau=1.0), {"name": "hill"}),
    "splc before its start is its base": (splc("hill", start=9), {"name": "hill"}),
    "splc over a base without margin needs no rule for it": (
        splc("bce"),
        splc("bce", margin_on_corrected=True),
    ),
    "a wrapper takes over the guard of its base": (
        splc({"name": "bce", "eps": 1e-2}, tau=1.0),
        {"name": "bce", "eps": 1e-2},
    ),
    "any-class with alpha 0 is its base": (
        {"name": "any-class", "base": "hill", "alpha": 0.0},
        {"name": "hill"},
    ),
    "class-balanced in equal measure, with beta 0, counts labels": (
        {"name": "class-balanced", "beta": 0.0, "counts": [3] * K, "negatives": 3},
        {"name": "class-balanced", "beta": 0.99, "counts": [7] * K, "negatives": 7},
    ),
}


@pytest.mark.parametrize(("left", "right"), IDENTITIES.values(), ids=IDENTITIES)
def test_identity(left, right):
    logits, labels = mixed(rows=9)
    results = []
    for what in (left, right):
        loss = losses.create(what)
        loss.start_epoch(1, 10)
        results.append(value_and_gradient(loss, logits, labels))
    torch.testing.assert_close(results[0], results[1], rtol=1e-13, atol=1e-15)


def test_unified_is_gr_where_no_absence_is_verified():
    """Paper 002, Table 1: it has no verified absences, which gr gives cross-entropy."""
    logits, labels = mixed(rows=9)
    labels[labels < 0] = 0
    robust = {"corrected": {"name": "gce", "q": 0.01}, "negative": {"name": "gce", "q": 1.0}}
    k, v = {"w": [0, 10], "b": [-2, -8]}, {"mu": [0.5, 0.8], "sigma": [2, 0.5]}
    unified = losses.create("unified", k=k, v=v, **robust)
    gr = losses.create("gr", w=(0, 10), b=(-2, -8))
    for epoch in (0, 3, 9):
        for loss in (unified, gr):
            loss.start_epoch(epoch, 10)
        got, want = (value_and_gradient(loss, logits, labels) for loss in (unified, gr))
        torch.testing.assert_close(got, want, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("small", [1e-2, 1e-4, 1e-6])
def test_gr_approaches_cross_entropy_as_q_goes_to_zero(small: float):
    """(1 - p^q)/q = -log p (1 + O(q log p)): the distance shrinks with q, in value and slope."""
    logits, labels = mixed()
    loss = losses.create("gr", q1=small, q2=small, q3=small, **NEVER)
    got = value_and_gradient(loss, logits, labels)
    want = value_and_gradient(losses.create("bce"), logits, labels)
    torch.testing.assert_close(got, want, rtol=10 * small, atol=0)


def test_gr_with_q_one_is_the_absolute_error():
    logits, labels = mixed()
    values = losses.create("gr", q1=1.0, q3=1.0, reduction="none", **NEVER)(logits, labels)
    p = torch.sigmoid(logits)
    torch.testing.assert_close(values[labels > 0], 1 - p[labels > 0])
    torch.testing.assert_close(values[labels == 0], p[labels == 0])


def test_entropy_is_maximised_or_minimised():
    logits, labels = mixed()
    labels.zero_()
    up = value_and_gradient(losses.create("em", alpha=0.3), logits, labels)
    down = value_and_gradient(losses.create("entmin", weight=0.3), logits, labels)
    torch.testing.assert_close([-v for v in up], list(down), rtol=0, atol=0)
    shifted = losses.create("em", alpha=0.3, shift=True)(logits, labels)
    assert shifted.item() == pytest.approx(up[0].item() + 0.3 * math.log(2), abs=1e-15)
    assert shifted >= 0 > up[0]


def test_any_class_probability_is_the_normalised_geometric_mean():
    """Paper 000, eq. 22: sigmoid of the weighted mean of the logits."""
    logits, labels = read("inputs")["logits"], read("inputs")["single"]
    p = torch.sigmoid(logits)
    weights = (labels > 0).double().clamp(min=0.1)
    weights /= weights.sum(dim=1, keepdim=True)
    there, not_there = (p**weights).prod(dim=1), ((1 - p) ** weights).prod(dim=1)
    geometric = there / (there + not_there)
    both = losses.create("any-class", lam=0.1, reduction="none")(logits, labels)
    base = losses.create("bce", reduction="none")(logits, labels).sum(dim=1)
    torch.testing.assert_close(both - base, -torch.log(geometric), rtol=1e-10, atol=1e-12)
    stored = read("anyclass_paper")["bce alpha=1.0 lambda=0.1/p_a"]
    torch.testing.assert_close(geometric[: len(stored)], stored, rtol=1e-12, atol=0)


@pytest.mark.parametrize("classes", [2, 3, 20, 312])
@pytest.mark.parametrize("expected", [1.0, 1.46, 1.9])
@pytest.mark.parametrize("lam_pos", [0.0, 0.1, 1.0])
def test_lam_neg_balances_both_sides_of_theorem_5_4(classes, expected, lam_pos):
    lam_neg = balanced_lam_neg(classes, expected, lam_pos)
    assert 1 + lam_pos * (expected - 1) == pytest.approx(lam_neg * (classes - expected))


@pytest.mark.parametrize("wrapper", ["class-balanced", "any-class"])
def test_with_one_positive_per_row_the_label_count_is_the_batch_size(wrapper):
    logits, labels = read("inputs")["logits"], read("inputs")["single"]
    needed = {"counts": [9] * 20, "negatives": 9} if wrapper == "class-balanced" else {}
    by_labels = losses.create(wrapper, normalizer="labels", **needed)(logits, labels)
    by_rows = losses.create(wrapper, reduction="batch", **needed)(logits, labels)
    torch.testing.assert_close(by_labels, by_rows, rtol=1e-14, atol=0)


def test_equal_views_are_consistent():
    logits, labels = mixed()
    want = value_and_gradient(losses.create("hill"), logits, labels)
    loss = losses.create("consistency", base="hill", weight=5.0)
    got = value_and_gradient(loss, torch.stack([logits] * 3), labels)
    torch.testing.assert_close(got[0], want[0], rtol=1e-14, atol=0)
    # The mean of three equal numbers is exact to one bit, 1e-16, times the weight.
    torch.testing.assert_close(got[1][0], want[1], rtol=1e-14, atol=1e-15)
    assert got[1][1:].abs().max() < 1e-15


@pytest.mark.parametrize("name", ["bce", "an-ls", "focal"])
def test_symmetric_methods_are_unchanged_if_labels_and_logits_change_sign(name):
    logits, labels = mixed()
    labels[labels == 0] = -1
    there = losses.create(name)(logits, labels)
    not_there = losses.create(name)(-logits, -labels)
    torch.testing.assert_close(there, not_there, rtol=1e-14, atol=0)
