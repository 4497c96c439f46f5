"""Weights from files: kinds of files, conversions, and messages where they do not fit."""

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from halftruth.models import ModelError, build_image_model, import_timm

State = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def published() -> State:
    """The state of a complete model, with its old classifier and random values."""
    torch.manual_seed(7)
    state = import_timm().create_model("test_resnet", num_classes=10).state_dict()
    return {k: torch.rand(v.shape) if v.is_floating_point() else v for k, v in state.items()}


def build(path: Path, name: str = "test_resnet", **options: object) -> torch.nn.Module:
    return build_image_model(name, 3, weights=path, **options)  # type: ignore[arg-type]


def check(model: torch.nn.Module, published: State, **tolerance: float) -> None:
    for key, tensor in model.backbone.state_dict().items():
        torch.testing.assert_close(tensor, published[key], **(tolerance or {"rtol": 0, "atol": 0}))
        assert tensor.dtype in (torch.float32, torch.int64)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".pt", ".bin"])
def test_every_kind_of_file_fills_the_backbone_without_its_old_classifier(
    suffix, published, tmp_path
):
    path = tmp_path / f"weights{suffix}"
    save_file(published, path) if suffix == ".safetensors" else torch.save(published, path)
    model = build(path)
    check(model, published)
    assert model.head.linear.weight.shape == (3, model.feature_dim)


@pytest.mark.parametrize("prefix", ["module.", "model.", "module.model.", "_orig_mod."])
def test_prefixes_of_wrappers_are_dropped(prefix, published, tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file({prefix + key: tensor for key, tensor in published.items()}, path)
    check(build(path), published)


@pytest.mark.parametrize("container", ["state_dict", "model", "state_dict_ema"])
def test_weights_inside_a_training_checkpoint_are_found(container, published, tmp_path):
    path = tmp_path / "checkpoint.pth"
    torch.save({"epoch": 3, container: published}, path)
    check(build(path), published)


def test_the_backbone_of_a_halftruth_model_is_used(published, tmp_path):
    save_file(published, tmp_path / "first.safetensors")
    first = build_image_model("test_resnet", 9, weights=tmp_path / "first.safetensors")
    save_file(first.state_dict(), tmp_path / "model.safetensors")
    check(build(tmp_path / "model.safetensors"), published)


def test_half_precision_becomes_float32(published, tmp_path):
    path = tmp_path / "half.safetensors"
    save_file({k: v.half() if v.is_floating_point() else v for k, v in published.items()}, path)
    check(build(path), published, rtol=1e-3, atol=1e-3)


def test_missing_batch_counters_do_not_matter(published, tmp_path):
    path = tmp_path / "old.safetensors"
    save_file({k: v for k, v in published.items() if "num_batches" not in k}, path)
    model = build(path)
    kept = {k: v for k, v in published.items() if "num_batches" not in k}
    for key, tensor in kept.items():
        if not key.startswith("fc."):
            assert torch.equal(model.backbone.state_dict()[key], tensor)


def test_position_embeddings_of_another_size_are_resampled(tmp_path):
    path = tmp_path / "vit.safetensors"
    source = import_timm().create_model("test_vit", num_classes=10)
    save_file(source.state_dict(), path)
    model = build(path, "test_vit", image_size=96)
    assert model(torch.zeros(1, 3, 96, 96)).isfinite().all()
    ours, theirs = model.backbone.state_dict(), source.state_dict()
    assert ours["pos_embed"].shape != theirs["pos_embed"].shape
    assert torch.equal(ours["blocks.0.attn.qkv.weight"], theirs["blocks.0.attn.qkv.weight"])


def test_weights_that_do_not_fit_are_summarised_in_a_few_lines(published, tmp_path):
    path = tmp_path / "weights.safetensors"
    state = {k: v for k, v in published.items() if not k.startswith("layer2.")}
    state["conv1.0.weight"] = torch.zeros(5, 3, 3, 3)
    state["stray"] = torch.zeros(1)
    save_file(state, path)
    with pytest.raises(ModelError) as caught:
        build(path)
    message = str(caught.value)
    assert f"{path} does not fit test_resnet" in message
    assert "missing: 'layer2.0.conv1.weight'" in message
    assert "1 unexpected: 'stray'" in message
    assert "'conv1.0.weight' is (5, 3, 3, 3) in the file, (16, 3, 3, 3) in the model" in message
    assert len(message.splitlines()) <= 5
    assert len(message) < 1000


def test_weights_of_another_model_are_named_as_such(tmp_path):
    path = tmp_path / "vit.safetensors"
    save_file(import_timm().create_model("test_vit").state_dict(), path)
    with pytest.raises(ModelError, match="none of its names occurs in the model"):
        build(path)


def test_two_copies_of_a_tensor_are_refused(published, tmp_path):
    path = tmp_path / "twice.safetensors"
    copies = {f"module.{key}": tensor.clone() for key, tensor in published.items()}
    save_file({**published, **copies}, path)
    with pytest.raises(ModelError, match="in the weights twice"):
        build(path)


def test_values_that_are_not_finite_are_refused(published, tmp_path):
    path = tmp_path / "nan.safetensors"
    save_file({**published, "bn1.weight": published["bn1.weight"] / 0}, path)
    with pytest.raises(ModelError, match=r"not finite in 'bn1.weight'"):
        build(path)


class RunsCode:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path("ran"),)  # type: ignore[return-value]


def test_pickled_code_is_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"weight": RunsCode()}, "code.pth")
    with pytest.raises(ModelError, match="could run code when loaded"):
        build(Path("code.pth"))
    assert not Path("ran").exists()


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"version https://git-lfs.github.com/spec/v1\n" * 3,
        b"junk",
        b"hello world\n",
        b"\x80\x02h\x05.",  # a pickle that breaks its reader with a KeyError
        b"\x80\x02X\x01\x00\x00\x00\xff.",  # ... with a UnicodeDecodeError
        b"K\x01",  # ... with an EOFError
    ],
)
def test_files_that_hold_no_weights_are_refused(suffix, content, tmp_path):
    path = tmp_path / f"broken{suffix}"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=f"broken{suffix}"):
        build(path)


def test_a_truncated_file_is_refused(published, tmp_path):
    for suffix in (".safetensors", ".pth"):
        path = tmp_path / f"truncated{suffix}"
        save_file(published, path) if suffix == ".safetensors" else torch.save(published, path)
        path.write_bytes(path.read_bytes()[:-1000])
        with pytest.raises(ModelError, match=f"truncated{suffix}"):
            build(path)


def test_other_content_is_refused(tmp_path):
    torch.save([torch.zeros(1)], tmp_path / "list.pth")
    with pytest.raises(ModelError, match="expected named tensors, got list"):
        build(tmp_path / "list.pth")
    torch.save({"lr": 0.1}, tmp_path / "numbers.pth")
    with pytest.raises(ModelError, match="got others in 'lr'"):
        build(tmp_path / "numbers.pth")
    (tmp_path / "weights.ckpt").write_bytes(pickle.dumps({}))
    with pytest.raises(ModelError, match=r"ending in \.safetensors"):
        build(tmp_path / "weights.ckpt")
