"""Parameter groups have every parameter once; frozen parts do not change."""

import copy

import pytest
import torch
from torch import nn

from halftruth.models import (
    Classifier,
    apply_frozen,
    build_feature_model,
    build_image_model,
    freeze_backbone,
    freeze_batchnorm,
    parameter_groups,
    unfreeze,
)


def image_model(name: str = "test_resnet", **options: object) -> Classifier:
    torch.manual_seed(0)
    return build_image_model(name, 3, weights="none", **options)  # type: ignore[arg-type]


def train_a_little(model: Classifier) -> None:
    """Two steps with rates and decay large enough to move whatever can move."""
    optimizer = torch.optim.SGD(parameter_groups(model, 0.1, 0.1, 0.1))
    model.train()
    x = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    for _ in range(2):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def changed(model: nn.Module, before: dict[str, torch.Tensor]) -> set[str]:
    return {
        key for key, tensor in model.state_dict().items() if not torch.equal(tensor, before[key])
    }


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(lambda: image_model("test_resnet"), id="resnet"),
        pytest.param(lambda: image_model("test_vit"), id="vit"),
        pytest.param(lambda: image_model("test_resnet", head="boostlu"), id="boostlu"),
        pytest.param(lambda: build_feature_model(5, 3, hidden=4), id="features"),
    ],
)
def test_groups_hold_every_parameter_exactly_once(model):
    model = model()
    groups = parameter_groups(model, 1e-4, 1e-3, 0.05)
    held = [id(p) for group in groups for p in group["params"]]
    assert len(held) == len(set(held))
    assert set(held) == {id(p) for p in model.parameters()}
    names = {id(p): name for name, p in model.named_parameters()}
    for group in groups:
        part, kind = group["name"].split("/")
        assert group["lr"] == {"backbone": 1e-4, "head": 1e-3}[part]
        assert group["weight_decay"] == {"decay": 0.05, "no-decay": 0.0}[kind]
        for p in group["params"]:
            assert names[id(p)].startswith(f"{part}.")
            embeds = names[id(p)].endswith(("pos_embed", "cls_token", "reg_token"))
            assert (p.ndim > 1 and not embeds) == (kind == "decay"), names[id(p)]
    torch.optim.AdamW(groups)


def test_frozen_parameters_and_empty_groups_are_left_out():
    model = image_model()
    freeze_backbone(model)
    groups = parameter_groups(model, 1e-4, 1e-3, 0.05)
    assert [group["name"] for group in groups] == ["head/decay", "head/no-decay"]


def test_training_with_a_frozen_backbone_moves_only_the_head():
    model = image_model(drop_path=0.5)
    freeze_backbone(model)
    before = copy.deepcopy(model.state_dict())
    train_a_little(model)
    assert changed(model, before) == {"head.linear.weight", "head.linear.bias"}
    x = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    assert torch.equal(model.features(x), model.features(x)), "no drop-path either"


def test_frozen_batch_norms_keep_statistics_and_scales_while_the_rest_trains():
    model = image_model()
    freeze_batchnorm(model)
    before = copy.deepcopy(model.state_dict())
    train_a_little(model)
    norms = {
        f"{name}.{key}"
        for name, module in model.named_modules()
        if isinstance(module, nn.BatchNorm2d)
        for key in module.state_dict()
    }
    assert norms
    assert changed(model, before) == set(before) - norms


def test_freezing_survives_train_copies_and_wrappers():
    model = image_model()
    freeze_batchnorm(model)
    wrapped = nn.Sequential(copy.deepcopy(model))
    wrapped.eval().train()
    norms = [m for m in wrapped.modules() if isinstance(m, nn.BatchNorm2d)]
    assert norms
    assert not any(norm.training for norm in norms)
    assert wrapped[0].training
    assert wrapped[0].backbone.training


def test_apply_frozen_works_on_any_module():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    freeze_batchnorm(model)
    model.train()
    assert model[1].training
    apply_frozen(model)
    assert not model[1].training
    assert model[0].training


def test_unfreezing_restores_the_parameters_that_trained_before():
    model = image_model()
    never = model.backbone.conv1[0].weight
    never.requires_grad_(False)
    freeze_batchnorm(model)
    freeze_backbone(model)
    freeze_backbone(model)
    model.train()
    assert not any(p.requires_grad for p in model.backbone.parameters())
    unfreeze(model)
    assert all(module.training for module in model.modules())
    assert [p is never for p in model.parameters() if not p.requires_grad] == [True]
    model.eval().train()
    assert all(module.training for module in model.modules())
