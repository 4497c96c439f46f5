"""Peak memory and rows per second of data that is read in parts, at 1x, 4x and 16x rows.

    python benchmarks/streaming.py                # all cases
    python benchmarks/streaming.py --only predict --base 25000

Cases: `features` trains one epoch of swan on a Parquet table (a vector of 256 numbers, a number, a
category) whose encoded features are kept on disk; `predict` writes predictions of the same table as
Parquet; `tar` trains the head of a small network on images in tar shards, read from the shards.
Every case is a process with one thread. Seconds are CPU time without imports, so that other work on
the machine counts little. Memory is the peak above that of the imports: all of the process, as the
kernel counts it (VmHWM), and without pages of files, which the system can drop (RssAnon, looked up
every 20 ms, so that short peaks can be missed). Labels (one byte per label) and ids are always in
memory.
"""

import argparse
import io
import json
import tarfile
import tempfile
import threading
import time
from pathlib import Path

from common import print_header, print_row, run_case, start

CLASSES, WIDTH, SHARD = 20, 256, 500


class Peak:
    """Follows the memory of this process: all of it exactly, without pages of files in a thread."""

    def __enter__(self):
        self.all = self.own = 0
        # The highest value is counted from here on.
        Path("/proc/self/clear_refs").write_text("5")
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()
        return self

    def _follow(self):
        while not self.done.wait(0.02):
            self._look()

    def _look(self):
        lines = Path("/proc/self/status").read_text().splitlines()
        words = {line.split(":")[0]: line.split() for line in lines}
        self.all = int(words["VmHWM"][1]) * 1024
        self.own = max(self.own, int(words["RssAnon"][1]) * 1024)

    def __exit__(self, *error):
        self.done.set()
        self.thread.join()
        self._look()


def make_table(folder, rows):
    """labels.parquet with lists of two classes, table.parquet; written in row groups."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    writers = {}
    for at in range(0, rows, 10_000):
        count = min(10_000, rows - at)
        ids = [f"r{k}" for k in range(at, at + count)]
        drawn = rng.integers(0, CLASSES, (count, 2))
        vectors = rng.normal(size=(count, WIDTH)).astype(np.float32)
        vectors[np.arange(count)[:, None], drawn] += 2
        table = pa.table(
            {
                "id": ids,
                "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), WIDTH),
                "age": rng.normal(size=count),
                "region": [("north", "south", "west")[k % 3] for k in range(count)],
            }
        )
        labels = pa.table({"id": ids, "labels": [[f"c{k}" for k in set(row)] for row in drawn]})
        for name, found in (("table", table), ("labels", labels)):
            if name not in writers:
                writers[name] = pq.ParquetWriter(folder / f"{name}.parquet", found.schema)
            writers[name].write_table(found)
    for writer in writers.values():
        writer.close()


def make_shards(folder, rows):
    """Tar shards of 500 small JPEGs with labels in .json."""
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


def measure(case, folder):
    """Run one case in this process; return seconds and bytes."""
    import pyarrow.parquet as pq
    import torch

    import halftruth
    import halftruth.train.results.run_result
    from halftruth.models import import_timm
    from halftruth.train.results.predictions import write_predictions

    torch.set_num_threads(1)
    import_timm()
    folder = Path(folder)
    common = {"label_column": "labels", "device": "cpu", "report": False, "quiet": True}
    table = {"features": folder / "table.parquet", "method": "swan", "cache": "disk"}
    if case == "predict":
        run = halftruth.load(folder / "r")
        run.predict(next(pq.ParquetFile(folder / "table.parquet").iter_batches(100)).to_pandas())
    with Peak() as peak:
        time.sleep(0.1)
        before = peak.all, peak.own
        started = time.process_time()
        if case == "features":
            halftruth.fit(
                folder / "labels.parquet", **table, **common, epochs=1, batch_size=512,
                out=folder / "r",
            )  # fmt: skip
        elif case == "predict":
            write_predictions(run, folder / "p.parquet", folder / "table.parquet")
        else:
            halftruth.fit(
                folder / "shards", images=folder / "shards", **common, method="swan", cache="none",
                backbone="test_efficientnet", weights="none", image_size=64, tune="all", epochs=1,
                augment="none", workers=0, out=folder / "r",
            )  # fmt: skip
        seconds = time.process_time() - started
    return {"seconds": seconds, "all": peak.all - before[0], "own": peak.own - before[1]}


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=("features", "predict", "tar"))
    parser.add_argument("--base", type=int, help="rows at 1x (default: 12,500; tar: 500)")
    parser.add_argument("--factors", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.case:
        return print(json.dumps(measure(*args.case)))
    print_header("case", "rows", "CPU seconds", "rows per second", "memory",
                 "without pages of files")  # fmt: skip
    for case in [args.only] if args.only else ["features", "predict", "tar"]:
        base = args.base or (500 if case == "tar" else 12_500)
        for rows in (base * factor for factor in args.factors):
            with tempfile.TemporaryDirectory() as folder:
                (make_shards if case == "tar" else make_table)(Path(folder), rows)
                for part in ["features", "predict"] if case == "predict" else [case]:
                    got = run_case(__file__, measure, part, folder)
            sizes = (f"{got[name] / 1e6:.0f} MB" for name in ("all", "own"))
            seconds = got["seconds"]
            print_row(case, f"{rows:,}", f"{seconds:.1f}", f"{rows / seconds:,.0f}", *sizes)


if __name__ == "__main__":
    start(main, "--base 60 --factors 1")
