"""All comparisons with the published code style in one run, as one Markdown page.

    python benchmarks/run.py                            # all parts that can run here: minutes
    python benchmarks/run.py --quick --out page.md      # smaller shapes, fewer repetitions
    python benchmarks/run.py --only losses metrics
    python benchmarks/run.py --images photos/           # JPEG files for the training loops

Losses, mean average precision and training loops run in the same process as their references,
import times in separate processes; parts that need a GPU are left out without one. A part that
fails is reported in the page, the others continue, and the exit status is 1.
"""

import argparse
import datetime
import importlib
import importlib.metadata
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import torch

PACKAGES = ("halftruth", "torch", "triton", "numpy", "scikit-learn", "torchmetrics", "timm")


class Part(NamedTuple):
    """A script of this folder, with its arguments: `always`, in a `whole`, in a `quick` run."""

    title: str
    script: str
    always: str = ""
    whole: str = ""
    quick: str = ""
    gpu: bool = False
    # Run in a separate process, because it changes the library.
    alone: bool = False


PARTS = {
    "imports": Part("Imports", "imports", quick="--rounds 10"),
    "losses": Part("Losses on a CPU", "losses", quick="--shapes 256x567 --seconds 1"),
    "kernels": Part("Losses on a GPU", "kernels", quick="--quick", gpu=True),
    "python": Part(
        "Python time of a loss on a GPU",
        "python_time",
        quick="--steps 500 --rounds 4",
        alone=True,
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


class Tee:
    """Writes everything to the screen, and to the page if there is one."""

    def __init__(self, screen: TextIO, page: TextIO | None) -> None:
        self.files = [file for file in (screen, page) if file is not None]

    def write(self, text: str) -> None:
        for file in self.files:
            file.write(text)

    def flush(self) -> None:
        for file in self.files:
            file.flush()


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


@contextmanager
def photographs(count: int) -> Iterator[Path]:
    """A temporary folder of generated JPEG files of a usual size."""
    from PIL import Image

    draw = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for i in range(count):
            clouds = draw.integers(0, 256, (12, 16, 3), dtype=np.uint8)
            image = Image.fromarray(clouds).resize((500, 375), Image.Resampling.BICUBIC)
            image.save(Path(folder) / f"{i:05d}.jpg", quality=90)
        yield Path(folder)


def measure(part: Part, options: argparse.Namespace) -> None:
    """Run one part."""
    arguments = [*part.always.split(), *(part.quick if options.quick else part.whole).split()]
    shown = " ".join(["python", f"benchmarks/{part.script}.py", *arguments])
    print(f"\n## {part.title}\n\n    {shown}\n", flush=True)
    if part.alone:
        script = Path(__file__).with_name(f"{part.script}.py")
        command = [sys.executable, str(script), *arguments]
        print(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        return
    call: Any = importlib.import_module(part.script).main
    if part.script != "reference_loop":
        call(arguments)
    elif options.images:
        call([*arguments, "--images", str(options.images)])
    else:
        with photographs(512 if options.quick else 2048) as folder:
            call([*arguments, "--images", str(folder)])


def report(options: argparse.Namespace) -> int:
    """Print the page; return the number of parts that failed."""
    print(f"# Benchmarks of halftruth\n\n{machine()}", flush=True)
    failed = 0
    for name in options.only or PARTS:
        part, started, threads = PARTS[name], time.perf_counter(), torch.get_num_threads()
        if part.gpu and not torch.cuda.is_available():
            print(f"\n## {part.title}\n\nLeft out: there is no GPU.")
            continue
        try:
            measure(part, options)
        except (Exception, SystemExit) as error:
            failed += 1
            print(f"\n**Failed**: {type(error).__name__}: {error}")
        torch.set_num_threads(threads)  # a part may have changed it
        print(f"\n{time.perf_counter() - started:.0f} s", flush=True)
    return failed


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small shapes, few repetitions")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--images", type=Path, help="a folder of JPEG files to train on")
    parser.add_argument("--out", type=Path, help="a file for the page, written as it grows")
    options = parser.parse_args(argv)
    page = options.out.open("w") if options.out else None
    try:
        with redirect_stdout(Tee(sys.stdout, page)):  # type: ignore[type-var]
            return min(report(options), 1)
    finally:
        if page is not None:
            page.close()


if __name__ == "__main__":
    sys.exit(main())
