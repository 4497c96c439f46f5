"""Image and feature models: shapes, sizes, heads with feature maps, standardisation, errors."""

import numpy as np
import pytest
import torch
from torch import nn

from halftruth.models import (
    ModelError,
    build_feature_model,
    build_image_model,
    set_standardization,
    transfer_head,
)

# A plain one, one with a layer after pooling, one with tokens, and one with channels last.
BACKBONES = ["test_resnet", "mobilenetv3_small_050", "test_vit", "test_mambaout"]


@pytest.fixture(scope="module")
def features() -> torch.Tensor:
    g = torch.Generator().manual_seed(0)
    return 50 + 7 * torch.randn(200, 6, generator=g)


@pytest.mark.parametrize("name", BACKBONES)
def test_forward_is_the_head_on_pooled_features(name):
    model = build_image_model(name, 3, weights="none").eval()
    size = model.image_size
    x = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        pooled = model.features(x)
        assert pooled.shape == (2, model.feature_dim)
        assert torch.equal(model(x), model.head(pooled))
        assert model(x).shape == (2, 3)
    assert model.num_classes == 3


def test_preparation_of_images_comes_from_the_backbone():
    model = build_image_model("test_efficientnet", 2, weights="none")
    assert model.image_size == 160
    assert model.mean == (0.485, 0.456, 0.406)
    assert model.std == (0.229, 0.224, 0.225)


@pytest.mark.parametrize("name", ["test_resnet", "test_vit"])
def test_another_image_size_reaches_the_backbone(name):
    model = build_image_model(name, 2, weights="none", image_size=64)
    assert model.image_size == 64
    assert model(torch.zeros(2, 3, 64, 64)).shape == (2, 2)


def test_drop_path_and_dropout_act_in_training_only():
    model = build_image_model("test_resnet", 2, weights="none", dropout=0.5, drop_path=0.3)
    x = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert model.head.dropout.p == 0.5
    assert any(type(module).__name__ == "DropPath" for module in model.backbone.modules())
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))


def test_a_map_head_gets_the_feature_map_and_its_channels():
    model = build_image_model("mobilenetv3_small_050", 3, weights="none", head="boostlu").eval()
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = model.head(model.backbone.forward_features(x))
        assert torch.equal(model(x), expected)
        assert model.features(x).shape == (2, model.feature_dim)
    assert model.head.conv.in_channels != model.feature_dim, "the case where the two differ"


@pytest.mark.parametrize("name", ["test_vit", "test_mambaout"])
def test_a_map_head_on_a_backbone_without_channel_maps_is_refused(name):
    with pytest.raises(ModelError, match=f"needs a backbone with feature maps.*{name} gives"):
        build_image_model(name, 3, weights="none", head="boostlu")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"backbone": "test_resnett"}, "did you mean 'test_resnet'"),
        ({"backbone": "resnet50.a9_in1k"}, "no weights tagged 'a9_in1k'; the tags are.*'a1_in1k'"),
        ({"backbone": "vgg11", "drop_path": 0.1}, "vgg11 does not take drop_path"),
        ({"backbone": "test_mambaout", "weights": "pretrained"}, "no pretrained weights"),
        ({"weights": "nowhere.pth"}, "no such file of weights; give a file, 'pretrained' or"),
        ({"image_size": 0}, "at least 1, got 0"),
        ({"head": "liner"}, "did you mean 'linear'"),
        ({"num_classes": 0}, "num_classes of at least 1"),
    ],
)
def test_models_that_cannot_be_built_are_refused(call, message):
    arguments = {"backbone": "test_resnet", "num_classes": 2, "weights": "none", **call}
    with pytest.raises(ValueError, match=message):
        build_image_model(**arguments)


def test_no_network_is_reported_at_once(monkeypatch, tmp_path):
    import socket

    from huggingface_hub import constants

    def offline(*_: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(socket, "getaddrinfo", offline)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match=r"no network to download.* a weights file"):
        build_image_model("test_resnet", 2)


@pytest.mark.parametrize("hidden", [0, 5])
def test_a_feature_model_standardises_then_applies_its_layers(hidden, features):
    model = build_feature_model(6, 3, hidden=hidden)
    set_standardization(model, features)
    x = features.double().numpy()
    expected = (x - x.mean(0)) / x.std(0)
    if hidden:
        layer = model.backbone[1]
        expected = expected @ layer.weight.detach().double().numpy().T
        expected = np.maximum(expected + layer.bias.detach().double().numpy(), 0)
    got = model.features(features).detach().double().numpy()
    np.testing.assert_allclose(got, expected, atol=1e-4)
    assert model.feature_dim == got.shape[1]
    assert torch.equal(model(features), model.head(model.features(features)))
    assert (model.image_size, model.mean, model.std) == (0, (), ())


def test_constant_columns_are_only_centred(features):
    features = features.clone()
    features[:, 1], features[:, 2], features[:, 3] = 0.0, 1e6 / 3, -0.1
    features[:, 4] = 1e-20 * torch.arange(200)
    model = build_feature_model(6, 2)
    set_standardization(model, features)
    out = model.features(features)
    assert out.isfinite().all()
    assert out[:, 1:4].abs().max() == 0
    assert abs(out[:, 4].std(correction=0) - 1) < 1e-5, "small is not constant"


def test_standardisation_does_not_depend_on_the_number_of_repeats(features):
    many = features.repeat(100, 1)
    model, other = build_feature_model(6, 2), build_feature_model(6, 2)
    set_standardization(model, features)
    set_standardization(other, many)
    torch.testing.assert_close(model.backbone[0].std, other.backbone[0].std, rtol=1e-6, atol=0)
    torch.testing.assert_close(model.backbone[0].mean, other.backbone[0].mean, rtol=1e-6, atol=0)


def test_standardisation_is_saved_with_the_model(features):
    model = build_feature_model(6, 2, mean=features.mean(0), std=features.std(0))
    other = build_feature_model(6, 2)
    other.load_state_dict(model.state_dict())
    assert torch.equal(model(features), other(features))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean": [0.0, 1.0]}, "expected 6 values of mean"),
        ({"std": [1.0] * 5 + [-1.0]}, "none below 0"),
        ({"mean": [float("nan")] * 6}, "finite values of mean"),
    ],
)
def test_impossible_standardisation_is_refused(options, message):
    with pytest.raises(ModelError, match=message):
        build_feature_model(6, 2, **options)


def test_standardisation_needs_a_feature_model_and_matching_columns(features):
    with pytest.raises(ModelError, match=r"expected \(N, 4\) features, got \(200, 6\)"):
        set_standardization(build_feature_model(4, 2), features)
    with pytest.raises(ModelError, match="build_feature_model"):
        set_standardization(build_image_model("test_resnet", 2, weights="none"), features)


def test_a_transferred_head_returns_the_same_logits():
    image_model = build_image_model("test_resnet", 4, weights="none").eval()
    x = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features = image_model.features(x)
        trained = build_feature_model(image_model.feature_dim, 4)
        set_standardization(trained, features)
        nn.init.normal_(trained.head.linear.weight)
        nn.init.normal_(trained.head.linear.bias)
        transfer_head(trained, image_model)
        torch.testing.assert_close(image_model(x), trained(features), rtol=1e-4, atol=1e-4)


def test_a_head_that_does_not_fit_is_not_transferred():
    image_model = build_image_model("test_resnet", 4, weights="none")
    dim = image_model.feature_dim
    with pytest.raises(ModelError, match=r"\(4, 96\) \(classes, features\), got \(5, 96\)"):
        transfer_head(build_feature_model(dim, 5), image_model)
    with pytest.raises(ModelError, match="without a hidden layer"):
        transfer_head(build_feature_model(dim, 4, hidden=8), image_model)
