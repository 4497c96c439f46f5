"""Frozen batch norms folded into convolutions: the same network, and nothing left behind."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from halftruth.models import build_image_model, freeze_batchnorm
from halftruth.models.folding import folded


def some_statistics(model: nn.Module) -> None:
    """Batch norms as training leaves them, far from the identity."""
    for norm in model.modules():
        if isinstance(norm, _BatchNorm):
            norm.running_mean.normal_(0, 0.1)
            norm.running_var.uniform_(0.5, 2)
            norm.weight.data.uniform_(0.5, 1.5)
            norm.bias.data.normal_(0, 0.1)


def outputs_and_gradients(model: nn.Module, x: Tensor) -> list[Tensor]:
    model.zero_grad()
    out = model(x)
    out.square().sum().backward()
    return [out.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize(("name", "norms"), [("tf_efficientnet_lite0", 49), ("resnet18", 20)])
def test_a_folded_network_has_the_same_outputs_and_gradients(name: str, norms: int) -> None:
    torch.manual_seed(0)
    model = build_image_model(name, 3, weights="none", image_size=64).double()
    some_statistics(model)
    freeze_batchnorm(model)
    model.train()
    x = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    plain = outputs_and_gradients(model, x)
    with folded(model, x) as scales:
        inside = outputs_and_gradients(model, x)
    assert len(scales) == norms
    assert len(inside) == len(plain)
    for ours, theirs in zip(inside, plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9 * float(theirs.abs().max()))
    after = outputs_and_gradients(model, x)
    assert all(torch.equal(a, b) for a, b in zip(after, plain, strict=True))


class Branch(nn.Module):
    """A convolution whose output others read, too."""

    def __init__(self, again: bool) -> None:
        super().__init__()
        self.conv, self.norm, self.again = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), again

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv(x)
        return self.norm(out) + out if self.again else self.norm(out)


@pytest.mark.parametrize(("again", "frozen", "count"), [(0, 1, 1), (1, 1, 0), (0, 0, 0)])
def test_pairs_that_are_not_safe_are_not_folded(again: int, frozen: int, count: int) -> None:
    torch.manual_seed(0)
    model = Branch(bool(again))
    some_statistics(model)
    if frozen:
        freeze_batchnorm(model)
    x = torch.randn(2, 3, 8, 8)
    with folded(model, x) as scales:
        assert len(scales) == count
        assert ("forward" in model.conv.__dict__) == bool(count)
    assert "forward" not in model.conv.__dict__
    assert model.norm.training != bool(frozen)
