"""A small set of images with missing labels, and the settings of short runs."""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from halftruth.cli import main
from halftruth.train.run_folder import load_checkpoint

CLASSES = ("red", "green", "blue")
# How much a probability may depend on the batch it is computed in: kernels add in another order,
# and on CUDA the factors of a product have the 11 bits of TF32 (a part in 2,000 each).
SAME = 5e-3 if torch.cuda.is_available() else 1e-5
# Model and device of every run on images.
IMAGES = {
    "backbone": "test_efficientnet",
    "weights": "none",
    "image_size": 32,
    "device": "cpu",
    "batch_size": 6,
    "workers": 1,
    "report": False,
}


def make_data(folder: Path, rows: int = 44, seed: int = 0) -> Path:
    """Write photos/, labels.csv (one positive per image, with a split), truth.csv, features.npy.

    The colour channel of a class is bright if the class is present.
    """
    random = np.random.default_rng(seed)
    (folder / "photos").mkdir(parents=True)
    header = ",".join(CLASSES)
    labels, truth, features = [f"image,split,{header}"], [f"image,{header}"], []
    for row in range(rows):
        present = random.random(3) < 0.5
        present[random.integers(3)] = True
        pixels = random.integers(0, 90, (32, 32, 3)) + 120 * present
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "photos" / f"p{row}.png")
        shown = np.zeros(3, int)
        shown[random.choice(np.flatnonzero(present))] = 1
        part = ("train", "train", "train", "val", "test")[row % 5]
        labels.append(f"p{row}.png,{part}," + ",".join(map(str, shown)))
        truth.append(f"p{row}.png," + ",".join(map(str, present.astype(int))))
        features.append(present + random.normal(0, 0.3, 3))
    (folder / "labels.csv").write_text("\n".join(labels) + "\n")
    (folder / "truth.csv").write_text("\n".join(truth) + "\n")
    np.save(folder / "features.npy", np.array(features, dtype=np.float32))
    return folder


def with_tune(settings: dict, tune: str) -> dict:
    """Settings of images for one stage alone, without those of the other stage."""
    other = {"all": ("head_epochs", "head_lr"), "head": ("epochs", "lr")}[tune]
    kept = {name: value for name, value in settings.items() if name not in other}
    return {"method": "em", **kept, "tune": tune}


def arguments(settings: dict) -> list[str]:
    """Settings as options of the command."""
    found = []
    for name, value in settings.items():
        option = ("--no-" if value is False else "--") + name.replace("_", "-")
        found += [option] if isinstance(value, bool) else [option, str(value)]
    return found


def command(*words) -> int:
    """`halftruth ...` in this process; the exit code."""
    before = sys.argv
    sys.argv = ["halftruth", *map(str, words)]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = before
    return 0


def train_two_runs(data: Path, folder: Path) -> None:
    """Train a run on features and one on images, in folders of these names."""
    shared = {"device": "cpu", "report": False}
    features = {**shared, "features": data / "features.npy", "method": "wan", "epochs": 1}
    images = {**shared, **IMAGES, "images": data / "photos", "tune": "head", "method": "em"}
    images["head_epochs"] = 1
    for name, settings in (("features", features), ("images", images)):
        words = arguments(settings | {"out": folder / name})
        assert command("train", data / "labels.csv", *words) == 0


def records(folder: Path) -> list[dict]:
    """metrics.jsonl without the times."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


def outcome(folder: Path) -> dict:
    """result.json without the folder's name."""
    result = json.loads((folder / "result.json").read_text())
    return {key: value for key, value in result.items() if key != "folder"}


def tensors(node, prefix="") -> dict[str, torch.Tensor]:
    """All tensors of a checkpoint, by path."""
    if isinstance(node, torch.Tensor):
        return {prefix: node}
    pairs = enumerate(node) if isinstance(node, list) else getattr(node, "items", dict)()
    found = {}
    for key, value in pairs:
        found |= tensors(value, f"{prefix}/{key}")
    return found


def assert_same_run(one: Path, other: Path) -> None:
    """Bitwise the same weights, state, metrics and result."""
    assert records(one) == records(other)
    assert outcome(one) == outcome(other)
    for name in ("best.safetensors", "last.safetensors"):
        first, second = (load_checkpoint(folder / name) for folder in (one, other))
        assert first.get("progress") == second.get("progress")
        ours, theirs = tensors(first), tensors(second)
        assert ours.keys() == theirs.keys()
        for path, tensor in ours.items():
            assert torch.equal(tensor, theirs[path]), (name, path)
