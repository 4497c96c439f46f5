"""Gradients: the stated slopes against the papers' formulas (`test_check_loss`: differences)."""

import pytest
import torch

from cases import CASES
from halftruth import losses
from loss_batches import mixed, value_and_gradient

P = torch.linspace(0.01, 0.99, 99, dtype=torch.float64).unsqueeze(0)
Z = torch.logit(P)


def slopes(name: str, label: int, **settings: object) -> torch.Tensor:
    """d cost / d z of one kind of entry, over p = 0.01, 0.02, ..., 0.99."""
    loss = losses.create(name, reduction="sum", **settings)
    return value_and_gradient(loss, Z, torch.full(Z.shape, label))[1].squeeze(0)


@pytest.mark.parametrize("name", ["bce", "em", "hill", "gr", "any-class"])
def test_gradient_as_the_paper_states_it(name: str):
    """001 eq. 9-11, 002 eq. 18 and 33, 000 eq. 20-24."""
    stated = 0
    for settings in ({}, *CASES[name].variants):
        case = CASES[name](**settings)
        for keep in ((-1, 0, 1), (-1, 0), (0,)):
            logits, labels = mixed()
            labels[~torch.isin(labels, torch.tensor(keep))] = 0
            formula = case.closed_form(logits.tolist(), labels.tolist())
            if formula is not None:
                _, gradient = value_and_gradient(case.build(reduction="sum"), logits, labels)
                torch.testing.assert_close(
                    gradient, torch.tensor(formula, dtype=torch.float64), rtol=1e-12, atol=1e-15
                )
                stated += 1
    assert stated


def test_em_is_flat_at_zero_and_follows_the_sign_of_z():
    slope = slopes("em", 0, alpha=0.1)
    middle = P.squeeze(0) == 0.5
    assert slope[middle].abs() < 1e-16
    assert torch.equal(slope[~middle].sign(), Z.squeeze(0)[~middle].sign())
    assert (slope.abs() < slopes("bce", 0)).all(), "weaker than an assumed negative everywhere"


def test_hill_peaks_at_one_half():
    """Paper 003, III-C: lam = 1.5 makes the second derivative vanish at p = 1/2."""
    slope = slopes("hill", 0)
    assert slope.argmax() == 49
    torch.testing.assert_close(slope, slope.flip(0), rtol=1e-12, atol=0)
    assert slopes("hill", 0, lam=2.0).argmax() > 49


def test_hill_has_less_weight_than_squared_error_on_likely_missing_labels():
    """Paper 003, Fig. 3."""
    p = P.squeeze(0)
    squared_error = 2 * p**2 * (1 - p)
    assert (slopes("hill", 0) < squared_error)[p >= 0.5].all()


def test_asl_reduces_the_gradient_of_the_hardest_negatives_only():
    """Paper 003, appendix A: its turning point stays between 0.8 and 0.9, hill's is at 0.5."""
    for gamma in (2.0, 4.0):
        turning = P.squeeze(0)[slopes("asl", 0, gamma_neg=gamma, margin=0.05).argmax()]
        assert 0.79 < turning < 0.91


def test_a_margin_gives_semi_hard_positives_more_weight():
    """Paper 003, Fig. 4: more than focal on p in [0.3, 0.5], less extra on the easy ones."""
    p = P.squeeze(0)
    lifted = slopes("focal-margin", 1, margin=1.0) / slopes("focal", 1)
    assert (lifted > 1.2)[(p > 0.3) & (p < 0.5)].all()
    assert (lifted[:5] < 1.1).all(), "the hardest gain little"


def test_gr_raises_everything_at_first_and_the_confident_at_last():
    """Paper 002, C.5 and Fig. 1b."""
    start = losses.create("gr", reduction="sum")
    end = losses.create("gr", w=(0.0, 10.0), b=(-2.0, -8.0), reduction="sum")
    end.go_to(1.0)
    unknown = torch.zeros_like(Z)
    first = value_and_gradient(start, Z, unknown)[1].squeeze(0)
    last = value_and_gradient(end, Z, unknown)[1].squeeze(0)
    assert (first[:5] < 0).all()
    assert (first[20:] > 0).all()
    assert (last[:70] > 0).all()
    assert (last[-10:] < 0).all()


@pytest.mark.parametrize("exponent", [0.01, 0.5, 1.5])
def test_robust_slope_is_as_exact_in_float32(exponent: float):
    """1 - (1 - p^q) would cancel for confident predictions."""
    z = torch.linspace(-30, 30, 241).unsqueeze(0)
    labels = torch.zeros_like(z)
    loss = losses.create("gr", w=(0, 0), b=(-99, -99), q3=exponent, reduction="sum")
    _, single = value_and_gradient(loss, z, labels)
    _, double = value_and_gradient(loss, z.double(), labels)
    torch.testing.assert_close(single.double(), double, rtol=2e-5, atol=0)
