"""All comparisons with the published code style, as one Markdown page.

    python benchmarks/run.py                            # all parts that can run here: minutes
    python benchmarks/run.py --quick --out page.md      # smaller shapes, fewer repetitions
    python benchmarks/run.py --only losses metrics
    python benchmarks/run.py --images photos/           # JPEG files for the training loops

Every part is a process; parts that need a GPU are left out without one. A part that fails is
reported in the page, the others continue, and the exit status is 1.
"""

import argparse
import datetime
import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import torch

from common import make_photographs, start

PACKAGES = ("halftruth", "torch", "triton", "numpy", "scikit-learn", "torchmetrics", "timm")


class Part(NamedTuple):
    """A script of this folder, with its arguments: `always`, in a `whole`, in a `quick` run."""

    title: str
    script: str
    always: str = ""
    whole: str = ""
    quick: str = ""
    gpu: bool = False


PARTS = {
    "imports": Part("Imports", "imports", quick="--rounds 10"),
    "losses": Part("Losses on a CPU", "losses", quick="--shapes 256x567 --seconds 1"),
    "kernels": Part("Losses on a GPU", "kernels", quick="--shapes 4096x10000 16x80", gpu=True),
    "python": Part(
        "Python time of a loss on a GPU",
        "python_time",
        quick="--steps 500 --rounds 4",
    ),
    "metrics": Part("Metrics on a CPU", "metrics", quick="--quick"),
    "metrics-gpu": Part(
        "Metrics on a GPU", "metrics", always="--device cuda", quick="--quick", gpu=True
    ),
    "memory": Part("Methods with a memory", "memory", quick="--rounds 2 --steps 50"),
    "memory-gpu": Part(
        "Methods with a memory, on a GPU",
        "memory",
        always="--device cuda --samples 82081 --classes 80 --batch 64",
        quick="--rounds 2 --steps 50",
        gpu=True,
    ),
    "training": Part(
        "Training on JPEG files",
        "reference_loop",
        whole="--modes graphs graphs+frozen compile+graphs",
        quick="--modes graphs --batches 16",
        gpu=True,
    ),
}


def machine() -> str:
    """The processors, the GPU and the versions, as a list."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else []
    named = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    rows = [f"{os.cpu_count()} cores ({named[0] if named else platform.processor()})"]
    rows += [torch.cuda.get_device_name()] if torch.cuda.is_available() else ["no GPU"]
    versions = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"no {package}")
    rows += [", ".join(versions), f"{datetime.date.today()}"]
    return "\n".join(f"- {row}" for row in rows)


def measure(part: Part, options: argparse.Namespace, photographs: str) -> str:
    """Run one part; return its section of the page."""
    words = [*part.always.split(), *(part.quick if options.quick else part.whole).split()]
    if part.script == "reference_loop":
        words += ["--images", str(options.images or photographs)]
    words = ["--tiny"] if options.each_tiny else words
    command = [sys.executable, str(Path(__file__).with_name(f"{part.script}.py")), *words]
    shown = f"## {part.title}\n\n    python benchmarks/{part.script}.py {shlex.join(words)}\n\n"
    if part.gpu and not torch.cuda.is_available():
        return f"## {part.title}\n\nLeft out: there is no GPU.\n"
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    failed = f"\n**Failed**:\n\n{done.stderr[-2000:]}\n" if done.returncode else ""
    return f"{shown}{done.stdout}{failed}\n{time.perf_counter() - started:.0f} s\n"


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small shapes, few repetitions")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--images", type=Path, help="a folder of JPEG files to train on")
    parser.add_argument("--each-tiny", action="store_true", help="every part in its tiny form")
    parser.add_argument("--out", type=Path, help="a file for the page, written as it grows")
    options = parser.parse_args(argv)
    page = f"# Benchmarks of halftruth\n\n{machine()}\n"
    print(page, flush=True)
    with tempfile.TemporaryDirectory() as photographs:
        if not options.images and not options.each_tiny and torch.cuda.is_available():
            make_photographs(Path(photographs), 512 if options.quick else 2048)
        for name in options.only or PARTS:
            section = measure(PARTS[name], options, photographs)
            print(section, flush=True)
            page += f"\n{section}"
            if options.out:
                options.out.write_text(page)
    return int("**Failed**" in page)


if __name__ == "__main__":
    start(main, "--only metrics --each-tiny --out OUT/page.md")
