"""CPU time and memory at 1x, 4x and 16x rows and classes, for every way that data is read.

    python benchmarks/scaling.py                               # all cases
    python benchmarks/scaling.py --only parquet predict --factors 1 4
    python benchmarks/scaling.py --only many-rows --base 200000 --classes 30000 --factors 1

Cases: `rows` and `classes` train one epoch of swan on a label file and a .npy file of 64 features,
`texts` on texts of 12 words, `parquet` on a Parquet table (a vector of 256 numbers, a number, a
category) whose encoded features are kept on disk; `predict` writes predictions of the same table as
Parquet; `tar` trains the head of a small network on images in tar shards, read from the shards;
`many-rows` and `many-classes` are `halftruth train` with default settings on the simulated data of
many_classes.py.

Every measurement is a process with one thread. Seconds are CPU time without imports, so that other
work on the machine counts little. Memory is the peak above that of the imports: all of the process,
as the kernel counts it (VmHWM), and without pages of files, which the system can drop (RssAnon,
looked up every 20 ms, so that short peaks can be missed).
"""

import argparse
import io
import json
import tarfile
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from common import print_header, print_row, run_case, start

CLASSES, WIDTH, SHARD = 20, 256, 500
# Rows and classes at 1x, and which of them grows.
CASES = {
    "rows": (10_000, 80, "rows"),
    "classes": (10_000, 80, "classes"),
    "texts": (2500, 80, "rows"),
    "parquet": (12_500, CLASSES, "rows"),
    "predict": (12_500, CLASSES, "rows"),
    "tar": (500, CLASSES, "rows"),
    "many-rows": (3125, 6250, "rows"),
    "many-classes": (12_500, 1562, "classes"),
}


class Peak:
    """Follows the memory of this process: all of it exactly, without pages of files in a thread."""

    def __enter__(self) -> "Peak":
        self.all = self.own = 0
        # The highest value is counted from here on.
        Path("/proc/self/clear_refs").write_text("5")
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()
        return self

    def _follow(self) -> None:
        while not self.done.wait(0.02):
            self._look()

    def _look(self) -> None:
        lines = Path("/proc/self/status").read_text().splitlines()
        words = {line.split(":")[0]: line.split() for line in lines}
        self.all = int(words["VmHWM"][1]) * 1024
        self.own = max(self.own, int(words["RssAnon"][1]) * 1024)

    def __exit__(self, *error: object) -> None:
        self.done.set()
        self.thread.join()
        self._look()


# ---------------------------------------------------------------------- files


def write_files(case: str, folder: Path, rows: int, classes: int) -> None:
    """Write the files of a case."""
    if case in ("parquet", "predict"):
        return write_parquet(folder, rows)
    if case == "tar":
        return write_shards(folder, rows)
    import numpy as np

    if case.startswith("many"):
        from many_classes import simulate, write_tags

        x, shown, _ = simulate(rows, classes)
        np.save(folder / "x.npy", x)
        return write_tags(folder / "labels.tsv", shown)
    rng = np.random.default_rng(0)
    # Lists of 3 labels per row, as a data set of many classes has them.
    labels = rng.integers(0, classes, (rows, 3))
    words = np.minimum(rng.zipf(1.3, (rows, 12)), 5000)
    with (folder / "labels.tsv").open("w") as file:
        file.write("id\tlabels\ttext\n")
        for row, (some, text) in enumerate(zip(labels, words, strict=True)):
            said = " ".join(f"word{k}" for k in text) if case == "texts" else "-"
            file.write(f"r{row}\t{'|'.join(map(str, some))}\t{said}\n")
    np.save(folder / "x.npy", rng.normal(size=(rows, 64)).astype(np.float32))


def write_parquet(folder: Path, rows: int) -> None:
    """Write labels.parquet with lists of two classes, and table.parquet, in row groups."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    writers: dict[str, Any] = {}
    for at in range(0, rows, 10_000):
        count = min(10_000, rows - at)
        ids = [f"r{k}" for k in range(at, at + count)]
        drawn = rng.integers(0, CLASSES, (count, 2))
        vectors = rng.normal(size=(count, WIDTH)).astype(np.float32)
        vectors[np.arange(count)[:, None], drawn] += 2
        columns = {
            "id": ids,
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), WIDTH),
            "age": rng.normal(size=count),
            "region": [("north", "south", "west")[k % 3] for k in range(count)],
        }
        labels = {"id": ids, "labels": [[f"c{k}" for k in set(row)] for row in drawn]}
        for name, found in (("table", pa.table(columns)), ("labels", pa.table(labels))):
            if name not in writers:
                writers[name] = pq.ParquetWriter(folder / f"{name}.parquet", found.schema)
            writers[name].write_table(found)
    for writer in writers.values():
        writer.close()


def write_shards(folder: Path, rows: int) -> None:
    """Write tar shards of small JPEGs with labels in .json."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    (folder / "shards").mkdir()
    for number, at in enumerate(range(0, rows, SHARD)):
        with tarfile.open(folder / "shards" / f"s-{number:04d}.tar", "w") as archive:
            for key in range(at, min(at + SHARD, rows)):
                file = io.BytesIO()
                pixels = rng.integers(0, 255, (8, 8, 3)).astype(np.uint8)
                Image.fromarray(pixels).resize((96, 96)).save(file, "JPEG")
                label = json.dumps({"labels": [f"c{key % CLASSES}"]}).encode()
                for name, data in ((f"{key}.jpg", file.getvalue()), (f"{key}.json", label)):
                    info = tarfile.TarInfo(name)
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))


# ---------------------------------------------------------------------- one measurement


def find_settings(case: str, folder: Path) -> dict[str, Any]:
    """Return the settings of the training of a case."""
    common = {"out": folder / "run", "device": "cpu", "report": False, "quiet": True}
    if case == "tar":
        return {
            **common, "labels": folder / "shards", "images": folder / "shards", "cache": "none",
            "label_column": "labels", "method": "swan", "backbone": "test_efficientnet",
            "weights": "none", "image_size": 64, "tune": "all", "epochs": 1, "augment": "none",
            "workers": 0,
        }  # fmt: skip
    if case in ("parquet", "predict"):
        return {
            **common, "labels": folder / "labels.parquet", "label_column": "labels",
            "features": folder / "table.parquet", "method": "swan", "cache": "disk", "epochs": 1,
            "batch_size": 512,
        }  # fmt: skip
    common |= {"labels": folder / "labels.tsv", "features": folder / "x.npy"}
    if case.startswith("many"):
        return common
    common |= {"method": "swan", "epochs": 1, "batch_size": 256, "drop_columns": ["text"]}
    if case == "texts":
        del common["features"], common["drop_columns"]
        common["text"] = "text"
    return common


def measure(case: str, name: str) -> dict[str, float]:
    """Train, or predict, in this process; return seconds and bytes."""
    import torch

    import halftruth
    import halftruth.train.results.run_result
    from halftruth.models import import_timm
    from halftruth.train.results.predictions import write_predictions

    torch.set_num_threads(1)
    import_timm()
    folder = Path(name)
    if case == "predict":
        run = halftruth.load(folder / "run", device="cpu")
    with Peak() as peak:
        time.sleep(0.1)
        before, started = (peak.all, peak.own), time.process_time()
        if case == "predict":
            write_predictions(run, folder / "p.parquet", folder / "table.parquet")
        else:
            halftruth.fit(**find_settings(case, folder))
        seconds = time.process_time() - started
    return {"seconds": seconds, "all": peak.all - before[0], "own": peak.own - before[1]}


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--base", type=int, help="rows at 1x")
    parser.add_argument("--classes", type=int, help="classes at 1x")
    parser.add_argument("--factors", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.case:
        return print(json.dumps(measure(*given.case)))
    print_header("case", "rows", "classes", "CPU seconds", "rows per second", "memory",
                 "without pages of files")  # fmt: skip
    for case in given.only:
        for factor in given.factors:
            rows, classes, grows = CASES[case]
            rows, classes = given.base or rows, given.classes or classes
            rows, classes = (
                (rows * factor, classes) if grows == "rows" else (rows, classes * factor)
            )
            with tempfile.TemporaryDirectory() as folder:
                write_files(case, Path(folder), rows, classes)
                for part in ["parquet", "predict"] if case == "predict" else [case]:
                    got = run_case(__file__, measure, part, folder)
            sizes = (f"{got[name] / 1e6:.0f} MB" for name in ("all", "own"))
            rate = f"{rows / max(got['seconds'], 1e-3):,.0f}"
            print_row(case, f"{rows:,}", f"{classes:,}", f"{got['seconds']:.1f}", rate, *sizes)


if __name__ == "__main__":
    start(main, "--base 60 --factors 1")
