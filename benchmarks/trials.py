"""Compare rules by which one could choose among trials, where labels are incomplete.

    python benchmarks/trials.py --data DATA --out trials.jsonl [--only scene yeast] [--seeds 0 1 2]

Every setting of a head on features is trained without the held-out training rows. It is
evaluated on the held-out rows by their observed labels, and on the test rows by complete labels.
The criterion is √(mAP·AUC), or mAP where no label is unknown. The table shows, for each rule, the
gain in test mAP over the first setting: mean and worst over draws of the labels. Runs in the file
are not repeated.
"""

import argparse
import dataclasses
import json
import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from common import add_line, print_header, print_row, read_lines, start
from halftruth.bench.grid import load_grid
from halftruth.bench.run_data import Place
from halftruth.bench.training import Bench
from halftruth.metrics import mean_average_precision, mean_roc_auc
from halftruth.train.auto.resolve import hold_out_rows, make_trial
from halftruth.train.config import Config
from halftruth.train.devices import OneProcess
from halftruth.train.settings import DEFAULTS_ON_FEATURES

GRIDS = Path(__file__).parent / "grids"
LABELS = {"auto-ablation": ["single", "left-40"], "chest": ["complete"]}
Found = dict[str, Any]


def is_clearly_better(found: Found, first: Found) -> bool:
    """Whether the criterion is higher by 1 %; by 1/√k % as a mean over k held-out parts."""
    return bool(found["criterion"] > first["criterion"] * (1 + 0.01 / math.sqrt(first["parts"])))


def has_no_lower_auc(found: Found, first: Found) -> bool:
    return bool(found["AUC"] >= first["AUC"])


# Which settings may replace the first one, and the number by which the best of them is chosen.
Rule = tuple[Callable[[Found, Found], bool], str]
RULES: dict[str, Rule] = {
    "criterion a percent ahead; best criterion": (is_clearly_better, "criterion"),
    "and AUC not behind; best criterion": (
        lambda f, first: is_clearly_better(f, first) and has_no_lower_auc(f, first),
        "criterion",
    ),
    "criterion ahead, AUC not behind; best AUC": (
        lambda f, first: f["criterion"] > first["criterion"] and has_no_lower_auc(f, first),
        "AUC",
    ),
    "AUC ahead; best AUC": (lambda f, first: f["AUC"] > first["AUC"], "AUC"),
    "the best on test": (lambda f, first: f["test"] > first["test"], "test"),
}


def settings(matrix: Any, seed: int) -> tuple[Config, list[dict[str, Any]]]:
    """A head on features, and other settings of it that may be tried."""
    size = 2 ** round(math.log2(min(max(len(matrix.splits.train) / 300, 32), 1024)))
    usual: dict[str, Any] = {
        **DEFAULTS_ON_FEATURES, "method": "swan", "features": "X", "ridge": 2.0, "epochs": 20,
        "head_lr": float(f"{0.04 / math.sqrt(matrix.x.shape[1]):.2g}"), "batch_size": int(size),
        "ema": 0.99, "select": "last",
    }  # fmt: skip
    others: list[dict[str, Any]] = [{"ridge": value} for value in (0.5, 8.0, 0.125)]
    return Config(**usual, seed=seed), [*others, {"hidden": 512, "dropout": 0.8, "head_lr": 1e-3}]


def evaluate_setting(config: Config, matrix: Any) -> Found:
    """Train and evaluate a setting; means over the held-out parts."""
    rows, labels = matrix.splits.train, torch.from_numpy(matrix.labels)
    inside = None if matrix.groups is None else matrix.groups[rows]
    parts = hold_out_rows(rows, config.seed, inside)
    found = defaultdict(list)
    for held in parts:
        stage = make_trial(config, matrix.x, labels, rows, held, OneProcess("cpu"))
        found["criterion"].append(stage.run().kept)
        for part, metrics in (
            (held, {"mAP": mean_average_precision, "AUC": mean_roc_auc}),
            (matrix.splits.test, {"test": mean_average_precision}),
        ):
            scores, shown = stage.score(part), labels[torch.as_tensor(part)]
            for name, metric in metrics.items():
                found[name].append(metric(scores, shown))
    return {"parts": len(parts), **{name: fmean(values) for name, values in found.items()}}


def run_missing(options: argparse.Namespace) -> Iterator[Found]:
    """Run the settings that are not in the file yet."""
    done = {
        tuple(run[key] for key in ("data", "labels", "seed", "rival"))
        for run in read_lines(options.out)
    }
    place = Place(options.data, options.cache or options.out.with_suffix(".cache"), "cpu")
    bench = Bench(place)
    for name, labels in LABELS.items():
        grid = load_grid(GRIDS / f"{name}.yaml").select(methods="auto")
        grid.labels = labels
        for cell in grid.cells():
            for seed in options.seeds:
                if cell.method != "auto" or (options.only and cell.data not in options.only):
                    continue
                matrix = bench.rows(cell.job(seed))
                config, rivals = settings(matrix, seed)
                for rival in [{}, *rivals]:
                    about = (cell.data, cell.column, seed, json.dumps(rival))
                    if about not in done:
                        taken = evaluate_setting(dataclasses.replace(config, **rival), matrix)
                        yield {
                            **dict(zip(("data", "labels", "seed", "rival"), about, strict=True)),
                            **taken,
                        }


def show(found: list[Found]) -> None:
    """Print the gain on test per rule and data set."""
    draws: dict[tuple[str, int, str], dict[str, Found]] = defaultdict(dict)
    for run in found:
        draws[run["data"], run["seed"], run["labels"]][run["rival"]] = run
    sets = list(dict.fromkeys(data for data, *_ in draws))
    count = {name: sum(data == name for data, *_ in draws) for name in sets}
    print_header("rule", *(f"{name} ({count[name]} draws)" for name in sets))
    for title, (allowed, key) in RULES.items():
        gains = defaultdict(list)
        for (data, *_), tried in draws.items():
            first = tried["{}"]
            chosen = max(
                (run for run in tried.values() if run is not first and allowed(run, first)),
                key=itemgetter(key),
                default=first,
            )
            gains[data].append(100 * (chosen["test"] - first["test"]))
        print_row(title, *(f"{fmean(gains[n]):+.2f}, {min(gains[n]):+.2f}" for n in sets))


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="as for the grids")
    parser.add_argument("--out", type=Path, required=True, help="file of results (.jsonl)")
    parser.add_argument("--cache", type=Path, help="for features of images")
    parser.add_argument("--only", nargs="+", help="data sets")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    for run in run_missing(options):
        print(json.dumps(run), flush=True)
        add_line(options.out, run)
    show(read_lines(options.out))


if __name__ == "__main__":
    start(main, "--data DATA --out OUT/lines.jsonl --only yeast --seeds 0")
