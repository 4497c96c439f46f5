"""Training steps replayed as CUDA graphs against plain steps, on a GPU or with a stand-in."""

import gc
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from halftruth import fit, losses
from halftruth.models import Classifier, build_image_model, freeze_batchnorm
from halftruth.models.cuda_graphs import STEPS_BEFORE_CAPTURE, Captured, Passes, ShapeCounter
from halftruth.train.config import Config
from halftruth.train.devices import make_accelerator
from halftruth.train.step import Learner, Update, make_optimizer, scale_rates

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
STEPS = 4 * STEPS_BEFORE_CAPTURE


def frozen_model(device: str = "cpu", backbone: str = "resnet18") -> Classifier:
    torch.manual_seed(0)
    model = build_image_model(backbone, 3, weights="none", image_size=64)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            # Zero in new models, which would remove their branches.
            nn.init.uniform_(module.weight, 0.5, 1.0)
    freeze_batchnorm(model)
    model.to(device).train()
    return model


def new_learner(
    replay: bool, loss: str = "wan", model: Classifier | None = None, **changes: Any
) -> Learner:
    config = Config(precision="no", ema=0.9, **changes)
    accelerator = make_accelerator(config)
    options = {
        "role": {"expected_positives": 1.5},
        "consistency": {"base": "lasd", "weight": 0.1},
    }.get(loss, {})
    loss_ = losses.create(loss, **options).to(accelerator.device)
    loss_.begin(some_labels(accelerator.device))
    loss_.start_epoch(0, 1)
    return Learner(model or frozen_model(), loss_, accelerator, config, 1e-3, 1e-2, replay=replay)


def some_labels(device: torch.device) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    return (torch.rand(8, 3, generator=draw) < 0.3).to(device, torch.int8)


def trained(learner: Learner) -> Tensor:
    """The losses of some steps; the last one and one in the middle have smaller batches."""
    device, dtype = learner.accelerator.device, next(learner.model.parameters()).dtype
    labels, draw = some_labels(device), torch.Generator().manual_seed(1)
    values = []
    for step in range(STEPS):
        rows = 5 if step in (STEPS // 2, STEPS - 1) else 8
        x = torch.randn(learner.loss.views * rows, 3, 64, 64, generator=draw).to(device, dtype)
        index = torch.arange(rows, device=device)
        values.append(learner.step(x, labels[:rows], index, 1.0, rate=1 - step / STEPS))
    return torch.stack(values)


def compare(ours: Learner, theirs: Learner, tolerance: float) -> None:
    values, expected = trained(ours), trained(theirs)
    torch.testing.assert_close(values, expected, rtol=tolerance, atol=tolerance / 20)
    for a, b in zip(ours.evaluated.parameters(), theirs.evaluated.parameters(), strict=True):
        assert (a - b).norm() < tolerance * b.norm().clamp_min(1e-3)
    assert ours.ema is not None
    assert theirs.ema is not None
    assert ours.ema.updates == theirs.ema.updates == STEPS


@pytest.mark.parametrize("loss", ["wan", "role", "consistency"])
def test_replayed_steps_equal_plain_steps_without_a_gpu(
    loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything but the capture, on any device; float64, since Adam is sensitive to rounding."""
    monkeypatch.setattr(Passes, "_capture", stand_in)
    monkeypatch.setattr(Captured, "_capture", lambda *_: None)
    models = [frozen_model(backbone="test_resnet").double() for _ in range(2)]
    ours, theirs = (new_learner(False, loss, model, device="cpu") for model in models)
    ours.passes = Passes(ours.model, None)
    ours.update.move_to_device()
    compare(ours, theirs, 1e-5)
    assert ours.passes.graphs is not None


class GraphStandIn:
    """A stand-in for a CUDA graph."""

    def __init__(self, call: Any) -> None:
        self.replay = call


def stand_in(passes: Passes, x: Tensor) -> None:
    """Passes of the model that write to fixed tensors."""
    passes.weights = [p for p in passes.model.parameters() if p.requires_grad]
    passes.x, passes.gradients = x.clone(), [torch.zeros_like(w) for w in passes.weights]
    logits = passes.model(x)
    passes.logits, passes.upstream = logits.detach().clone(), torch.zeros_like(logits)
    out: list[Tensor] = []

    def forward() -> None:
        out.append(passes.model(passes.x))
        passes.logits.copy_(out[0].detach())

    def backward() -> None:
        found = passes._gradients(out.pop(), passes.upstream)
        torch._foreach_copy_(passes.gradients, found)

    passes.graphs = (GraphStandIn(forward), GraphStandIn(backward))


@on_gpu
@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "adam"},
        {"optimizer": "adamw"},
        {"optimizer": "sgd"},
        {"clip": 0.5},
        {"loss": "role"},
        {"loss": "consistency"},
        {"l1": 1e-5},
    ],
    ids=str,
)
def test_replayed_steps_equal_plain_steps(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Sums of cuDNN in any order, times the sensitivity of Adam, would hide what is compared.
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    ours, theirs = new_learner(True, **changes), new_learner(False, **changes)
    compare(ours, theirs, 2e-2)
    if "l1" not in changes:
        assert ours.passes is not None
        assert ours.passes.graphs is not None
        assert ours.update.is_captured == ("role" not in changes.values())


@on_gpu
def test_a_replay_does_not_read_freed_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The graph reads the scales of folded batch norms, so they must not be freed."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    model = frozen_model("cuda")
    passes = Passes(model, None)
    x = torch.randn(4, 3, 64, 64, device="cuda")
    assert [passes.can_replay(x) for _ in range(STEPS_BEFORE_CAPTURE + 2)] == [
        False
    ] * STEPS_BEFORE_CAPTURE + [True, True]
    gc.collect()
    torch.cuda.empty_cache()
    litter = [torch.full((size,), torch.nan, device="cuda") for size in (64, 128, 256, 512) * 200]
    for _ in range(3):
        x = torch.randn(4, 3, 64, 64, device="cuda")
        ours = passes.forward(x)
        passes.backward(torch.ones_like(ours))
        theirs = model(x)
        model.zero_grad()
        theirs.sum().backward()
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
        for weight, gradient in zip(passes.weights, passes.gradients, strict=True):
            assert weight.grad is not None
            assert gradient is not None
            # Not entry by entry: where rounding turns a ReLU on, single entries differ.
            assert (gradient - weight.grad).norm() <= 1e-2 * weight.grad.norm()
    assert litter


@on_gpu
def test_a_function_is_captured_for_the_shape_that_recurs() -> None:
    calls = []

    def doubled(x: Tensor) -> Tensor:
        calls.append(len(x))
        return 2 * x

    captured = Captured(doubled)
    for step in range(8):
        x = torch.full((3,), float(step), device="cuda")
        assert captured(x).tolist() == [2.0 * step] * 3
    assert captured(torch.ones(2, device="cuda")).tolist() == [2.0, 2.0]
    assert calls == [3] * (STEPS_BEFORE_CAPTURE + 1) + [2]


def test_a_shape_is_due_once_after_recurring_often_enough() -> None:
    shapes = ShapeCounter()
    assert [shapes.is_due(s) for s in "abaaaaaabbbbbb"] == [False] * 5 + [True] + [False] * 8


def test_tensors_that_a_capture_reads_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def capture(passes: Passes, _: Tensor) -> None:
        convs = [m for m in passes.model.modules() if isinstance(m, nn.Conv2d)]
        seen.append([conv.forward.args for conv in convs])  # type: ignore[attr-defined]

    monkeypatch.setattr(Passes, "_capture", capture)
    model = frozen_model("cpu")
    passes = Passes(model, None)
    for _ in range(STEPS_BEFORE_CAPTURE + 1):
        assert not passes.can_replay(torch.randn(2, 3, 64, 64))
    (folded,) = seen
    assert len(folded) == len(passes.kept) == 20
    assert all(
        any(scale is kept for kept, _ in passes.kept)
        and any(shift is kept for _, kept in passes.kept)
        for _, scale, shift in folded
    )
    assert not any("forward" in module.__dict__ for module in model.modules())


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_rates_on_the_device_are_scaled_in_place(name: str) -> None:
    weights = [nn.Parameter(torch.ones(3)) for _ in range(2)]
    groups = [
        {"params": [w], "lr": lr, "full_lr": lr} for w, lr in zip(weights, (0.5, 0.25), strict=True)
    ]
    optimizer = make_optimizer(name, groups, torch.device("cpu"))
    Update(
        nn.Module(), optimizer, None, 0.0, make_accelerator(Config(device="cpu"))
    ).move_to_device()
    places = [group["lr"] for group in optimizer.param_groups]
    scale_rates(optimizer, 0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.125]
    assert all(a is g["lr"] for a, g in zip(places, optimizer.param_groups, strict=True))


def test_learning_rates_on_the_device_are_recorded_as_numbers(
    on_features: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = Learner.__init__

    def on_device(self: Learner, *given: Any, **named: Any) -> None:
        prepared(self, *given, **named)
        self.update.move_to_device()

    plain = fit(**on_features, out=tmp_path / "plain", quiet=True)
    monkeypatch.setattr(Learner, "__init__", on_device)
    result = fit(**on_features, out=tmp_path / "device", quiet=True)
    lines = [(tmp_path / name / "metrics.jsonl").read_text() for name in ("plain", "device")]
    rates = [[json.loads(line)["lr"] for line in text.splitlines()] for text in lines]
    assert rates[1] == pytest.approx(rates[0], rel=1e-6)
    assert result.best_score == pytest.approx(plain.best_score, rel=1e-3)
