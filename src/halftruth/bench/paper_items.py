"""The tables and figures of the papers (paper_items.yaml): their list and their grids."""

import copy
import difflib
import fnmatch
import functools
import importlib.resources
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from halftruth.bench.grid import Grid, make_grid
from halftruth.bench.jobs import PRIOR
from halftruth.bench.papers import Recipe, recipes
from halftruth.train.config import ConfigError

KINDS = ("runs", "train", "statistics", "settings", "losses", "labels", "text")
# Keys of a recipe that a grid sets itself.
_OF_A_RUN = {
    "labels", "truth", "images", "reading", "reading_truth", "method", "options", "select",
}  # fmt: skip
NOT_RUN = "not run here"
# The tables of paper 003 are numbered so; `--table 6` finds Table VI.
ROMAN = (
    "", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII", "XIII", "XIV",
    "XV",
)  # fmt: skip


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
        return str(_declared()["sources"][self.paper])

    @property
    def forms(self) -> list[str]:
        """The smaller forms of the same comparison."""
        if "small" not in self.values:
            return []
        small = self.values["small"]
        found = [small["form"], "voc"] if small["form"] == "voc-features" else [small["form"]]
        # Compared on COCO: its features are nearer to the paper than VOC.
        return [*found, "coco-features"] if small["published"] == "coco2014" else found

    @property
    def readers(self) -> list[str]:
        """The data sets that it needs, by the names of docs/datasets.md."""
        if self.kind in ("statistics", "labels"):
            found = [about["data"] for about in self.values[self.kind]]
        else:
            found = [recipe.reader for recipe in self.recipes()]
        return list(dict.fromkeys(found))

    @property
    def command(self) -> str:
        kind, number = self.item.split()
        place = " --data DIR" if self.readers and self.kind != "settings" else ""
        return f"halftruth bench paper {self.paper} --{kind.lower()} {number}{place}"

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


@functools.cache
def _declared() -> dict[str, Any]:
    file = importlib.resources.files("halftruth.bench") / "paper_items.yaml"
    return dict(yaml.safe_load(file.read_text(encoding="utf-8")))


def papers() -> dict[str, str]:
    """The papers by their number."""
    return dict(_declared()["papers"])


def items(paper: str | None = None) -> list[Item]:
    """Every table and figure, or those of one paper."""
    known = papers()
    if paper is not None and paper not in known:
        there = ", ".join(f"{number} ({title})" for number, title in known.items())
        raise ConfigError([f"paper: expected one of {there}; got {paper!r}"])
    return [
        Item(entry["paper"], entry["item"], entry["title"], entry)
        for entry in _declared()["items"]
        if paper in (None, entry["paper"])
    ]


def find_item(paper: str, kind: str, number: str) -> Item:
    """A table or figure by its paper, kind ("Table", "Figure") and number."""
    there = {item.item: item for item in items(paper)}
    wanted = f"{kind} {number}"
    if wanted not in there and number.isdigit() and int(number) < len(ROMAN):
        wanted = f"{kind} {ROMAN[int(number)]}"
    if wanted not in there:
        close = difflib.get_close_matches(wanted, there, n=2, cutoff=0.7)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise ConfigError(
            [f"{kind.lower()}: paper {paper} has {', '.join(there)}; got {wanted}{hint}"]
        )
    return there[wanted]


def form_about(form: str) -> str:
    """What a smaller form is, in words."""
    return str(_declared()["forms"][form]["about"])


def grids(
    item: Item,
    data: Path,
    *,
    form: str | None = None,
    settings: dict[str, Any] | None = None,
    seeds: list[int] | None = None,
    limit: int | None = None,
) -> Iterator[Grid]:
    """The grids of an item: one per data set, or one for a smaller `form`.

    `settings` replace training settings of every row. `limit` keeps so many rows per part.
    """
    chosen = item.recipes(item.values["small"].get("runs") if form else None)
    by_data: dict[str, list[Recipe]] = {}
    for recipe in chosen:
        by_data.setdefault(recipe.name.split("/")[0], []).append(recipe)
    if form is not None:
        # The rows of the data set that the form is compared with, or of the first one.
        wanted = item.values["small"].get("data", next(iter(by_data)))
        by_data = {wanted: by_data[wanted]}
    for name, rows in by_data.items():
        base = _form_grid(item, form) if form else _paper_grid(rows[0], name, data)
        if limit is not None:
            base["data"] = {key: {**about, "limit": limit} for key, about in base["data"].items()}
        if seeds is not None:
            base["seeds"] = seeds
        threshold = item.values.get("threshold", "fit")
        for methods in _method_tables(item, rows, small=form is not None, settings=settings or {}):
            training = {**base.get("training", {}), **(settings or {})} if form else {}
            yield make_grid(
                {**base, "training": training, "threshold": threshold, "methods": methods}
            )


def _paper_grid(recipe: Recipe, name: str, data: Path) -> dict[str, Any]:
    """A grid for the recipes of one data set, without methods."""
    source = {
        "reader": recipe.reader,
        "root": recipe.reader if (data / recipe.reader).exists() else ".",
        "published": _published_name(name, recipe),
        **recipe.reader_options,
    }
    return {"data": {name: source}, "labels": [recipe.labels], "trials": 1, "search": {}}


def _published_name(name: str, recipe: Recipe) -> str:
    """The name of the data set in published.yaml."""
    backbones = name in ("coco2014-mobilenetv3", "coco2014-resnet101", "coco2014-swin")
    return name if backbones else recipe.data


def _form_grid(item: Item, form: str) -> dict[str, Any]:
    if form not in item.forms:
        there = f"expected one of {', '.join(item.forms)}" if item.forms else "it has none"
        raise ConfigError([f"form: {item.name} has no form {form!r}; {there}"])
    declared = copy.deepcopy(_declared()["forms"][form])
    small = item.values["small"]
    return {
        "data": {form: {**declared["data"], "published": small["published"]}},
        "labels": [small["labels"]],
        **{key: declared[key] for key in ("training", "search", "trials", "seeds")},
    }


def _method_tables(
    item: Item, rows: list[Recipe], *, small: bool, settings: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """The methods of a grid; several tables where an item varies options."""
    thresholds = item.values.get("thresholds", {})
    methods: dict[str, Any] = {}
    for recipe in rows:
        row = recipe.name.split("/")[1]
        given = recipe.settings
        options = copy.deepcopy(given["options"])
        if small:
            # On other data: the mean loss, and the number of positives counted there.
            options.pop("reduction", None)
            options |= {key: PRIOR for key in options if key == "expected_positives"}
        method: dict[str, Any] = {"loss": given["method"], "options": options, "search": {}}
        if "truth.csv" in given["labels"]:
            method["labels"] = "complete"
        if not small:
            own = {key: value for key, value in given.items() if key not in _OF_A_RUN}
            method["training"] = {**own, **settings}
        if row in thresholds:
            method["threshold"] = thresholds[row]
        methods[row] = method
    if "vary" not in item.values:
        yield methods
        return
    ((row, method),) = methods.items()
    for axes in item.values["vary"]:
        for values in itertools.product(*axes.values()):
            changed = copy.deepcopy(method)
            _set_options(changed["options"], dict(zip(axes, values, strict=True)))
            yield {row: changed}


def _set_options(options: dict[str, Any], values: dict[str, Any]) -> None:
    """Replace options; `base.tau` is one of the base loss, `ratio` the threshold -b/w of GR."""
    for key, value in values.items():
        if key == "ratio":
            options["w"] = [0, -options["b"][1] / value]
        elif key.startswith("base."):
            options["base"][key.removeprefix("base.")] = value
        else:
            options[key] = value
