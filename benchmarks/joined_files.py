"""Two label files with different classes, joined, beside one file with all classes.

    python benchmarks/joined_files.py voc.npz

The file holds X_train, Y_train, X_test, Y_test with complete labels. Half of the training rows are
labelled for the first half of the classes, the other rows for the other half; `halftruth train
a.csv --also b.csv --zero absent` with default settings is compared with all rows labelled for all
classes. Percent mAP on the test rows. Each class has half of its labels in the joined files, so
"half of the rows" is given too: all classes, but only a random half of the rows.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import halftruth
from halftruth.metrics import mean_average_precision


def write(path, items, labels, columns):
    names = [f"class{k:03d}" for k in columns]
    frame = pd.DataFrame(labels[:, columns], columns=names)
    frame.insert(0, "id", items)
    frame.to_csv(path, index=False)


def score(folder, name, labels, features, test, truth, **options):
    out = folder / name
    halftruth.fit(
        labels, features=features, out=out, zero="absent", quiet=True, report=False, **options
    )
    found = halftruth.load(out).predict(test)
    columns = sorted(column for column in found if column.startswith("class"))
    return 100 * mean_average_precision(found[columns].to_numpy(), truth)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--method", default="auto")
    parser.add_argument("--ignore", action="store_true", help="method bce, unknown is ignored")
    given = parser.parse_args()
    data = np.load(given.data)
    x, y, test, truth = (data[key] for key in ("X_train", "Y_train", "X_test", "Y_test"))
    y, truth = (y > 0).astype(int), (truth > 0).astype(int)
    count, classes = y.shape
    items = np.array([f"r{row}" for row in range(count)])
    print("seed: joined, all classes, half of the rows", flush=True)
    for seed in map(int, given.seeds.split(",")):
        rng = np.random.default_rng(seed)
        order, half = rng.permutation(count), rng.permutation(classes)
        first, second = order[: count // 2], order[count // 2 :]
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            table = pd.DataFrame(x.astype(np.float32), columns=[f"f{k}" for k in range(x.shape[1])])
            table.insert(0, "id", items)
            table.to_parquet(folder / "x.parquet")
            write(folder / "a.csv", items[first], y[first], np.sort(half[: classes // 2]))
            write(folder / "b.csv", items[second], y[second], np.sort(half[classes // 2 :]))
            write(folder / "all.csv", items, y, np.arange(classes))
            write(folder / "half.csv", items[first], y[first], np.arange(classes))
            new = table.drop(columns="id").iloc[:0].copy()
            new = pd.DataFrame(test.astype(np.float32), columns=new.columns)
            common = {"features": folder / "x.parquet", "test": new, "truth": truth, "seed": seed,
                      "method": given.method}  # fmt: skip
            if given.ignore:
                common |= {"method": "bce", "options": {"unknown": "ignore"}}
            found = [
                score(folder, "joined", folder / "a.csv", also=[str(folder / "b.csv")], **common),
                score(folder, "all", folder / "all.csv", **common),
                score(folder, "half", folder / "half.csv", **common),
            ]
        print(f"{seed}: {' '.join(f'{value:.2f}' for value in found)}", flush=True)


if __name__ == "__main__":
    main()
