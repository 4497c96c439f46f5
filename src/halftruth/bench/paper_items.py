"""The tables and figures of the papers (paper_items.yaml): their list, grids, runs and texts."""

import copy
import difflib
import fnmatch
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from halftruth.bench import datasets as benchmarks
from halftruth.bench import read_bench_yaml
from halftruth.bench.cells import PRIOR
from halftruth.bench.datasets import Benchmark
from halftruth.bench.datasets.benchmark import agrees
from halftruth.bench.grid import Grid, make_grid, matching
from halftruth.bench.papers import Recipe, find_published, recipes
from halftruth.bench.result_tables import as_markdown
from halftruth.bench.run_data import (
    Place,
    load_benchmark,
    prior_of,
    take_rows,
    write_files,
)
from halftruth.bench.training import epoch_folder, image_settings, train_run
from halftruth.data import DataError, read_labels
from halftruth.train.config import ConfigError
from halftruth.train.records import count_class_histograms
from halftruth.train.run_folder import RESULT

# The kinds of items, with the options of `halftruth bench paper` that have an effect.
KINDS = {
    "runs": (
        "data", "out", "form", "seeds", "setting", "limit", "only", "add", "jobs", "device",
    ),
    "train": ("data", "out", "form", "setting", "limit", "only", "device"),
    "statistics": ("data",),
    "settings": (),
    "losses": ("out",),
    "labels": ("data", "out", "form"),
    "text": (),
}  # fmt: skip
# Keys of a recipe that a grid sets itself.
_OF_A_RUN = {
    "labels", "truth", "images", "reading", "reading_truth", "method", "options", "select",
}  # fmt: skip
NOT_RUN = "not run here"
ITEMS = "paper_items.yaml"
# So small a rate that an epoch of training changes nothing that can be seen.
BEFORE, SEED = "-before-training", "-seed-"
NO_TRAINING = {"lr": 1e-12, "epochs": 1, "freeze_bn": True}
NO_TRAINING_OF_HEAD = {"head_lr": 1e-12, "head_epochs": 1}


@dataclass(frozen=True)
class Item:
    """A table or figure of a paper, and how it is regenerated; `values` is its declaration."""

    paper: str
    item: str
    title: str
    values: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.paper} {self.item}"

    @property
    def kind(self) -> str:
        return next(kind for kind in KINDS if kind in self.values)

    @property
    def here(self) -> str:
        """What was run in this project."""
        otherwise = "nothing to compute" if self.kind == "text" else NOT_RUN
        return str(self.values.get("here", otherwise))

    @property
    def source(self) -> str:
        """The beginning of the sources of its published numbers."""
        return str(read_bench_yaml(ITEMS)["sources"][self.paper])

    @property
    def names(self) -> dict[str, str]:
        """How the paper calls rows and metrics."""
        return dict(read_bench_yaml(ITEMS)["names"][self.paper])

    @property
    def forms(self) -> list[str]:
        """The smaller forms of the same comparison."""
        return list(self.values.get("small", {}).get("forms", []))

    @property
    def readers(self) -> list[str]:
        """The data sets that it needs, by the names of docs/datasets.md."""
        if self.kind in ("statistics", "labels"):
            found = [about["data"] for about in self.values[self.kind]]
        else:
            found = [recipe.reader for recipe in self.recipes()]
        return list(dict.fromkeys(found))

    @property
    def needs_data(self) -> bool:
        return "data" in KINDS[self.kind]

    @property
    def command(self) -> str:
        kind, number = self.item.split()
        place = " --data DIR" if self.needs_data else ""
        return f"halftruth bench paper {self.paper} --{kind.lower()} {number}{place}"

    def describe(self) -> str:
        """A few lines: title, command, needs, forms, what was run here."""
        lines = [f"{self.name}  {self.title}", f"    {self.command}"]
        if self.needs_data:
            lines.append(f"    needs: {', '.join(self.readers)}")
        declared = read_bench_yaml(ITEMS)["forms"]
        lines += [f"    --form {form}: {declared[form]['about']}" for form in self.forms]
        return "\n".join([*lines, f"    here: {self.here}"])

    def recipes(self, patterns: list[str] | None = None) -> list[Recipe]:
        """The recipes of its rows, in the order of the declaration."""
        given = patterns or next(
            (self.values[kind] for kind in ("runs", "train", "settings") if kind in self.values), []
        )
        rows, only = self.values.get("rows"), self.values.get("only")
        found: dict[str, Recipe] = {}
        for pattern in given:
            for name, recipe in recipes().items():
                folder, row = name.split("/")
                wanted = (only is None or folder in only) and (rows is None or row in rows)
                if wanted and fnmatch.fnmatch(name, pattern):
                    found[name] = recipe
        if rows is not None:
            order = {row: place for place, row in enumerate(rows)}
            return sorted(found.values(), key=lambda recipe: order[recipe.name.split("/")[1]])
        return list(found.values())


def items(paper: str | None = None) -> list[Item]:
    """Every table and figure, or those of one paper."""
    known = read_bench_yaml(ITEMS)["papers"]
    if paper is not None and paper not in known:
        there = ", ".join(f"{number} ({title})" for number, title in known.items())
        raise ConfigError([f"paper: expected one of {there}; got {paper!r}"])
    return [
        Item(entry["paper"], entry["item"], entry["title"], entry)
        for entry in read_bench_yaml(ITEMS)["items"]
        if paper in (None, entry["paper"])
    ]


def find_item(paper: str, kind: str, number: str) -> Item:
    """A table or figure by its paper, kind ("Table", "Figure") and number."""
    there = {item.item: item for item in items(paper)}
    wanted = f"{kind} {number}"
    # The tables of paper 003 have Roman numbers; `--table 6` finds Table VI.
    roman = [name for name in there if name.startswith(kind) and not name[-1].isdigit()]
    if number.isdigit() and 0 < int(number) <= len(roman):
        wanted = roman[int(number) - 1]
    if wanted not in there:
        close = difflib.get_close_matches(wanted, there, n=2, cutoff=0.7)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise ConfigError(
            [f"{kind.lower()}: paper {paper} has {', '.join(there)}; got {wanted}{hint}"]
        )
    return there[wanted]


def grids(
    item: Item,
    data: Path,
    *,
    form: str | None = None,
    settings: dict[str, object] | None = None,
    seeds: list[int] | None = None,
    limit: int | None = None,
    only: str | None = None,
    add: Mapping[str, tuple[str, Mapping[str, object]]] | None = None,
) -> Iterator[Grid]:
    """The grids of an item: one per data set, or one for a smaller `form`.

    `settings` replace training settings of every row. `limit` keeps so many rows per part, `only`
    names data sets. `add`: more rows by their names, each a method (also "package.module:Loss")
    and its options, which are trained as the first row.
    """
    for name, rows in choose_rows(item, form, only).items():
        base = _form_grid(item, form) if form else _paper_grid(item, rows[0], name, data)
        if limit is not None:
            base["data"] = {key: {**about, "limit": limit} for key, about in base["data"].items()}
        if seeds is not None:
            base["seeds"] = seeds
        methods = _methods(item, rows, small=form is not None, settings=settings or {})
        if "vary" in item.values:
            methods = expand_sweeps(item, methods, rows[0])[0]
        for text, (loss, options) in (add or {}).items():
            like = next(iter(methods.values())).get("training", {})
            methods[text] = {"loss": loss, "options": options, "search": {}, "training": like}
        training = {**base.get("training", {}), **(settings or {})} if form else {}
        threshold = item.values.get("threshold", "fit")
        yield make_grid({**base, "training": training, "threshold": threshold, "methods": methods})


def choose_rows(
    item: Item, form: str | None = None, only: str | None = None
) -> dict[str, list[Recipe]]:
    """The recipes of an item by data set; for a form, those of one data set."""
    by_data: dict[str, list[Recipe]] = {}
    for recipe in item.recipes(item.values["small"].get("runs") if form else None):
        by_data.setdefault(recipe.name.split("/")[0], []).append(recipe)
    if form is not None:
        first = next(iter(by_data))
        return {first: by_data[first]}
    if only is not None:
        readers = {rows[0].reader: None for rows in by_data.values()}
        kept = matching(readers, only, "only")
        by_data = {name: rows for name, rows in by_data.items() if rows[0].reader in kept}
    return by_data


def check_data(item: Item, data: Path, only: str | None) -> None:
    """Refuse to start while a data set is missing; say which, and how to get it."""
    readers = matching(dict.fromkeys(item.readers), only, "only") if only else item.readers
    missing = []
    for reader in readers:
        try:
            read_data(data, reader)
        except (DataError, OSError):
            missing.append(reader)
    if missing:
        there = [reader for reader in readers if reader not in missing]
        rest = f"; the others run with --only {','.join(there)}" if there else ""
        texts = [f"{name}: {benchmarks.explain(name)}" for name in missing]
        forms = f"; a smaller form: --form {item.forms[0]}" if item.forms else ""
        lines = [f"{item.name}: not found below {data}: {', '.join(missing)}{rest}{forms}", *texts]
        raise DataError("\n".join(lines))


def source_of(
    data: Path, reader: str, options: Mapping[str, object] | None = None
) -> dict[str, Any]:
    """Where a grid finds a data set: in DIR/NAME, or in DIR itself."""
    root = reader if (data / reader).exists() else "."
    return {"reader": reader, "root": root, **(options or {})}


def label_sources(item: Item, data: Path, form: str | None) -> Iterator[tuple[str, Any, str]]:
    """Name, source and label setting of the data sets of a figure of labels, or of its form."""
    if form is not None:
        small = _form_grid(item, form)
        yield form, small["data"][form], small["labels"][0]
        return
    for about in item.values["labels"]:
        yield about["data"], source_of(data, about["data"]), about["labels"]


def read_data(
    data: Path, reader: str, labels: str = "complete", options: Mapping[str, object] | None = None
) -> Benchmark:
    """Read a data set below `data`, without the report of its differences."""
    return load_benchmark(source_of(data, reader, options), labels, 1200, data)


def _paper_grid(item: Item, recipe: Recipe, name: str, data: Path) -> dict[str, Any]:
    """A grid for the recipes of one data set, without methods; with the paper's search."""
    source = source_of(data, recipe.reader, recipe.reader_options)
    source = {**source, "published": recipe.published}
    base = {"data": {name: source}, "labels": [recipe.labels], "trials": 1, "search": {}}
    return {**base, **item.values.get("as_published", {})}


def _form_grid(item: Item, form: str) -> dict[str, Any]:
    declared, small = copy.deepcopy(read_bench_yaml(ITEMS)["forms"][form]), item.values["small"]
    del declared["about"]
    data = {form: {**declared.pop("data"), "published": small["published"]}}
    return {"data": data, "labels": [small["labels"]], **declared}


def _methods(
    item: Item, rows: list[Recipe], *, small: bool, settings: dict[str, object]
) -> dict[str, Any]:
    """The methods of a grid."""
    thresholds = item.values.get("thresholds", {})
    methods: dict[str, Any] = {}
    for recipe in rows:
        row, given = recipe.name.split("/")[1], recipe.settings
        method = {"loss": given["method"], "options": _options(recipe, small), "search": {}}
        if "truth.csv" in given["labels"]:
            method["labels"] = "complete"
        if not small:
            own = {key: value for key, value in given.items() if key not in _OF_A_RUN}
            method["training"] = {**own, **settings}
        if row in thresholds:
            method["threshold"] = thresholds[row]
        methods[row] = method
    return methods


def _options(recipe: Recipe, small: bool) -> dict[str, Any]:
    options = copy.deepcopy(recipe.settings["options"])
    if small:
        # On other data: the mean loss, and the number of positives counted there.
        options.pop("reduction", None)
        options |= {key: PRIOR for key in options if key == "expected_positives"}
    return options


@dataclass(frozen=True)
class Sweep:
    """A panel of a figure: the row of each value of `x`, one curve per value of other options."""

    x: str
    rows: dict[str, dict[Any, str]]


def expand_sweeps(
    item: Item, methods: dict[str, Any], recipe: Recipe
) -> tuple[dict[str, Any], list[Sweep]]:
    """The rows of a figure that varies options of its first method; the others are baselines.

    A combination that is a recipe of its own has the name of that recipe.
    """
    row, *baselines = methods
    folder, small = recipe.name.split("/")[0], "training" not in methods[row]
    known = {
        name.split("/")[1]: _options(one, small)
        for name, one in recipes().items()
        if name.startswith(f"{folder}/") and one.settings["method"] == methods[row]["loss"]
    }
    found: dict[str, Any] = {}
    sweeps = []
    for axes in item.values["vary"]:
        x, sweep = list(axes)[-1], Sweep(list(axes)[-1], {})
        keys = [key for key in axes if axes[key]]
        for values in itertools.product(*(axes[key] for key in keys)):
            changed = copy.deepcopy(methods[row])
            set_options(changed["options"], dict(zip(keys, values, strict=True)))
            shown = {key: _show(value) for key, value in zip(keys, values, strict=True)}
            text = ", ".join(f"{key} {value}" for key, value in shown.items())
            same = (name for name, options in known.items() if options == changed["options"])
            name = next(same, f"{row} {text}")
            found[name] = changed
            curve = ", ".join(f"{key} {value}" for key, value in shown.items() if key != x)
            sweep.rows.setdefault(curve, {})[shown.get(x)] = name
        sweeps.append(sweep)
    return {**found, **{name: methods[name] for name in baselines}}, sweeps


def make_sweeps(item: Item, form: str | None, only: str | None) -> dict[str, list[Sweep]]:
    """The panels of a figure by data set of its grids."""
    return {
        form or name: expand_sweeps(
            item, _methods(item, rows, small=form is not None, settings={}), rows[0]
        )[1]
        for name, rows in choose_rows(item, form, only).items()
    }


def _show(value: object) -> object:
    """A value at the end of the schedule, where it is a pair."""
    return value[-1] if isinstance(value, list) else value


def set_options(options: dict[str, Any], values: Mapping[str, object]) -> None:
    """Replace options; `base.tau` is one of the base loss, `ratio` the threshold -b/w of GR."""
    for key, value in values.items():
        if key == "ratio":
            options["w"] = [0, -options["b"][1] / value]
        elif key.startswith("base."):
            options["base"][key.removeprefix("base.")] = value
        else:
            options[key] = value


# ---------------------------------------------------------------------- single runs, for figures


def train_rows(
    item: Item,
    data: Path,
    out: Path,
    settings: dict[str, object],
    limit: int | None = None,
    say: Callable[[str], None] = print,
    form: str | None = None,
    only: str | None = None,
    device: str = "auto",
) -> dict[str, list[Path]]:
    """Train the rows of a figure once each; return the run folders by data set.

    A finished run is not repeated, and an interrupted one continues. `form`: on the data and with
    the settings of a smaller form.
    """
    _check_setup(out, {**settings, "limit": limit, "form": form})
    place, seeds = Place(data, out / "cache", device), item.values.get("seeds")
    made = grids(
        item, data, form=form, settings=settings, seeds=seeds or [0], limit=limit, only=only
    )
    found: dict[str, list[Path]] = {}
    for job in (cell.job(seed) for grid in made for cell in grid.cells() for seed in cell.seeds):
        read = load_benchmark(job.source, job.labels, job.label_seed, data)
        read.store()
        if item.values.get("test_rows"):
            # For records per epoch.
            parts = {"train": read.splits.train, "val": read.splits.test, "test": np.arange(0)}
            read = take_rows(read, parts)
        files = write_files(read, out / "labels" / job.data / job.labels, complete=True)
        row = f"{job.method}{SEED}{job.seed}" if seeds else job.method
        values = image_settings(job, files, prior_of(read), place, out / job.data / row)
        folders = found.setdefault(job.data, [])
        if item.values.get("untrained"):
            none = NO_TRAINING_OF_HEAD if values.get("tune") == "head" else NO_TRAINING
            folders += _train({**values, **none, "out": values["out"] + BEFORE}, say)
        folders += _train(values, say, item.values.get("examples", {}).get(job.method, []))
    return found


def _check_setup(out: Path, setup: Mapping[str, object]) -> None:
    """Refuse a folder with runs of other settings or rows, which a figure would mix up."""
    file, text = out / "setup.json", json.dumps(setup, sort_keys=True)
    before = file.read_text(encoding="utf-8") if file.exists() else text
    if before != text:
        raise ConfigError([f"out: {out} has runs with {before}, not {text}; choose another folder"])
    out.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def _train(
    values: dict[str, Any], say: Callable[[str], None], keep: Sequence[int] = ()
) -> list[Path]:
    """Train, or continue; return the run folder, after copies of it at the epochs to keep."""
    folder = Path(values["out"])
    if not (folder / RESULT).exists():
        say(f"training {folder}")
        train_run(values, keep)
    copies = [epoch_folder(folder, epoch) for epoch in keep]
    return [*(copy for copy in copies if copy.exists()), folder]


def count_training_rows(folder: Path) -> np.ndarray:
    """The (K, groups, bins) counts of the training rows of a run, whose images are scored."""
    from halftruth.train.results.trained_run import TrainedRun

    run = TrainedRun(folder)
    config = run.config
    shown = read_labels(Path(str(config.labels)), **config.reading)
    truth = read_labels(Path(str(config.truth)), **config.reading_truth)
    assert shown.items is not None
    rows = np.flatnonzero(shown.split == "train")
    items = [str(shown.items[row]) for row in rows]
    raw = run.score(images=config.images, items=items, bad_images="fail", workers=1).raw
    return count_class_histograms(raw, shown.values[rows], truth.values[rows])


# ---------------------------------------------------------------------- texts


def last_records(
    folders: dict[str, list[Path]],
    names: list[str],
    names_of: Mapping[str, str] | None = None,
    label: str = "single",
) -> str:
    """A Markdown table of records of the last epoch that has them, in percent, by method.

    The mean over the runs of a method, next to the published number. `names_of`: the published
    names of data sets.
    """
    names_of = names_of or {}
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for data, several in folders.items():
        for folder in several:
            last: dict[str, float] = {}
            for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
                record = json.loads(line)
                last |= {name: record[name] for name in names if record.get(name) is not None}
            row = folder.name.partition(SEED)[0]
            found.setdefault((data, row), []).append(last)
    rows = [["data", "method", *(text for name in names for text in (name, "published")), "runs"]]
    for (data, row), records in found.items():
        cells = []
        for name in names:
            values = [100 * record[name] for record in records if name in record]
            spread = f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
            cells.append(f"{np.mean(values):.2f}{spread}" if values else "–")
            known = find_published((names_of.get(data, data), label, row, name))
            cells.append(str(next(iter(known.values()), "–")))
        rows.append([data, row, *cells, str(len(records))])
    return as_markdown(rows)


def compare_statistics(item: Item, data: Path) -> str:
    """A Markdown table of counted and published statistics of the data sets that are there."""
    rows = [["data set", "statistic", "found", "published", "source"]]
    missing, classes = [], []
    for about in item.values["statistics"]:
        name, labels = about["data"], about.get("labels", "complete")
        if not (data / name).exists() and len(item.readers) > 1:
            missing.append(f"{name} was not found in {data}: {benchmarks.explain(name)}")
            continue
        read = read_data(data, name, labels, about.get("options"))
        for entry in read.published:
            if entry.what not in read.statistics or entry.setting not in (None, labels):
                continue
            found = read.statistics[entry.what]
            shown = f"{found:,.6g}" + ("" if agrees(found, entry.value) else " (differs)")
            what = entry.what.replace("_", " ")
            rows.append([f"{name}, {labels}", what, shown, entry.value, entry.source])
        if item.values.get("classes"):
            classes.append(f"{name}: {', '.join(read.classes)}")
    if len(rows) == 1:
        raise DataError("\n".join(missing))
    return "\n".join([as_markdown(rows), "", *classes, *missing])


def list_settings(item: Item) -> str:
    """A Markdown table of the hyper-parameters of recipes, one column per data set."""
    keys = ("method", "batch_size", "lr", "epochs", "patience", "head_lr_mult")
    columns = {
        recipe.name: {
            **{key: recipe.settings[key] for key in keys if key in recipe.settings},
            **_flat(recipe.settings["options"]),
        }
        for recipe in item.recipes()
    }
    names = dict.fromkeys(key for column in columns.values() for key in column)
    rows = [[name, *(str(c.get(name, "–")) for c in columns.values())] for name in names]
    return as_markdown([["", *columns], *rows])


def _flat(options: dict[str, Any], prefix: str = "") -> dict[str, object]:
    found: dict[str, Any] = {}
    for key, value in options.items():
        inner = isinstance(value, dict)
        found |= _flat(value, f"{prefix}{key}.") if inner else {f"{prefix}{key}": value}
    return found


# The texts of the items without runs and figures.
TEXTS: dict[str, Callable[[Item, Any], str]] = {
    "statistics": compare_statistics,
    "settings": lambda item, data: list_settings(item),
    "text": lambda item, data: str(item.values["text"]),
}
