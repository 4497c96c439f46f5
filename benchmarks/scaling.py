"""CPU time and memory of training and prediction at 1x, 4x and 16x rows, classes and text.

    python benchmarks/scaling.py

Every case is a process with one thread. Time is CPU time (user and system) without imports, so that
other work on the machine counts little. Memory is the peak of the whole process above that of the
imports; the pages of a matrix on disk are part of it, though the system can drop them.
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

from common import print_header, print_row, run_case, start

BASE = {"rows": 10_000, "classes": 80, "features": 64}
CASES = {
    f"{factor}x {name}": {**BASE, name: BASE[name] * factor}
    for name in ("rows", "classes")
    for factor in (1, 4, 16)
} | {f"{factor}x texts": {**BASE, "rows": 2500 * factor, "text": True} for factor in (1, 4, 16)}


def get_cpu_seconds() -> float:
    """CPU seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(rows: int, classes: int, features: int, text: bool = False) -> dict[str, float]:
    """Train one epoch by `swan` and predict all rows, in this process."""
    import numpy as np
    import torch

    import halftruth

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        # Lists of 3 labels per row, as a data set of many classes has them.
        listed = rng.integers(0, classes, (rows, 3))
        cells = ["|".join(str(k) for k in row) for row in listed]
        lines = ["id\tlabels\ttext"]
        words = np.array([f"word{k}" for k in range(5000)])
        drawn = words[np.minimum(rng.zipf(1.3, (rows, 12)) - 1, 4999)] if text else None
        for row in range(rows):
            said = " ".join(drawn[row]) if drawn is not None else "-"
            lines.append(f"r{row}\t{cells[row]}\t{said}")
        (place / "labels.tsv").write_text("\n".join(lines) + "\n")
        np.save(place / "x.npy", rng.normal(size=(rows, features)).astype(np.float32))
        del lines, cells
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, get_cpu_seconds()
        clock = time.perf_counter()
        inputs = (
            {"text": "text"} if text else {"features": place / "x.npy", "drop_columns": ["text"]}
        )
        halftruth.fit(
            place / "labels.tsv", method="swan", epochs=1, batch_size=256, device="cpu",
            out=place / "run", report=False, quiet=True, **inputs,
        )  # fmt: skip
        trained = get_cpu_seconds()
        source = place / ("labels.tsv" if text else "x.npy")
        halftruth.load(place / "run", device="cpu").score(source)
        return {
            "train": trained - start,
            "predict": get_cpu_seconds() - trained,
            "peak": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
            "wall": time.perf_counter() - clock,
        }


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--part", type=float, default=1, help="of the rows")
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.case:
        return print(json.dumps(measure(*given.case)))
    print_header("case", "rows", "classes", "train, CPU s", "predict, CPU s",
                 "MB above the imports")  # fmt: skip
    for name in given.only:
        sizes = {**CASES[name], "rows": round(given.part * CASES[name]["rows"])}
        found = run_case(__file__, measure, *sizes.values())
        print_row(
            name, f"{sizes['rows']:,}", f"{sizes['classes']:,}", f"{found['train']:.1f}",
            f"{found['predict']:.1f}", f"{found['peak']:.0f}",
        )  # fmt: skip


if __name__ == "__main__":
    start(main, "--part 0.02 --only '1x rows' '1x texts'")
