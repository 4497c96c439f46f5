"""Extreme logits and batches: values stay finite, gradients do not vanish."""

import pytest
import torch

from halftruth import losses
from halftruth.losses._engine import one_pass
from loss_batches import every_method, fresh, mixed, value_and_gradient

SIZES = (0.0, 1e-8, 1.0, 30.0, 88.0, 104.0, 1e4)
LARGEST = {torch.float16: 6e4, torch.bfloat16: 1e30, torch.float32: 1e30, torch.float64: 1e30}
DTYPES = list(LARGEST)


def extreme_logits(dtype: torch.dtype, views: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """One row per label; the columns have all sizes with both signs."""
    sizes = torch.tensor([*SIZES, LARGEST[dtype]], dtype=torch.float64)
    row = torch.cat([-sizes.flip(0), sizes]).to(dtype)
    labels = torch.tensor([-1, 0, 1]).unsqueeze(1).expand(3, len(row))
    logits = row.expand(3, -1)
    if views > 1:
        logits = torch.stack([logits.roll(k, dims=1) for k in range(views)])
    return logits, labels


@every_method()
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_finite_and_as_exact_as_float64(name, dtype, reduction):
    _, labels = extreme_logits(dtype)
    loss = fresh(name, labels, reduction=reduction)
    logits, labels = extreme_logits(dtype, loss.views)
    value, gradient = value_and_gradient(loss, logits, labels)
    assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert gradient.dtype == dtype
    assert value.isfinite().all()
    assert gradient.isfinite().all()
    exact, exact_gradient = value_and_gradient(loss, logits.double(), labels)
    torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-6)
    close = {torch.float16: 1e-3, torch.bfloat16: 8e-3}.get(dtype, 1e-5)
    # A slope counts from a float32 rounding of the largest one on, and from half's smallest number.
    least = max(1e-7 * exact_gradient.abs().max().item(), 6e-8 if dtype == torch.float16 else 0)
    torch.testing.assert_close(gradient.double(), exact_gradient, rtol=close, atol=least)


@every_method()
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_gradient_is_lost(name, dtype):
    """Where float64 sees a slope worth a float32 rounding, no precision gives exactly zero."""
    _, labels = extreme_logits(dtype)
    loss = fresh(name, labels, reduction="sum")
    logits, labels = extreme_logits(dtype, loss.views)
    _, gradient = value_and_gradient(loss, logits, labels)
    _, exact = value_and_gradient(loss, logits.double(), labels)
    assert (gradient[exact.abs() > 1e-7] != 0).all()


PRESENT_LOG = ["an-ls", "asl", "bce", "em", "entmin", "epr", "focal", "focal-margin"]
PRESENT_LOG += ["gr", "hill", "las", "lasd", "ll-ct", "ll-r", "splc", "wan"]


@pytest.mark.parametrize("name", PRESENT_LOG)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("z", [-30.0, -104.0, -1e4])
def test_a_confident_miss_keeps_its_full_gradient(name, dtype, z):
    """Guarded logarithms would remove it: cross-entropy has -1/(B K)."""
    labels = torch.tensor([[1, -1, -1], [-1, -1, -1]])
    logits = torch.tensor([[z, -5.0, -5.0], [-5.0, -5.0, -5.0]], dtype=dtype)
    _, gradient = value_and_gradient(fresh(name, labels), logits, labels)
    full = 0.9 if name == "an-ls" else 1.0
    assert gradient[0, 0].item() == pytest.approx(-full / 6, rel=1e-2)


@pytest.mark.parametrize("name", ["bce", "focal", "wan", "em", "splc"])
def test_a_nearly_certain_prediction_has_a_gradient(name):
    """The slope of -log p at z = 30 is -1e-13, far below the rounding of 1 - p in float32."""
    loss = losses.create(name, reduction="sum")
    labels = torch.ones(1, 1)
    _, gradient = value_and_gradient(loss, torch.full((1, 1), 12.0), labels)
    _, exact = value_and_gradient(loss, torch.full((1, 1), 12.0, dtype=torch.float64), labels)
    torch.testing.assert_close(gradient.double(), exact, rtol=1e-5, atol=0)


@every_method()
@pytest.mark.parametrize("label", [-1, 0, 1], ids=["all-absent", "all-unknown", "all-present"])
@pytest.mark.parametrize("shape", [(4, 6), (1, 1), (5, 1), (1, 7)], ids=str)
def test_batches_with_one_kind_of_label(name, label, shape):
    labels = torch.full(shape, label)
    for reduction in losses.base.REDUCTIONS:
        loss = fresh(name, labels, reduction=reduction)
        logits, _ = mixed(loss.views, *shape)
        value, gradient = value_and_gradient(loss, logits, labels)
        assert value.isfinite().all()
        assert gradient.isfinite().all()
        assert gradient.shape == logits.shape


@every_method()
@pytest.mark.parametrize("reduction", losses.base.REDUCTIONS)
def test_empty_batch(name, reduction):
    loss = fresh(name, torch.ones(3, 5), reduction=reduction)
    shape = (0, 5) if loss.views == 1 else (loss.views, 0, 5)
    value, gradient = value_and_gradient(loss, torch.zeros(shape), torch.zeros(0, 5))
    if reduction == "none":
        assert value.shape == ((0,) if loss.couples_rows else (0, 5))
    else:
        assert value.item() == 0
    assert gradient.shape == shape


@every_method()
def test_one_class(name):
    logits, labels = mixed(rows=6, classes=1)
    loss = fresh(name, labels)
    logits = logits if loss.views == 1 else torch.stack([logits, -logits, logits + 1][: loss.views])
    value, gradient = value_and_gradient(loss, logits, labels)
    assert value.isfinite()
    assert gradient.isfinite().all()


@every_method()
def test_first_and_last_epoch(name):
    logits, labels = mixed()
    loss = fresh(name, labels)
    logits = logits if loss.views == 1 else torch.stack([logits, -logits, logits + 1][: loss.views])
    for epoch, epochs in ((0, 1), (0, 8), (7, 8), (9999, 10000)):
        loss.start_epoch(epoch, epochs)
        value, gradient = value_and_gradient(loss, logits, labels)
        assert value.isfinite()
        assert gradient.isfinite().all()


def test_a_mean_of_huge_values_is_huge_but_finite(monkeypatch):
    """The blocks of a batch are summed in float64."""
    monkeypatch.setattr(one_pass, "BLOCK", 20)
    logits, labels = torch.full((640, 10), -1e37), torch.ones(640, 10)
    assert losses.create("bce")(logits, labels).item() == pytest.approx(1e37, rel=1e-5)


@pytest.mark.parametrize("name", ["bce", "asl", "hill", "gr", "splc", "em", "lasd", "any-class"])
def test_a_nan_logit_gives_a_nan_loss(name):
    logits, labels = mixed()
    logits[5, 3] = torch.nan
    value, gradient = value_and_gradient(losses.create(name), logits, labels)
    assert value.isnan()
    assert gradient[5, 3].isnan()
