"""Training throughput: the loop against a bare forward and backward on the same model and batch.

    python benchmarks/training.py [--backbone resnet50] [--size 224] [--batches 32 128]

"bare" repeats forward, loss, backward and optimiser step on one batch on the device: the
limit of the device. The others are whole epochs of `Stage` (augmentation, labels by row, EMA off
as in the bare loop), the first epoch left out, with the pixels on the device (the choice of `train`
where they fit), in memory, or in a memory map on disk.
The images are noise; their content does not affect the time.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from common import start
from halftruth import losses
from halftruth.data import ImageStore
from halftruth.data.transforms import Augment
from halftruth.models import Classifier, build_image_model, freeze_batchnorm
from halftruth.train.config import Config
from halftruth.train.devices import make_accelerator
from halftruth.train.expected_time import StageClock
from halftruth.train.inputs import image_inputs
from halftruth.train.inputs.image_inputs import Images
from halftruth.train.step import Learner
from halftruth.train.trainer import Stage

CLASSES = 20


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def labels_of(count: int) -> Tensor:
    draw = np.random.default_rng(0)
    labels = torch.zeros(count, CLASSES, dtype=torch.int8)
    labels[torch.arange(count), torch.from_numpy(draw.integers(0, CLASSES, count))] = 1
    return labels


def build_model(config: Config, size: int) -> Classifier:
    model = build_image_model(config.backbone, CLASSES, weights="none", image_size=size)
    if config.freeze_bn:
        freeze_batchnorm(model)
    return model


def bare(config: Config, size: int, steps: int) -> float:
    """Images per second of the bare step on one batch on the device."""
    accelerator = make_accelerator(config)
    device = accelerator.device
    model = build_model(config, size)
    learner = Learner(model, losses.create("wan").to(device), accelerator, config, 1e-4, 1e-4)
    x = torch.randn(config.batch_size, 3, size, size, device=device)
    y = labels_of(config.batch_size).to(device)
    index = torch.arange(config.batch_size, device=device)
    learner.forward.train()
    # The first steps run without a graph; then passes and optimiser step are captured.
    for count in (min(20, steps), steps):
        wait(device)
        started = time.perf_counter()
        for _ in range(count):
            learner.step(x, y, index, weight=1.0, rate=1.0)
        wait(device)
    return steps * config.batch_size / (time.perf_counter() - started)


def loop(
    config: Config, size: int, pixels: np.ndarray, folder: Path, on_device: bool = False
) -> float:
    """Images per second of whole epochs."""
    accelerator = make_accelerator(config)
    model = build_model(config, size)
    names = [str(row) for row in range(len(pixels))]
    inputs = Images(
        ImageStore(folder),
        names,
        size,
        augment=Augment.preset(config.augment, size, model.mean, model.std),
        workers=config.workers,
        pixels=pixels,
    )
    stage = Stage(
        name="all",
        model=model,
        inputs=inputs,
        loss=losses.create("wan"),
        labels=labels_of(len(pixels)),
        train_rows=np.arange(len(pixels)),
        val_rows=np.arange(0),
        config=config,
        accelerator=accelerator,
        epochs=3,
        lr=1e-4,
        head_lr=1e-4,
    )
    stage.clock = StageClock(
        "all", stage.batches.steps, 3, validation=0, device=accelerator.device, log=print
    )
    times = []
    for epoch in range(3):
        stage.progress.epoch, stage.progress.step = epoch, 0
        wait(accelerator.device)
        started = time.perf_counter()
        with patch.object(image_inputs, "_has_room", lambda device, pixels: on_device):
            stage._train_epoch()
        wait(accelerator.device)
        times.append(time.perf_counter() - started)
    return len(pixels) / min(times[1:])


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backbone", default="resnet50")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--images", type=int, default=4096)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--steps", type=int, default=60, help="of the bare step")
    options = parser.parse_args(argv)
    shape = (options.images, options.size, options.size, 3)
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        np.save(folder / "pixels.npy", pixels)
        mapped = np.lib.format.open_memmap(folder / "pixels.npy", mode="r")
        for batch in options.batches:
            config = Config(
                backbone=options.backbone, batch_size=batch, ema=0.0, workers=options.workers
            )
            row = {"backbone": options.backbone, "size": options.size, "batch": batch}
            row["bare img/s"] = bare(config, options.size, options.steps)
            on_device = torch.cuda.is_available()
            for name, source, there in (
                ("device", mapped, on_device),
                ("memory", pixels, False),
                ("disk", mapped, False),
            ):
                row[name] = loop(config, options.size, source, folder, there) / row["bare img/s"]
            shown = {k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}
            print(json.dumps(shown), flush=True)


if __name__ == "__main__":
    small = "--backbone test_resnet --size 32 --batches 8 --images 16 --workers 0"
    start(main, f"{small} --steps 2")
