"""Training passes replayed as CUDA graphs: on a GPU against the model, elsewhere by a stand-in."""

import gc
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from halftruth.models import build_image_model, freeze_batchnorm
from halftruth.train.graphs import SEEN, Replayed


def frozen_model(device: str) -> nn.Module:
    torch.manual_seed(0)
    model = build_image_model("resnet18", 3, weights="none", image_size=64)
    freeze_batchnorm(model)
    return model.to(device).train()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_replay_is_the_model_whatever_happens_to_other_memory() -> None:
    """Scales of folded batch norms belong to the graph: freed, others would write over them."""
    model = frozen_model("cuda")
    replayed = Replayed(model, model, None)
    x = torch.randn(4, 3, 64, 64, device="cuda")
    for _ in range(SEEN + 1):
        replayed(x).sum().backward()
    assert replayed.replay is not None
    gc.collect()
    torch.cuda.empty_cache()
    litter = [torch.full((size,), torch.nan, device="cuda") for size in (64, 128, 256, 512) * 200]
    for _ in range(3):
        x = torch.randn(4, 3, 64, 64, device="cuda")
        ours = replayed(x)
        model.zero_grad()
        ours.sum().backward()
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        model.zero_grad()
        theirs = model(x)
        theirs.sum().backward()
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
        expected = [p.grad for p in model.parameters() if p.grad is not None]
        for a, b in zip(gradients, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-3 * float(b.abs().max()))
    assert litter


def test_what_a_capture_reads_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def capture(body: nn.Module, example: tuple[Tensor, ...]) -> Any:
        convs = [m for m in body.modules() if isinstance(m, nn.Conv2d)]
        seen.append([conv.forward.args for conv in convs])  # type: ignore[attr-defined]
        return body

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", capture)
    model = frozen_model("cpu")
    replayed = Replayed(model, model, None)
    for _ in range(SEEN + 1):
        replayed(torch.randn(2, 3, 64, 64))
    (folded,) = seen
    assert len(folded) == len(replayed.kept) == 20
    assert all(
        any(scale is kept for kept, _ in replayed.kept)
        and any(shift is kept for _, kept in replayed.kept)
        for _, scale, shift in folded
    )
    assert not any("forward" in module.__dict__ for module in model.modules())
