"""A run is shared as a folder, on the Hub, and in the layout of timm."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

import halftruth
from halftruth.hub import HubError, make_model_card, push, write_hub_folder, write_timm_model

CLASSES = ["cat/kitten", "dog|wolf", "bird"]


@pytest.fixture(scope="module")
def feature_run(tmp_path_factory) -> Path:
    """A small run on features, trained from files in a folder that must not be shared."""
    folder = tmp_path_factory.mktemp("secret_project")
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 5)).astype(np.float32)
    np.save(folder / "features.npy", X)
    frame = pd.DataFrame((X[:, :3] > 0).astype(int), columns=CLASSES)
    frame.to_csv(folder / "labels.csv", index=False)
    halftruth.fit(
        str(folder / "labels.csv"), features=str(folder / "features.npy"), method="em", epochs=2,
        out=folder / "run", quiet=True,
    )  # fmt: skip
    return folder / "run"


@pytest.fixture(scope="module")
def image_run(tmp_path_factory) -> Path:
    """A small run on images, with a network that timm builds in milliseconds."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(0)
    rows = ["image,cat,dog"]
    for number in range(24):
        pixels = random.integers(0, 255, (40, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        rows.append(f"{number}.png,{number % 2},{number % 3 == 0:d}")
    (folder / "labels.csv").write_text("\n".join(rows))
    halftruth.fit(
        str(folder / "labels.csv"), str(folder), method="em", backbone="test_resnet", image_size=32,
        weights="none", tune="all", freeze_bn=False, epochs=1, workers=0, device="cpu",
        out=folder / "run", quiet=True, report=False,
    )  # fmt: skip
    return folder / "run"


def test_a_shared_folder_predicts_as_the_run(feature_run, tmp_path):
    names = write_hub_folder(feature_run, tmp_path / "shared")
    assert {"README.md", "best.safetensors", "config.yaml", "result.json"} <= set(names)
    X = np.random.default_rng(1).normal(size=(7, 5)).astype(np.float32)
    ours = halftruth.load(feature_run, device="cpu").predict(X)
    theirs = halftruth.load(tmp_path / "shared", device="cpu").predict(X)
    pd.testing.assert_frame_equal(ours, theirs)


def test_a_shared_folder_has_no_paths_and_no_files_of_training(feature_run, tmp_path):
    names = write_hub_folder(feature_run, tmp_path / "shared")
    assert not {"last.safetensors", "report.html", "metrics.jsonl"} & set(names)
    for path in (tmp_path / "shared").iterdir():
        assert b"secret_project" not in path.read_bytes(), path.name


def test_a_folder_with_files_is_not_overwritten(feature_run, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(HubError, match="empty folder"):
        write_hub_folder(feature_run, tmp_path)


def test_the_model_card_has_the_header_of_the_hub_and_the_numbers_of_the_run(feature_run):
    import yaml

    run = halftruth.load(feature_run, device="cpu")
    card = make_model_card(run, repo="user/animals", licence="mit")
    _, header, text = card.split("---\n", 2)
    assert yaml.safe_load(header)["license"] == "mit"
    assert 'halftruth.load("hf://user/animals")' in text
    result = json.loads((feature_run / "result.json").read_text())
    if "mAP" in result["val"]:
        assert f"| {100 * result['val']['mAP']:.1f} |" in text
    # A bar in a name would be another column.
    assert "dog\\|wolf" in text
    assert "## Limits" in text


def test_push_uploads_the_folder_and_load_downloads_it(feature_run, tmp_path, monkeypatch):
    """Against a Hub that is a local folder."""
    import huggingface_hub

    remote = tmp_path / "remote"

    class Api:
        def create_repo(self, repo, private, exist_ok):
            assert (repo, private, exist_ok) == ("user/animals", True, True)

        def upload_folder(self, repo_id, folder_path, commit_message):
            shutil.copytree(folder_path, remote / repo_id)

    def snapshot_download(repo, revision, ignore_patterns):
        assert revision in (None, "v1")
        return str(remote / repo)

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert push(feature_run, "user/animals", private=True).endswith("/user/animals")
    for address in ("hf://user/animals", "hf://user/animals@v1"):
        assert list(halftruth.load(address, device="cpu").classes) == CLASSES


@pytest.mark.parametrize("address", ["hf://animals", "hf://", "hf://a/b/c", "hf:///x"])
def test_an_address_that_is_none_is_an_error(address):
    with pytest.raises(HubError, match="user/repo"):
        halftruth.load(address)


def test_a_repository_of_another_kind_is_an_error(tmp_path, monkeypatch):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(tmp_path))
    with pytest.raises(HubError, match="not a run of halftruth"):
        halftruth.load("hf://user/bert")


def test_timm_loads_a_shared_run_with_the_same_logits(image_run, tmp_path):
    timm = halftruth.models.import_timm()
    names = write_hub_folder(image_run, tmp_path / "shared")
    assert {"config.json", "model.safetensors"} <= set(names)
    model = timm.create_model(f"local-dir:{tmp_path / 'shared'}", pretrained=True).eval()
    run = halftruth.load(image_run, device="cpu")
    images = torch.rand(3, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(model(images), run.model(images), atol=1e-4, rtol=1e-4)
    assert tuple(model.pretrained_cfg["label_names"]) == run.classes


def test_the_pipeline_of_transformers_gives_the_probabilities_of_the_run(image_run, tmp_path):
    transformers = pytest.importorskip("transformers")
    from PIL import Image

    write_hub_folder(image_run, tmp_path / "shared")
    run = halftruth.load(image_run, device="cpu")
    pixels = np.random.default_rng(3).integers(0, 255, (40, 30, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    pipe = transformers.pipeline("image-classification", str(tmp_path / "shared"), device="cpu")
    found = {entry["label"]: entry["score"] for entry in pipe(image, top_k=2)}
    small = np.asarray(image.resize((32, 32), Image.Resampling.BICUBIC)) / 255
    x = torch.as_tensor((small - run.model.mean) / run.model.std).float().permute(2, 0, 1)[None]
    with torch.no_grad():
        ours = torch.sigmoid(run.model(x))[0]
    theirs = torch.tensor([found[name] for name in run.classes])
    # Both resize with Pillow; the order of rounding differs.
    torch.testing.assert_close(theirs, ours, atol=0.01, rtol=0.01)


def test_a_run_on_features_is_not_a_timm_model(feature_run, tmp_path):
    with pytest.raises(ValueError, match="trained on features"):
        write_timm_model(halftruth.load(feature_run, device="cpu"), tmp_path)


def test_commands_take_a_run_on_the_hub(feature_run, tmp_path, monkeypatch):
    import sys

    import huggingface_hub

    from halftruth.cli import main

    write_hub_folder(feature_run, tmp_path / "shared")
    np.save(tmp_path / "new.npy", np.zeros((2, 5), np.float32))
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda *_, **__: str(tmp_path / "shared")
    )
    monkeypatch.chdir(tmp_path)
    for line in (
        "predict hf://user/animals new.npy --out table.csv",
        "evaluate hf://user/animals --out scores.json",
        "export hf://user/animals --out model.pt2",
        "hub folder hf://user/animals --out again",
    ):
        monkeypatch.setattr(sys, "argv", ["halftruth", *line.split()])
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code, line
        assert Path(line.split()[-1]).exists(), line


def test_the_command_writes_the_folder(feature_run, tmp_path, monkeypatch, capsys):
    import sys

    from halftruth.cli import main

    arguments = ["hub", "folder", str(feature_run), "--out", str(tmp_path / "shared")]
    monkeypatch.setattr(sys, "argv", ["halftruth", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    assert "README.md" in capsys.readouterr().out
    assert SimpleNamespace(**json.loads((tmp_path / "shared" / "result.json").read_text())).classes
