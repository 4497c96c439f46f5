"""auto end to end on VOC 2012 beside `role`, and variants of auto: which networks are combined.

    python benchmarks/voc_auto.py DATA WEIGHTS --labels left-75 --seeds 0,1,2 --out OUT
    python benchmarks/voc_auto.py --table OUT/results.jsonl

DATA holds labels.csv and the images of VOC 2012 as zips, WEIGHTS is the safetensors file of
tf_efficientnet_lite0. Labels of training and validation rows are hidden (`one` positive per image,
`left-75`, `left-40`). auto sees no complete label; `role` is trained at three learning rates, and
its epoch is chosen on complete labels of the validation rows. Test rows have complete labels.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

VARIANTS: dict[str, dict[str, Any]] = {
    "auto": {},
    "auto, frozen ensemble": {"frozen_ensemble": True},
    "auto, lr 3e-4": {"lr": 3e-4},
    "auto, lr 3e-4, frozen ensemble": {"lr": 3e-4, "frozen_ensemble": True},
    "auto, head only": {"tune": "head"},
    "role, lr 3e-5": {"method": "role", "lr": 3e-5},
    "role, lr 1e-4": {"method": "role", "lr": 1e-4},
    "role, lr 3e-4": {"method": "role", "lr": 3e-4},
    "swan": {"method": "swan", "interpolate": True},
    "an-ls": {"method": "an-ls"},
    "complete": {"method": "bce"},
}
DROPPED = {"left-75": 0.5, "left-40": 0.8, "one": 1.0}


def write_labels(data: Path, labels: str, seed: int, out: Path) -> Path:
    """Write the label file with hidden labels, and return its path."""
    import numpy as np
    import pandas as pd

    from halftruth.labels import drop_positives

    path = out / f"{labels}-{seed}.csv"
    if not path.exists():
        frame = pd.read_csv(data / "labels.csv").drop(columns="observed")
        classes = frame.columns[2:]
        truth = np.where(frame[classes].to_numpy() > 0, 1, -1).astype(np.int8)
        shown = drop_positives(truth, DROPPED[labels], seed=1200 + seed)
        test = (frame["split"] == "test").to_numpy()[:, None]
        frame[classes] = np.where(test, truth, shown)
        frame.to_csv(path, index=False)
    return path


def run(data: Path, weights: Path, labels: str, name: str, seed: int, out: Path) -> dict[str, Any]:
    """Train one variant, and return its test scores."""
    import halftruth
    from halftruth.train.results.evaluate import evaluate

    started, given = time.time(), dict(VARIANTS[name])
    complete = {"zero": "absent", "drop_columns": ["observed"], "split_column": "split"}
    if name == "complete":
        given["reading"] = complete
    else:
        given["reading"] = {"split_column": "split"}
    if given.get("method") == "role":
        given |= {"options": {"expected_positives": 1.46}}
    if "method" in given:
        given |= {"truth": data / "labels.csv", "reading_truth": complete, "epochs": 6}
    images = [str(path) for path in sorted(data.glob("*.zip"))]
    file = data / "labels.csv" if name == "complete" else write_labels(data, labels, seed, out)
    folder = out / f"{labels} {name} {seed}".replace(" ", "-").replace(",", "")
    result = halftruth.fit(
        file, images, backbone="tf_efficientnet_lite0", weights=weights, seed=seed, cache="disk",
        cache_dir=out / "cache", workers=0, out=folder, quiet=True, report=False, **given,
    )  # fmt: skip
    seconds = round(time.time() - started, 1)
    line = {"labels": labels, "name": name, "seed": seed, "seconds": seconds}
    for flip in (False, True):
        trained = halftruth.load(folder, flip=flip)
        found = evaluate(
            trained, data / "labels.csv", images=images, split="test", reading=complete
        )
        line["flip mAP" if flip else "mAP"] = found.metrics["mAP"]
    line["stage"] = result.best_stage
    return line


def print_table(path: Path) -> None:
    """Print mean and standard deviation over seeds."""
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for text in path.read_text().splitlines():
        line = json.loads(text)
        rows.setdefault((line["labels"], line["name"]), []).append(line)
    print("| labels | variant | test mAP | with flip | seconds | seeds |\n" + "|---" * 6 + "|")
    for (labels, name), lines in sorted(rows.items()):
        cells = []
        for key in ("mAP", "flip mAP"):
            values = [100 * line[key] for line in lines]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            cells.append(f"{statistics.mean(values):.2f} ± {spread:.2f}")
        seconds = statistics.mean(line["seconds"] for line in lines)
        print(f"| {labels} | {name} | {' | '.join(cells)} | {seconds:.0f} | {len(lines)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("weights", type=Path, nargs="?")
    parser.add_argument("--labels", default="left-75")
    parser.add_argument("--variants", default="", help="';' between; all by default")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--out", type=Path, default=Path("results/voc-auto"))
    parser.add_argument("--minutes", type=float, default=1e9, help="start nothing after this time")
    parser.add_argument("--table", type=Path, help="print the table of a results.jsonl")
    given = parser.parse_args()
    if given.table:
        print_table(given.table)
        return
    given.out.mkdir(parents=True, exist_ok=True)
    results, started = given.out / "results.jsonl", time.time()
    lines = results.read_text().splitlines() if results.exists() else []
    done = {tuple(json.loads(text)[k] for k in ("labels", "name", "seed")) for text in lines}
    names = [name.strip() for name in given.variants.split(";") if name] or list(VARIANTS)
    for seed in map(int, given.seeds.split(",")):
        for labels in given.labels.split(","):
            for name in names:
                late = time.time() - started > 60 * given.minutes
                if (labels, name, seed) in done or late:
                    continue
                line = run(given.data, given.weights, labels, name, seed, given.out)
                with results.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(json.dumps(line), flush=True)
    print_table(results)


if __name__ == "__main__":
    main()
