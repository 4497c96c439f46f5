"""Every method against a slow reference: plain Python, one entry at a time, from the papers."""

import math
from fractions import Fraction

import pytest
import torch

from cases import CASES, Case
from halftruth import losses
from halftruth.losses._engine import one_pass
from loss_batches import every_variant, mixed, value_and_gradient, wrapped_cases

TOLERANCE = {"rtol": 1e-12, "atol": 1e-13}


def test_every_method_has_a_case():
    for name in set(losses.names()) - set(CASES):
        file = name.replace("-", "_")
        pytest.fail(f"{name} has no case: add tests/losses/cases/{file}.py (CONTRIBUTING.md)")
    assert set(CASES) == set(losses.names())


@every_variant()
def test_value(case: Case):
    logits, labels = mixed(case.views)
    value = case.build()(logits, labels)
    expected = case.mean(logits.tolist(), labels.tolist())
    torch.testing.assert_close(value.item(), expected, **TOLERANCE)


@every_variant()
def test_gradient(case: Case):
    logits, labels = mixed(case.views)
    _, gradient = value_and_gradient(case.build(), logits, labels)
    torch.testing.assert_close(gradient, case.gradient(logits, labels), rtol=1e-7, atol=1e-9)


@every_variant()
def test_value_of_each_entry_or_row(case: Case):
    logits, labels = mixed(case.views)
    z, y = logits.tolist(), labels.tolist()
    first = z if case.views == 1 else z[0]
    added_term = case.added_term(z, y)
    values = case.build(reduction="none")(logits, labels)
    if case.coupled:
        expected = [row + added_term * labels.shape[1] for row in case.rows(first, y, first)]
    else:
        expected = [[v + added_term for v in row] for row in case.entries(first, y, first)]
    torch.testing.assert_close(values, torch.tensor(expected, dtype=torch.float64), **TOLERANCE)


@every_variant()
def test_blocks_of_rows_change_nothing(case: Case, monkeypatch):
    """A batch larger than a block is computed in parts, the last one shorter."""
    logits, labels = mixed(case.views, rows=40, seed=3)
    whole = [value_and_gradient(case.build(reduction=r), logits, labels) for r in ("mean", "none")]
    monkeypatch.setattr(one_pass, "BLOCK", 17)
    assert len(one_pass.blocks(logits[0] if case.views > 1 else logits)) == 14
    pieces = [value_and_gradient(case.build(reduction=r), logits, labels) for r in ("mean", "none")]
    # Blocks end at other entries: vector and scalar code differ in the last bits of exp.
    torch.testing.assert_close(pieces, whole, **TOLERANCE)


@pytest.mark.parametrize("delta", [0.0007, 0.002, 0.005, 0.01, 0.029, 0.07])
def test_no_rounding_in_the_count_of_large_losses(delta):
    """100 times 0.07 is 7, but not in floating point."""
    loss = losses.create("ll-r", delta=delta)
    for epoch in range(1, 30):
        loss.start_epoch(epoch, 30)
        for entries in (1, 35, 100, 300, 1280, 145_152, 40_960_000):
            exact = math.ceil(Fraction(str(delta)) * epoch * entries)
            assert loss.count(entries) == min(exact, entries)


@pytest.mark.parametrize("name", ["ll-r", "ll-ct"])
def test_ties_at_the_threshold_change_together(name):
    """As in the published code: with equal losses the count is a minimum."""
    case = CASES[name](delta=0.1, epoch=2)
    logits = torch.tensor([[1.0, 1.0, 1.0, 0.0, 2.0], [1.0, -1.0, 1.0, 3.0, 1.0]]).double()
    labels = torch.tensor([[0, 0, 1, 0, 0], [0, 0, 0, -1, -1]])
    value, gradient = value_and_gradient(case.build(), logits, labels)
    expected = case.mean(logits.tolist(), labels.tolist())
    torch.testing.assert_close(value.item(), expected, **TOLERANCE)
    changed = gradient <= 0 if name == "ll-ct" else gradient == 0
    assert changed[labels == 0].tolist() == [True, True, False, True, True, False, True]


@pytest.mark.parametrize("case", list(wrapped_cases()), ids=repr)
def test_wrapper_over_every_base(case: Case):
    logits, labels = mixed(case.views, rows=5)
    value, gradient = value_and_gradient(case.build(), logits, labels)
    expected = case.mean(logits.tolist(), labels.tolist())
    torch.testing.assert_close(value.item(), expected, **TOLERANCE)
    torch.testing.assert_close(gradient, case.gradient(logits, labels), rtol=1e-7, atol=1e-9)
