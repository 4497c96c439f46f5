"""Training throughput: our loop beside one bare step, and beside the loop of the papers' codes.

    python benchmarks/training.py --batches 64 256                     # noise, beside a bare step
    python benchmarks/training.py --images photos/ --size 448 --batches 16 64   # beside the papers

Images per second of whole epochs of `Trainer` as `train` builds it; the first epoch (cuDNN's
choice, captures, compilation) is left out. Without `--images`: pixels on the device (the choice of
`train` where they fit), in memory, and in a memory map on disk, as fractions of "bare", which
repeats forward, loss, backward and optimiser step on one batch on the device.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import published
from common import print_header, print_row, start
from halftruth import losses
from halftruth.data import ImageStore, decode_all
from halftruth.data.transforms import Augment
from halftruth.models import Classifier, build_image_model, freeze_batchnorm
from halftruth.models.timm_support import create_backbone
from halftruth.train.config import Config
from halftruth.train.devices import make_accelerator
from halftruth.train.inputs import image_inputs
from halftruth.train.inputs.image_inputs import Images
from halftruth.train.run_logger import StageClock
from halftruth.train.step import Learner
from halftruth.train.trainer import Trainer

CLASSES = 20
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def now() -> float:
    """The time after all work so far is done."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def make_labels(count: int) -> Tensor:
    labels = torch.zeros(count, CLASSES, dtype=torch.int8)
    drawn = np.random.default_rng(0).integers(0, CLASSES, count)
    labels[torch.arange(count), torch.from_numpy(drawn)] = 1
    return labels


def build_model(config: Config, size: int) -> Classifier:
    model = build_image_model(config.backbone, CLASSES, weights="none", image_size=size)
    if config.freeze_bn:
        freeze_batchnorm(model)
    return model


def run_bare(config: Config, size: int, steps: int) -> float:
    """Images per second of the bare step on one batch on the device."""
    accelerator, model = make_accelerator(config), build_model(config, size)
    loss = losses.create("wan").to(accelerator.device)
    learner = Learner(model, loss, accelerator, config, 1e-4, 1e-4)
    x = torch.randn(config.batch_size, 3, size, size, device=accelerator.device)
    y = make_labels(config.batch_size).to(accelerator.device)
    index = torch.arange(config.batch_size, device=accelerator.device)
    learner.forward.train()
    started = 0.0
    # The first steps run without a graph; then passes and optimiser step are captured.
    for count in (min(20, steps), steps):
        started = now()
        for _ in range(count):
            learner.step(x, y, index, weight=1.0, rate=1.0)
    return steps * config.batch_size / (now() - started)


def run_loop(config: Config, size: int, pixels: np.ndarray, on_device: bool) -> float:
    """Images per second of whole epochs."""
    accelerator, model = make_accelerator(config), build_model(config, size)
    augment = Augment.preset(config.augment, size, model.mean, model.std)
    names, times = [str(row) for row in range(len(pixels))], []
    with tempfile.TemporaryDirectory() as folder:
        inputs = Images(
            ImageStore(Path(folder)), names, size, augment=augment, workers=config.workers,
            pixels=pixels,
        )  # fmt: skip
        stage = Trainer(
            name="all", model=model, inputs=inputs, loss=losses.create("wan"),
            labels=make_labels(len(pixels)), train_rows=np.arange(len(pixels)),
            val_rows=np.arange(0), config=config, accelerator=accelerator, epochs=3, lr=1e-4,
            head_lr=1e-4,
        )  # fmt: skip
        stage.clock = StageClock(
            "all", stage.batches.steps, 3, validation=0, device=accelerator.device, log=print
        )
        for epoch in range(3):
            stage.progress.epoch, stage.progress.step = epoch, 0
            started = now()
            with patch.object(image_inputs, "_has_room", lambda device, pixels: on_device):
                stage._train_epoch()
            times.append(now() - started)
    return len(pixels) / min(times[1:])


class Files(Dataset[Any]):
    """Images as the reference reads them: one at a time, with all work on the CPU."""

    def __init__(self, files: list[Path], size: int) -> None:
        self.files, self.size, self.labels = files, size, make_labels(len(files)).float()

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        with Image.open(self.files[i]) as opened:
            image = opened.convert("RGB").resize((self.size, self.size))
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div(255)
        if np.random.rand() < 0.5:
            pixels = pixels.flip(2)
        return (pixels - 0.45) / 0.25, self.labels[i]


def run_reference(files: list[Path], backbone: str, size: int, batch: int, workers: int) -> float:
    """Images per second of the second epoch of the reference loop."""
    body = create_backbone(backbone, "none")
    model = torch.nn.Sequential(body, torch.nn.Linear(body.num_features, CLASSES)).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, foreach=False)
    loader = DataLoader(
        Files(files, size), batch, shuffle=True, num_workers=workers, drop_last=True,
        pin_memory=DEVICE.type == "cuda", persistent_workers=workers > 0,
    )  # fmt: skip
    model.train()
    started = 0.0
    for _ in range(2):
        started = now()
        for pixels, targets in loader:
            loss = published.asl(model(pixels.to(DEVICE)), targets.to(DEVICE))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return len(loader) * batch / (now() - started)


def compare_with_bare(given: argparse.Namespace) -> None:
    """Print the loop on noise, whose content does not affect the time, beside the bare step."""
    shape = (given.count, given.size, given.size, 3)
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    print_header("batch", "bare, images/s", "on the device", "in memory", "on disk")
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "pixels.npy", pixels)
        mapped = np.lib.format.open_memmap(Path(folder) / "pixels.npy", mode="r")
        for batch in given.batches:
            config = Config(
                backbone=given.backbone, batch_size=batch, ema=0.0, workers=given.workers
            )
            bare = run_bare(config, given.size, given.steps)
            places = ((mapped, DEVICE.type == "cuda"), (pixels, False), (mapped, False))
            found = [run_loop(config, given.size, *place) / bare for place in places]
            print_row(batch, f"{bare:,.0f}", *(f"{part:.2f}" for part in found))


def compare_with_papers(given: argparse.Namespace) -> None:
    """Print our loop on JPEG files beside the reference."""
    files = sorted(given.images.rglob("*.jpg"))
    names = [str(path.relative_to(given.images)) for path in files]
    workers = max(given.workers, 1)
    started = time.perf_counter()
    pixels = decode_all(ImageStore(given.images), names, given.size, workers=workers).pixels
    print(f"{len(files)} images decoded once, in {time.perf_counter() - started:.1f} s\n")
    print_header("batch", "loop", "images/s", "ratio")
    for batch in given.batches:
        theirs = run_reference(files, given.backbone, given.size, batch, given.workers)
        print_row(batch, "reference", f"{theirs:,.0f}", "1")
        for mode in given.modes:
            config = Config(
                backbone=given.backbone, batch_size=batch, workers=given.workers,
                freeze_bn=mode == "frozen",
            )  # fmt: skip
            ours = run_loop(config, given.size, pixels, DEVICE.type == "cuda")
            print_row(batch, mode, f"{ours:,.0f}", f"{ours / theirs:.2f}")


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=Path, help="a folder of JPEG files")
    parser.add_argument("--backbone", default="resnet50")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--count", type=int, default=4096, help="images of noise")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--steps", type=int, default=60, help="of the bare step")
    parser.add_argument(
        "--modes", nargs="+", default=["plain", "frozen"], choices=["plain", "frozen"]
    )
    given = parser.parse_args(argv)
    (compare_with_papers if given.images else compare_with_bare)(given)


if __name__ == "__main__":
    small = "--backbone test_resnet --size 32 --workers 0"
    photos = f"--images DATA/photos {small} --batches 16 --modes plain"
    start(main, f"{small} --batches 8 --count 16 --steps 2", photos)
