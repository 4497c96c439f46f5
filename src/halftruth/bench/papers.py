"""The papers' published numbers (published.yaml) and training settings (recipes.yaml)."""

import copy
import difflib
import functools
from dataclasses import dataclass
from typing import Any

import yaml

from halftruth.bench import read_bench_yaml
from halftruth.train.config import ConfigError


@dataclass(frozen=True)
class Number:
    """A published number in percent, its source, and its spread where the paper gives it."""

    value: float
    source: str
    spread: float | None = None

    @classmethod
    def parse(cls, written: Any, source: str) -> "Number":
        """Read a number, or a text such as "85.89 ± 0.38".

        >>> Number.parse("85.89 ± 0.38", "a paper")
        Number(value=85.89, source='a paper', spread=0.38)
        """
        value, _, spread = str(written).partition("±")
        return cls(float(value), source, float(spread) if spread else None)

    @property
    def paper(self) -> str:
        return self.source.partition(", Table")[0]

    def __str__(self) -> str:
        return f"{self.value:g}" + ("" if self.spread is None else f" ± {self.spread:g}")


Key = tuple[str, str, str, str]


def find_published(key: Key, source: str = "") -> dict[str, Number]:
    """The published number of each paper that has one, or of that whose source begins so.

    >>> find_published(("voc2012", "single", "gr", "mAP"))["Chen et al. 2024 (GR)"].value
    89.83
    """
    found: dict[str, Number] = {}
    for known, number in published_all():
        if known == key and number.source.startswith(source):
            found.setdefault(number.paper, number)
    return found


@functools.cache
def published_all() -> list[tuple[Key, Number]]:
    """Every published number, including different papers' numbers for the same experiment."""
    return [
        ((data, labels, str(method), block["metric"]), Number.parse(value, block["source"]))
        for block in read_bench_yaml("published.yaml")
        for method, values in block["rows"].items()
        for (data, labels), value in zip(_columns(block), values, strict=True)
        if value is not None
    ]


def _columns(block: dict[str, Any]) -> list[tuple[str, str]]:
    """Columns are data sets under one label setting, or label settings of one data set."""
    if isinstance(block["data"], list):
        return [(data, block["labels"]) for data in block["data"]]
    return [(block["data"], labels) for labels in block["labels"]]


@dataclass(frozen=True)
class Recipe:
    """A paper's training settings for one method on one data set.

    data: the folder of its label files below data/. labels: the label setting. settings: as
    `halftruth train` takes them. reader, reader_options: arguments of `halftruth bench labels`.
    """

    name: str
    data: str
    labels: str
    settings: dict[str, Any]
    source: str
    numbers: tuple[tuple[str, Number], ...]
    reader: str
    reader_options: dict[str, Any]
    # The name of the data set in published.yaml.
    published: str

    def to_yaml(self) -> str:
        """The recipe as a file for `halftruth train`, with its commands and sources on top."""
        option = "".join(f" --option {key}={value}" for key, value in self.reader_options.items())
        run = self.name.replace("/", "-")
        texts = [f"{number} ({metric}; {number.source})" for metric, number in self.numbers]
        head = [
            f"halftruth bench labels {self.reader} ROOT --labels {self.labels}{option} "
            f"--out data/{self.data}",
            f"halftruth train --recipe {self.name} --images IMAGES --out runs/{run}",
            "Published: " + ("; ".join(texts) or "none"),
            f"Source: {self.source}",
        ]
        body = yaml.safe_dump(self.settings, sort_keys=False, default_flow_style=None)
        return "".join(f"# {line}\n" for line in head) + body


def find_recipe(name: str) -> dict[str, Any]:
    """Return the settings of a recipe by data set and method, such as "voc2012/em".

    >>> find_recipe("voc2012/em")["options"]
    {'alpha': 0.2}
    """
    return copy.deepcopy(get_recipe(name).settings)


def get_recipe(name: str) -> Recipe:
    """Return a recipe by name; an unknown name is a `ConfigError` with the closest names."""
    known = recipes()
    if name not in known:
        close = difflib.get_close_matches(str(name), known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise ConfigError(
            [f"recipe: there is no recipe {name!r}; {hint}`halftruth bench recipes` lists them all"]
        )
    return known[name]


@functools.cache
def recipes() -> dict[str, Recipe]:
    """Every recipe by its name, in the order of recipes.yaml."""
    content = read_bench_yaml("recipes.yaml")
    return {
        recipe.name: recipe
        for table in content["tables"]
        for column, folder in enumerate(table["data"])
        for recipe in _expand(_pick(table, column), folder, content["sources"])
    }


def _expand(table: dict[str, Any], folder: str, sources: dict[str, str]) -> list[Recipe]:
    reader, options = table.get("reader", folder), table.get("reader_options") or {}
    data = table.get("folder", reader)
    published, found = table.get("published", data), []
    for row_name, row in table["rows"].items():
        row = {"method": row_name, "options": {}, "source": table["source"], **row}
        shown = row.pop("labels", table["labels"])
        source = row.pop("source")
        texts = [source] if isinstance(source, str) else source
        settings = {
            "labels": f"data/{data}/{shown}.csv",
            "truth": f"data/{data}/truth.csv",
            "images": [f"data/{data}/images"],
            "reading": {"split_column": "split"},
            "reading_truth": {"split_column": "split", "zero": "unknown"},
            "method": row.pop("method"),
            "options": row.pop("options"),
            **table["settings"],
            **row,
        }
        numbers = tuple(
            (key[3], number)
            for key, number in published_all()
            if key[:3] == (published, table["labels"], row_name)
            # Zhang et al. train differently from the others: their numbers belong to their recipes.
            and ("Zhang" in number.source) == (table.get("numbers_of") == "Zhang")
        )
        text = " ".join(sources.get(text, text) for text in texts)
        name, labels = f"{folder}/{row_name}", table["labels"]
        found.append(
            Recipe(name, data, labels, settings, text, numbers, reader, options, published)
        )
    return found


def _pick(value: object, column: int) -> Any:
    """A copy of a value with every {each: [...]} in it replaced by its entry for a column."""
    if isinstance(value, dict):
        if value.keys() == {"each"}:
            return _pick(value["each"][column], 0)
        return {key: _pick(entry, column) for key, entry in value.items()}
    if isinstance(value, list):
        return [_pick(entry, column) for entry in value]
    return value
