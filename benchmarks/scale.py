"""Throughput, memory and equality of `halftruth predict` in 1, 2, 4, ... processes of torchrun.

    python benchmarks/scale.py                                  # 1 million rows, 100,000 images
    python benchmarks/scale.py --kinds images --images 20000 --photos PHOTOS --processes 1 2
    python benchmarks/scale.py --simulate                       # where machines no longer help

Rows of features are a Parquet file of vectors of 64 numbers, 20 classes. Images are JPEG files of
500 x 375 pixels (or those of a folder), which stand under many names; the network is small, so that
reading and decoding count. Each process has one thread. Seconds are those of the command without
imports, of the slowest process; memory is the highest of a process. `killed`: all processes are
killed once a third of the parts is there, and another number of processes writes the rest.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import make_photographs, print_header, print_row, start

WIDTH, CLASSES = 64, [f"c{k}" for k in range(20)]


def make_inputs(kind: str, folder: Path, given: argparse.Namespace) -> list[str]:
    """Train a run on a few rows; write the rows to predict; return the options of predict."""
    import numpy as np
    import pandas as pd

    import halftruth

    random = np.random.default_rng(0)
    names, settings = [f"{k:05d}.jpg" for k in range(200)], {"method": "wan", "epochs": 1}
    x = random.normal(size=(200, WIDTH)).astype(np.float32)
    labels = pd.DataFrame((x[:, : len(CLASSES)] > 0.5) * 1, index=names, columns=CLASSES)
    if kind == "features":
        np.save(folder / "few.npy", x)
        settings["features"] = folder / "few.npy"
    else:
        (folder / "few").mkdir()
        make_photographs(folder / "few", 200)
        settings = {"method": "em", "head_epochs": 1, "tune": "head", "weights": "none"}
        settings |= {"backbone": given.backbone, "image_size": given.image_size}
        settings |= {"images": folder / "few", "workers": 1}
    settings |= {"out": folder / "run", "report": False, "quiet": True, "device": "cpu"}
    halftruth.fit(labels, **settings)
    if kind == "images":
        found = sorted(Path(given.photos or folder / "few").iterdir())
        (folder / "photos").mkdir()
        shutil.copytree(found[0].parent, folder / "own", dirs_exist_ok=True)
        for k in range(given.images):
            os.link(folder / "own" / found[k % len(found)].name, folder / "photos" / f"{k:07d}.jpg")
        return ["--images", str(folder / "photos")]
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    for at in range(0, given.rows, 65_536):
        count = min(65_536, given.rows - at)
        values = random.normal(size=count * WIDTH).astype(np.float32)
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(values), WIDTH)
        part = pa.table({"id": [f"r{k}" for k in range(at, at + count)], "vector": vectors})
        writer = writer or pq.ParquetWriter(folder / "x.parquet", part.schema)
        writer.write_table(part)
    writer.close()
    return ["--features", str(folder / "x.parquet")]


def work(notes: str, line: list[str]) -> None:
    """Run the command in this process; write what it took."""
    import resource

    import halftruth.cli
    import halftruth.train.results.write_parts

    sys.argv = ["halftruth", *line]
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        halftruth.cli.main()
    except SystemExit as end:
        if end.code:
            raise
    used = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    used["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    Path(notes, os.environ.get("RANK", "0")).write_text(json.dumps(used))


def launch(count: int, notes: Path, line: list[str]) -> subprocess.Popen:
    """Start processes of torchrun, in a group that can be killed."""
    notes.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc_per_node", str(count), __file__, "--worker", str(notes), *line]
    log = (notes / "log").open("w")
    return subprocess.Popen(command, start_new_session=True, stdout=log, stderr=log)


def finish(running: subprocess.Popen, notes: Path) -> list[dict]:
    """Wait; return what each process took."""
    if running.wait():
        sys.exit((notes / "log").read_text())
    return [json.loads(path.read_text()) for path in notes.iterdir() if path.name != "log"]


def compare(one: Path, other: Path) -> str:
    """Compare two folders of parts: every name and decision, and the probabilities."""
    import numpy as np
    import pyarrow.dataset as ds

    first, second = (ds.dataset(folder).to_table() for folder in (one, other))
    same = all(first[name].equals(second[name]) for name in ("item", "labels"))
    gap = max(
        (
            np.abs(first[name].to_numpy() - second[name].to_numpy()).max()
            for name in CLASSES
            if len(first) == len(second)
        ),
        default=np.inf,
    )
    return f"{'yes' if same else 'NO'}, {gap:.0e}"


def measure(kind: str, given: argparse.Namespace) -> None:
    """Print a table of one kind of rows."""
    rows = given.rows if kind == "features" else given.images
    print(f"\n{rows:,} {'rows of features' if kind == 'features' else 'images'}\n")
    print_header(
        "processes", "rows/s", "of linear", "CPU s per 1,000 rows", "memory per process, MB",
        "same decisions, largest difference",
    )  # fmt: skip
    with tempfile.TemporaryDirectory(dir=given.folder) as made:
        folder, base = Path(made), None
        line = ["predict", str(folder / "run"), *make_inputs(kind, folder, given)]
        line += ["--device", "cpu", "--out"]
        for count in given.processes:
            out = folder / f"parts-{count}"
            found = finish(launch(count, n := folder / f"notes-{count}", [*line, f"{out}/"]), n)
            rate = rows / max(one["wall"] for one in found)
            base = base or (rate / count, out)
            print_row(
                count, f"{rate:,.0f}", f"{rate / count / base[0]:.2f}",
                f"{1000 * sum(one['cpu'] for one in found) / rows:.3f}",
                f"{max(one['memory'] for one in found) / 1e6:.0f}", compare(base[1], out),
            )  # fmt: skip
        for count in given.killed:
            out, notes = folder / f"killed-{count}", folder / f"killed-notes-{count}"
            running = launch(count, notes, [*line, f"{out}/"])
            parts = len(list(base[1].glob("part-*")))
            while running.poll() is None and len(list(out.glob("part-*"))) < parts / 3:
                time.sleep(0.005)
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            kept = {path: path.stat().st_mtime_ns for path in out.glob("part-*")}
            finish(launch(2 if count > 2 else 1, notes, [*line, f"{out}/"]), notes)
            again = sum(path.stat().st_mtime_ns != kept[path] for path in kept)
            print_row(
                f"{count}, killed at {len(kept)} of {parts} parts", "", "", "",
                f"{again} written again", compare(base[1], out),
            )  # fmt: skip


# ---------------------------------------------------------------------- what limits a cluster


def simulate(workers: int, parts: int, seconds: float, given: argparse.Namespace) -> float:
    """Return the hours of `parts`, each `seconds` of a worker, that read from one store.

    A part first waits for its bytes: the store gives `store` GB/s to all, `line` GB/s to one. Times
    of parts vary, workers fail and start again, and repeat the part that was lost.
    """
    import heapq

    import numpy as np

    random = np.random.default_rng(0)
    free, store = [(0.0, k) for k in range(workers)], 0.0
    heapq.heapify(free)
    end = 0.0
    for _ in range(parts):
        at, worker = heapq.heappop(free)
        # The store gives bytes in turn; a worker reads no faster than its own line.
        store = max(store, at) + given.part_gb / given.store
        ready = max(store, at + given.part_gb / given.line)
        took = seconds * random.gamma(25, 1 / 25)
        if random.random() < took / (3600 * given.hours_to_failure):
            took += random.random() * took + given.restart
        end = max(end, ready + took)
        heapq.heappush(free, (ready + took, worker))
    return end / 3600


def show_simulation(given: argparse.Namespace) -> None:
    """Print hours and the share of linear for numbers of workers."""
    print_header("workers", "hours", "of linear")
    seconds = given.part_rows / given.rate
    for workers in given.workers:
        hours = simulate(workers, given.parts, seconds, given)
        ideal = given.parts * seconds / workers / 3600
        print_row(workers, f"{hours:,.2f}", f"{ideal / hours:.2f}")


def main(words: list[str]) -> None:
    if words[:1] == ["--worker"]:
        return work(words[1], words[2:])
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kinds", nargs="*", default=["features", "images"])
    parser.add_argument("--processes", type=int, nargs="*", default=[1, 2, 4, 8, 16])
    parser.add_argument("--killed", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--photos", type=Path, help="a folder of JPEG files")
    parser.add_argument("--backbone", default="test_efficientnet")
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--folder", type=Path, help="where files are made (default: /tmp)")
    parser.add_argument("--simulate", action="store_true", help="print the simulation only")
    parser.add_argument("--workers", type=int, nargs="*", default=[8, 32, 128, 512])
    parser.add_argument("--parts", type=int, default=12_208, help="parts of all")
    parser.add_argument("--part-rows", type=float, default=8192, help="rows of a part")
    parser.add_argument("--part-gb", type=float, default=0.82, help="GB of a part")
    parser.add_argument("--rate", type=float, default=500, help="rows/s of a worker")
    parser.add_argument("--store", type=float, default=10.0, help="GB/s of the store, to all")
    parser.add_argument("--line", type=float, default=0.5, help="GB/s of the store, to a worker")
    parser.add_argument("--hours-to-failure", type=float, default=500.0, help="of a worker")
    parser.add_argument("--restart", type=float, default=300.0, help="seconds")
    given = parser.parse_args(words)
    if given.simulate:
        return show_simulation(given)
    for kind in given.kinds:
        measure(kind, given)


if __name__ == "__main__":
    start(
        main,
        "--rows 9000 --kinds features --processes 1 2 --killed 2 --folder OUT",
        "--simulate --parts 200",
    )
