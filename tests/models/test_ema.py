"""The average against the formula in loops, its state, and the models it must cope with."""

import copy

import pytest
import torch
from torch import nn

from halftruth.models import EMA, ModelError, build_image_model


class Small(nn.Module):
    """A parameter of each kind: tied, float and integer buffers, a buffer that is not saved."""

    counter: torch.Tensor
    scratch: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("counter", torch.zeros(2, dtype=torch.int64))
        self.register_buffer("scratch", torch.zeros(1), persistent=False)


@pytest.fixture
def model() -> Small:
    torch.manual_seed(0)
    return Small()


def move(model: nn.Module, step: int) -> None:
    """Change every tensor, as a training step would."""
    g = torch.Generator().manual_seed(step)
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                tensor.add_(torch.randn(tensor.shape, generator=g).to(tensor.dtype))
            else:
                tensor.add_(step)


@pytest.mark.parametrize("warmup", [True, False])
def test_updates_equal_the_formula_in_loops(model, warmup):
    ema = EMA(model, decay=0.6, warmup=warmup)
    expected = {k: v.double().clone() for k, v in model.state_dict().items()}
    for t in range(12):
        move(model, t + 1)
        ema.update(model)
        decay = min(0.6, (1 + t) / (10 + t)) if warmup else 0.6
        for key, value in model.state_dict().items():
            if value.is_floating_point():
                expected[key] = decay * expected[key] + (1 - decay) * value.double()
            else:
                expected[key] = value.double().clone()
    assert ema.updates == 12
    for key, value in ema.module.state_dict().items():
        torch.testing.assert_close(value.double(), expected[key], rtol=1e-5, atol=1e-6)
    assert torch.equal(ema.module.counter, model.counter)
    assert ema.module.scratch.item() != 0, "buffers that are not saved are followed too"


def test_the_default_warms_up_to_its_decay(model):
    ema = EMA(model)
    assert ema.current_decay() == 0.1
    ema.updates = 100_000
    assert ema.current_decay() == 0.9997


def test_the_shadow_is_apart_from_the_model_and_for_evaluation(model):
    before = copy.deepcopy(model.state_dict())
    ema = EMA(model.train())
    move(model, 1)
    for key, value in ema.module.state_dict().items():
        assert torch.equal(value, before[key])
    assert not any(module.training for module in ema.module.modules())
    assert not any(p.requires_grad for p in ema.module.parameters())
    assert model.training
    assert all(p.requires_grad for p in model.parameters())
    assert ema.module.second.weight is ema.module.first.weight


def test_equal_weights_stay_bitwise_equal(model):
    ema = EMA(model)
    for _ in range(5):
        ema.update(model)
    for key, value in ema.module.state_dict().items():
        assert torch.equal(value, model.state_dict()[key])


def test_half_precision_models_are_averaged_in_float32(model):
    model = model.to(torch.bfloat16)
    ema = EMA(model, decay=0.999, warmup=False)
    start = model.first.bias.detach().float().clone()
    with torch.no_grad():
        model.first.bias.add_(1)
    for _ in range(50):
        ema.update(model)
    assert ema.module.first.bias.dtype == torch.float32
    step = model.first.bias.detach().float() - start
    expected = start + step * (1 - 0.999**50)
    torch.testing.assert_close(ema.module.first.bias, expected, rtol=1e-5, atol=1e-5)


def test_a_resumed_average_continues_bit_for_bit(model):
    ema = EMA(model, decay=0.9)
    for step in range(3):
        move(model, step)
        ema.update(model)
    state = {key: value.clone() for key, value in ema.state_dict().items()}
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    resumed = EMA(model, decay=0.9)
    resumed.load_state_dict(state)
    assert resumed.updates == 3
    # A buffer that is not saved is computed again by its module.
    resumed.module.scratch.copy_(ema.module.scratch)
    move(model, 9)
    ema.update(model)
    resumed.update(model)
    for key, value in ema.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[key])


def test_a_state_of_another_model_is_refused_and_changes_nothing(model):
    ema = EMA(model)
    before = {key: value.clone() for key, value in ema.state_dict().items()}
    with pytest.raises(ModelError, match="belongs to another model:\n  none of its names"):
        ema.load_state_dict(EMA(nn.Linear(2, 2)).state_dict())
    with pytest.raises(ModelError, match="the state of an EMA"):
        ema.load_state_dict(model.state_dict())
    for key, value in ema.state_dict().items():
        assert torch.equal(value, before[key])


def test_wrapped_models_are_followed(model):
    compiled = torch.compile(model, backend="eager")
    ema = EMA(compiled, decay=0.5, warmup=False)
    assert list(ema.module.state_dict()) == list(model.state_dict())
    start = model.first.bias.detach().clone()
    move(model, 1)
    ema.update(compiled)
    expected = (start + model.first.bias.detach()) / 2
    torch.testing.assert_close(ema.module.first.bias, expected)


def test_the_average_of_a_classifier_returns_logits():
    model = build_image_model("test_resnet", 3, weights="none")
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    ema = EMA(model).to("cpu")
    torch.testing.assert_close(ema.module(x), model.eval()(x))


@pytest.mark.parametrize("decay", [1.0, -0.1])
def test_decays_out_of_range_are_refused(model, decay):
    with pytest.raises(ValueError, match="0 <= decay < 1"):
        EMA(model, decay=decay)


def test_a_weight_in_a_tensor_gives_the_same_average() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    plain, graphed = EMA(model, decay=0.8), EMA(model, decay=0.8)
    for _ in range(5):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter))
        model(torch.randn(6, 3))
        plain.update(model)
        graphed.follow(model, torch.tensor(graphed.next_weight()))
    for (name, a), b in zip(plain.state_dict().items(), graphed.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, msg=name)
