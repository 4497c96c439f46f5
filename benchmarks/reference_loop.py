"""Training throughput on JPEG files: our loop against the loop of the papers' codes.

    python benchmarks/reference_loop.py --images photos/ [--size 448] [--batches 16 64]

The reference style: float32, Adam one parameter after the other, a DataLoader whose workers open,
resize, flip and normalise every image in every epoch, the published form of ASL. Ours: `Stage` as
`train` builds it (images decoded once, the rest on the device), also with torch.compile. Both see
the same files; the first epoch (cuDNN's choice, captures, compilation) is left out, and decoding is
reported separately. Run on a CUDA device.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import published
from common import start
from halftruth.data import ImageStore, decode_all
from halftruth.models import build_image_model
from halftruth.models.timm_support import create_backbone
from halftruth.train.config import Config
from training import CLASSES, labels_of, loop, wait

WARM = 1
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Files(Dataset[Any]):
    """Images as the reference reads them: one at a time, with all work on the CPU."""

    def __init__(self, files: list[Path], size: int) -> None:
        self.files, self.size, self.labels = files, size, labels_of(len(files)).float()

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        with Image.open(self.files[i]) as opened:
            image = opened.convert("RGB").resize((self.size, self.size))
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div(255)
        if np.random.rand() < 0.5:
            pixels = pixels.flip(2)
        return (pixels - 0.45) / 0.25, self.labels[i]


def reference(files: list[Path], backbone: str, size: int, batch: int, workers: int) -> float:
    """Images per second of the reference loop."""
    model = torch.nn.Sequential(
        body := create_backbone(backbone, "none"), torch.nn.Linear(body.num_features, CLASSES)
    ).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, foreach=False)
    loader = DataLoader(
        Files(files, size), batch, shuffle=True, num_workers=workers, drop_last=True,
        pin_memory=DEVICE.type == "cuda", persistent_workers=workers > 0,
    )  # fmt: skip
    model.train()
    for _ in range(WARM + 1):
        wait(DEVICE)
        started = time.perf_counter()
        for pixels, targets in loader:
            loss = published.asl(model(pixels.to(DEVICE)), targets.to(DEVICE))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        wait(DEVICE)
    return len(loader) * batch / (time.perf_counter() - started)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--backbone", default="resnet50")
    parser.add_argument("--size", type=int, default=448)
    parser.add_argument("--batches", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--modes", nargs="+", default=["plain", "graphs", "compile+graphs"])
    parser.add_argument("--no-reference", action="store_true")
    options = parser.parse_args(argv)
    files = sorted(path for path in options.images.rglob("*.jpg"))
    store = ImageStore(options.images)
    names = [str(path.relative_to(options.images)) for path in files]
    build_image_model(options.backbone, CLASSES, weights="none")
    started = time.perf_counter()
    pixels = decode_all(store, names, options.size, workers=max(options.workers, 1)).pixels
    print(f"{options.backbone}, {options.size} px; {len(files)} images decoded once, ", end="")
    print(f"in {time.perf_counter() - started:.1f} s\n\n| batch | loop | images/s | ratio |")
    print("|---|---|---:|---:|", flush=True)
    for batch in options.batches:
        theirs = None
        if not options.no_reference:
            theirs = reference(files, options.backbone, options.size, batch, options.workers)
            print(f"| {batch} | reference | {theirs:,.0f} | 1 |", flush=True)
        for mode in options.modes:
            config = Config(
                backbone=options.backbone, batch_size=batch, workers=options.workers,
                compile="compile" in mode, graphs="graphs" in mode, freeze_bn="frozen" in mode,
            )  # fmt: skip
            with tempfile.TemporaryDirectory() as folder:
                ours = loop(config, options.size, pixels, Path(folder), DEVICE.type == "cuda")
            ratio = f"{ours / theirs:.2f}" if theirs else ""
            print(f"| {batch} | {mode} | {ours:,.0f} | {ratio} |", flush=True)


if __name__ == "__main__":
    small = "--backbone test_resnet --size 32 --batches 16 --workers 0"
    start(main, f"--images DATA/photos {small} --modes plain")
