"""VOC 2012 with one positive per image: every method, one recipe, several seeds, one table.

    python benchmarks/voc.py DATA --out results/ [--methods wan em ...] [--seeds 0 1 2] [--jobs 8]
    python benchmarks/voc.py DATA --out results/ --table        # print the finished runs

DATA holds labels.csv (image, split in train/val/test, observed, one 0/1 column per class), the
images as zips, and the weights tf_efficientnet_lite0.safetensors. One untuned recipe for all:
head first on frozen features (12 epochs, 3e-4), then all layers (6 epochs, 1e-4, one-cycle,
batch 32, batch norm frozen, EMA 0.999, random crop and flip); the epoch with the best validation
mAP on complete labels is kept. Finished runs are not repeated.
"""

import argparse
import json
import multiprocessing
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

# Arguments of the papers for VOC, where published; otherwise the defaults of the library.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "complete": ("bce", {}),
    "an": ("bce", {}),
    "an-ls": ("an-ls", {}),
    "wan": ("wan", {}),
    "dw": ("wan", {"weight": 0.1}),
    "focal": ("focal", {"alpha": 0.75}),
    "asl": ("asl", {"gamma_neg": 2, "margin": 0.2}),
    "entmin": ("entmin", {"weight": 0.01}),
    "epr": ("epr", {"expected_positives": 1.5}),
    "role": ("role", {"expected_positives": 1.5}),
    "em": ("em", {"alpha": 0.2}),
    "em-apl": ("em-apl", {"alpha": 0.2, "beta": 0.02, "warmup": 3}),
    "hill": ("hill", {}),
    "splc": ("splc", {}),
    "gr": ("gr", {}),
    "lasd": ("lasd", {"expected_positives": 1.46}),
    "ll-r": ("ll-r", {"delta": 0.002}),
    "ll-ct": ("ll-ct", {"delta": 0.002}),
    "ll-cp": ("ll-cp", {"delta": 0.001}),
}


def run(data: Path, out: Path, name: str, seed: int) -> None:
    """Train once, and append the results to results.jsonl."""
    import torch

    import halftruth

    torch.set_num_threads(2)
    method, options = METHODS[name]
    observed = {"label_column": "observed"}
    complete = {"zero": "absent", "drop_columns": ["observed"]}
    started = time.time()
    result = halftruth.fit(
        data / "labels.csv",
        [str(path) for path in sorted(data.glob("*.zip"))],
        truth=data / "labels.csv",
        reading={"split_column": "split", **(complete if name == "complete" else observed)},
        reading_truth={"split_column": "split", **complete},
        method=method,
        options=options,
        backbone="tf_efficientnet_lite0",
        weights=data / "tf_efficientnet_lite0.safetensors",
        epochs=6,
        seed=seed,
        cache="disk",
        cache_dir=out / "cache",
        workers=0,
        out=out / f"{name}-{seed}",
        quiet=True,
    )
    record = {"name": name, "seed": seed, "seconds": round(time.time() - started, 1)}
    record |= {"stage": result.best_stage, "epoch": result.best_epoch}
    record |= {"val": result.val, "test": result.test}
    with (out / "results.jsonl").open("a") as file:
        file.write(json.dumps(record) + "\n")
    print(
        name, seed, f"test mAP {100 * result.test['mAP']:.2f}", record["seconds"], "s", flush=True
    )


def records(out: Path) -> list[dict[str, Any]]:
    path = out / "results.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(out: Path) -> None:
    """Mean and standard deviation over seeds, best first."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for record in records(out):
        rows.setdefault(record["name"], []).append(record["test"])

    def cell(tests: list[dict[str, float]], key: str) -> str:
        values = [100 * test[key] for test in tests]
        spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
        return f"{statistics.mean(values):.2f}{spread}"

    print("| method | test mAP | CF1 | OF1 | seeds |\n|---|---|---|---|---|")
    for name, tests in sorted(
        rows.items(), key=lambda item: -statistics.mean(test["mAP"] for test in item[1])
    ):
        cells = " | ".join(cell(tests, key) for key in ("mAP", "CF1", "OF1"))
        print(f"| {name} | {cells} | {len(tests)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if not options.table:
        options.out.mkdir(parents=True, exist_ok=True)
        done = {(record["name"], record["seed"]) for record in records(options.out)}
        jobs = [(n, s) for s in options.seeds for n in options.methods if (n, s) not in done]
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
            # The first run alone: it decodes the images and extracts the features for all.
            for job in jobs[:1]:
                pool.submit(run, options.data, options.out, *job).result()
            for future in [pool.submit(run, options.data, options.out, *job) for job in jobs[1:]]:
                future.result()
    table(options.out)


if __name__ == "__main__":
    main()
