"""What `halftruth bench paper` computes besides grids: statistics, settings, single runs."""

import dataclasses
import json
import shutil
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from halftruth.bench import datasets as benchmarks
from halftruth.bench.datasets import Benchmark, BenchmarkWarning
from halftruth.bench.datasets.benchmark import agrees
from halftruth.bench.paper_items import Item
from halftruth.bench.papers import Recipe
from halftruth.bench.run_data import first_rows
from halftruth.data import DataError, Splits, write_labels

Say = Callable[[str], None]
# So small a rate that an epoch of training changes nothing that can be seen.
NO_TRAINING = {"lr": 1e-12, "head_lr": 1e-12, "epochs": 1, "freeze_bn": True}


def data_root(data: Path, reader: str) -> Path:
    """The folder of a data set: DIR/NAME, or DIR itself."""
    return data / reader if (data / reader).exists() else data


def read_data(
    data: Path,
    reader: str,
    labels: str = "complete",
    options: dict[str, Any] | None = None,
    limit: int | None = None,
) -> Benchmark:
    """Read a data set below `data`, without the report of its differences."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BenchmarkWarning)
        read = benchmarks.load(reader, data_root(data, reader), labels=labels, **(options or {}))
    return read if limit is None else first_rows(read, limit)


def compare_statistics(item: Item, data: Path) -> str:
    """A Markdown table of counted and published statistics of the data sets that are there."""
    lines = ["| data set | statistic | found | published | source |", "|---|---|---|---|---|"]
    missing, classes = [], []
    for about in item.values["statistics"]:
        name, labels = about["data"], about.get("labels", "complete")
        if not (data / name).exists() and len(item.readers) > 1:
            missing.append(f"{name} was not found in {data}: {benchmarks.explain(name)}")
            continue
        read = read_data(data, name, labels, about.get("options"))
        counted = read.statistics
        for entry in read.published:
            if entry.what not in counted or entry.setting not in (None, labels):
                continue
            found = counted[entry.what]
            mark = "" if agrees(found, entry.value) else " (differs)"
            lines.append(
                f"| {name}, {labels} | {entry.what.replace('_', ' ')} | {found:,.6g}{mark} | "
                f"{entry.value} | {entry.source} |"
            )
        if item.values.get("classes"):
            classes.append(f"{name}: {', '.join(read.classes)}")
    if len(lines) == 2:
        raise DataError("\n".join(missing))
    return "\n".join([*lines, "", *classes, *missing])


def list_settings(item: Item) -> str:
    """A Markdown table of the hyper-parameters of recipes, one column per data set."""
    chosen = item.recipes()
    keys = ("method", "batch_size", "lr", "epochs", "patience", "head_lr_mult")
    columns = [
        {
            **{key: recipe.settings[key] for key in keys if key in recipe.settings},
            **_flat(recipe.settings["options"]),
        }
        for recipe in chosen
    ]
    names = list(dict.fromkeys(key for column in columns for key in column))
    head = "| | " + " | ".join(recipe.name for recipe in chosen) + " |"
    lines = [head, "|---" * (len(chosen) + 1) + "|"]
    for name in names:
        lines.append(f"| {name} | " + " | ".join(str(c.get(name, "–")) for c in columns) + " |")
    return "\n".join(lines)


def _flat(options: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in options.items():
        inner = isinstance(value, dict)
        found |= _flat(value, f"{prefix}{key}.") if inner else {f"{prefix}{key}": value}
    return found


def write_data(read: Benchmark, folder: Path) -> tuple[Path, Path]:
    """Write shown and complete labels of a data set; return both files."""
    folder.mkdir(parents=True, exist_ok=True)
    shown, truth = folder / "shown.csv", folder / "truth.csv"
    write_labels(read.observed, shown)
    write_labels(dataclasses.replace(read.observed, values=read.truth), truth)
    return shown, truth


def put_test_rows_for_validation(read: Benchmark) -> Benchmark:
    """The data set with its test rows in place of its validation rows, for records per epoch."""
    rows = np.sort(np.concatenate([read.splits.train, read.splits.test]))
    part = read.observed.select(rows)
    assert part.split is not None
    names = np.where(part.split == "train", "train", "val")
    splits = Splits(*(np.flatnonzero(names == name) for name in ("train", "val", "test")))
    observed = dataclasses.replace(part, split=names)
    return dataclasses.replace(
        read, observed=observed, truth=read.truth[rows], splits=splits, features=None, groups=None
    )


def train_recipes(
    item: Item,
    data: Path,
    out: Path,
    *,
    settings: dict[str, Any] | None = None,
    limit: int | None = None,
    say: Say = print,
) -> dict[str, list[Path]]:
    """Train the recipes of a figure once each; return the run folders by data set.

    A finished run is not repeated, and an interrupted one continues.
    """
    found: dict[str, list[Path]] = {}
    for recipe in item.recipes():
        name, row = recipe.name.split("/")
        read = read_data(data, recipe.reader, recipe.labels, recipe.reader_options, limit)
        if item.values.get("test_rows"):
            read = put_test_rows_for_validation(read)
        values = run_settings(recipe, read, out / "labels" / name, settings or {})
        folders = found.setdefault(name, [])
        if item.values.get("untrained"):
            before = {key: value for key, value in NO_TRAINING.items() if key != "head_lr"}
            folder = out / name / f"{row}-before-training"
            _train({**values, **before, "out": str(folder)}, say)
            folders.append(folder)
        epochs = item.values.get("examples", {}).get(recipe.name, [])
        folder = out / name / row
        folders += _train({**values, "out": str(folder)}, say, epochs)
    return found


def last_records(folders: dict[str, list[Path]], names: list[str]) -> str:
    """A Markdown table of records of the last epoch that has them, in percent, by run."""
    lines = ["| run | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for data, several in folders.items():
        for folder in several:
            found: dict[str, float] = {}
            for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
                record = json.loads(line)
                found |= {name: record[name] for name in names if record.get(name) is not None}
            cells = [f"{100 * found[name]:.2f}" if name in found else "–" for name in names]
            lines.append(f"| {data}/{folder.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def run_settings(
    recipe: Recipe, read: Benchmark, folder: Path, settings: dict[str, Any]
) -> dict[str, Any]:
    """The settings of `halftruth train` for a recipe on a data set that was read."""
    shown, truth = write_data(read, folder)
    labels = truth if recipe.settings["labels"].endswith("/truth.csv") else shown
    read.store()
    return {
        **recipe.settings,
        "labels": str(labels),
        "truth": str(truth),
        "images": [str(path) for path in read.images],
        "report": False,
        **settings,
    }


def _train(values: dict[str, Any], say: Say, keep: Iterable[int] = ()) -> list[Path]:
    """Train, or continue; return the run folder, after copies of it at the epochs to keep."""
    from halftruth.train.config import load_settings
    from halftruth.train.run import Run, train
    from halftruth.train.run_folder import BEST, RESULT

    folder, kept = Path(values["out"]), {}
    for epoch in keep:
        kept[epoch] = folder.with_name(f"{folder.name}-epoch-{epoch}")
    if not (folder / RESULT).exists():
        say(f"training {folder}")
        if kept:
            # Every epoch is kept in turn, so that its weights can be copied.
            values = {**values, "select": "last", "patience": None}

            def copy(record: dict[str, Any]) -> None:
                place = kept.get(int(record["epoch"]))
                if place is not None:
                    place.mkdir(parents=True, exist_ok=True)
                    for name in ("config.yaml", BEST):
                        shutil.copy(folder / name, place / name)

            Run(load_settings(None, values), quiet=True, on_epoch=copy).go()
        else:
            train(values, resume=True, quiet=True)
    return [*(place for place in kept.values() if place.exists()), folder]
