"""Time to import halftruth above the time to import torch, in fresh processes in turn.

    python benchmarks/imports.py [--rounds 15]

A time is that of a whole Python process, from start to end; medians. `halftruth` itself loads
nothing until one of its names is used; "the core" uses labels, losses and metrics. Target: the
core at most 0.15 s above torch.
"""

import argparse
import statistics
import subprocess
import sys
import time

from common import print_header, print_row, start

AIM = 0.15
IMPORTS = {
    "torch": "import torch",
    "torch, then halftruth": "import torch, halftruth",
    "torch, then the core": "import torch; from halftruth import labels, losses, metrics",
}


def seconds(code: str) -> float:
    """Wall time of a Python process that runs only `code`."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="processes of each kind (15)")
    options = parser.parse_args(argv)
    times: dict[str, list[float]] = {name: [] for name in IMPORTS}
    # The first round compiles modules that were never imported, and reads them into memory.
    for _ in range(options.rounds + 1):
        for name, code in IMPORTS.items():
            times[name].append(seconds(code))
    times = {name: found[-options.rounds :] for name, found in times.items()}
    plain = statistics.median(times["torch"])
    print_header("import of", "median, s", "fastest, s", "above torch, s")
    for name, found in times.items():
        median = statistics.median(found)
        print_row(name, f"{median:.3f}", f"{min(found):.3f}", f"{median - plain:+.3f}")
    above = statistics.median(times["torch, then the core"]) - plain
    verdict = "met" if above <= AIM else "missed"
    print(f"\n{options.rounds} processes each. At most {AIM} s above torch: {verdict}.")


if __name__ == "__main__":
    start(main, "--rounds 0")
