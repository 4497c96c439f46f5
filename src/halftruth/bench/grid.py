"""What a benchmark runs: methods x data sets x label settings x seeds, from a YAML file."""

import dataclasses
import difflib
import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from halftruth.bench import datasets as benchmarks
from halftruth.bench.grid_entries import (
    built,
    method_rows,
    numbered,
    training_problems,
    with_numbers_read,
)
from halftruth.bench.job import Cell
from halftruth.bench.search_space import parse, space_of
from halftruth.train.auto import AUTO
from halftruth.train.config import Config, ConfigError

_OF_METHOD = {"loss", "options", "labels", "search", "fixed", "training"}
_OF_DATA = {"reader", "root", "frozen", "published", "val", "limit", "training"}
_ON_FEATURES = {"head_lr": {"low": 1e-4, "high": 3e-2, "log": True}}
_ON_IMAGES = {"lr": {"low": 1e-5, "high": 3e-4, "log": True}}


@dataclass
class Grid:
    """A benchmark as its YAML file describes it; docs/benchmarks.md explains each key."""

    data: dict[str, dict[str, Any]]
    labels: list[str] = field(default_factory=lambda: ["single"])
    methods: Any = "all"
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2])
    # The labels shown: 1200 is the published draw; "seed" draws anew for each seed.
    label_seed: int | str = 1200
    training: dict[str, Any] = field(default_factory=dict)
    # Settings tried for each method on validation, the same number for all; 1 tries nothing.
    trials: int = 1
    search: dict[str, Any] | None = None
    # What chooses among trials, and where predictions are cut: "fit" (on validation) or a number.
    choose: str = "mAP"
    threshold: float | str = "fit"

    def cells(self) -> list[Cell]:
        """Every combination of data set, label setting and method, each with what it may search."""
        return [
            self._cell(data, setting, name, method)
            for data in self.data
            for setting in self.labels
            for name, method in self.entries().items()
            if self.applies(data, method)
        ]

    def _cell(self, data: str, setting: str, name: str, method: dict[str, Any]) -> Cell:
        about = {key: value for key, value in self.data[data].items() if key != "training"}
        return Cell(
            data=data,
            source={"reader": data, **about},
            labels=method.get("labels", setting),
            column=setting,
            method=name,
            loss=method["loss"],
            options=method.get("options") or {},
            training=self._training(data, method),
            search=self._search(data, method),
            label_seed=self.label_seed,
            choose=self.choose,
            threshold=self.threshold,
        )

    def _search(self, data: str, method: dict[str, Any]) -> dict[str, Any]:
        common = {} if method["loss"] == AUTO else self.search
        if common is None:
            common = _ON_FEATURES if self.on_features(data) else _ON_IMAGES
        given = method.get("search")
        own = space_of(method["loss"]) if given is None else parse(given)
        # What a grid sets by hand is not searched.
        fixed = method.get("fixed", ())
        own = {key: axis for key, axis in own.items() if key not in fixed}
        return {"training": parse(common), "options": own}

    def on_features(self, data: str) -> bool:
        """Whether a data set is trained on as a matrix of features."""
        about = self.data[data]
        if "frozen" in about or "features" in about:
            return True
        known = ("yeast", "scene", "corel5k", "bibtex", "tabular", "features", "coco2014-features")
        return about.get("reader", data) in known

    def applies(self, data: str, method: dict[str, Any]) -> bool:
        """Whether a method can be trained there: features have neither views nor maps."""
        inputs = {"features": "x"} if self.on_features(data) else {"images": ["x"]}
        head = self._training(data, method).get("head", Config.head)
        options = numbered(method.get("options") or {})
        config = Config(method=method["loss"], options=options, head=head, **inputs)
        return not config._method_problems()

    def _training(self, data: str, method: dict[str, Any]) -> dict[str, Any]:
        """The settings of a method's runs: of the grid, the data set, the method."""
        about, own = self.data[data].get("training", {}), method.get("training", {})
        shared = {**self.training, **about}
        if method["loss"] != AUTO:
            # What auto may try is no setting of the other rows.
            shared.pop("budget", None)
        return {**shared, **own}

    def entries(self) -> dict[str, dict[str, Any]]:
        """The methods by the name of their row: loss, options, labels."""
        found: dict[str, dict[str, Any]] = {}
        for name, entry in self._given():
            found |= method_rows(name, entry)
        return found

    def _given(self) -> list[tuple[str, Any]]:
        given = [self.methods] if isinstance(self.methods, str) else self.methods
        if isinstance(given, Mapping):
            return [(str(name), entry) for name, entry in given.items()]
        return [(str(name), None) for name in given]

    def chosen(self, methods: str | None = None, data: str | None = None) -> "Grid":
        """The grid with only those methods and data sets that match a pattern, or several."""
        kept = dataclasses.replace(self)
        if data is not None:
            kept.data = _matching(self.data, data, "data")
        if methods is not None:
            kept.methods = _matching(self.entries(), methods, "methods")
        return kept

    def problems(self) -> list[str]:
        """What is wrong with the values; files are not looked at."""
        found = [f"data {name}: {text}" for name in self.data for text in self._of_data(name)]
        found += self._of_methods()
        if not self.seeds or not all(type(seed) is int and seed >= 0 for seed in self.seeds):
            found.append(f"seeds: expected whole numbers from 0 on, got {self.seeds}")
        if type(self.trials) is not int or self.trials < 1:
            found.append(f"trials: expected a whole number from 1 on, got {self.trials!r}")
        if not (self.label_seed == "seed" or type(self.label_seed) is int):
            found.append(f'label_seed: expected a number or "seed", got {self.label_seed!r}')
        for setting in self.labels:
            try:
                benchmarks.hide([[1, -1]], setting)  # type: ignore[arg-type]
            except ValueError as error:
                found.append(f"labels: {error}")
        entries = (entry for _, entry in self._given() if isinstance(entry, Mapping))
        for about in (*self.data.values(), *entries, {"training": self.training}):
            found += training_problems(about.get("training", {}))
        try:
            space = parse(self.search or {})
        except ValueError as error:
            return [*found, str(error)]
        for key in space.keys() - {f.name for f in dataclasses.fields(Config)}:
            found.append(f"search: there is no setting {key!r} of training")
        return found

    def _of_data(self, name: str) -> list[str]:
        about = self.data[name]
        reader = about.get("reader", name)
        if "root" not in about:
            return ["expected `root`, its folder or file below --data"]
        try:
            known = benchmarks.registry.signature(reader)
        except ValueError as error:
            return [str(error)]
        strange = about.keys() - _OF_DATA - known.keys()
        options = ", ".join(sorted(_OF_DATA | known.keys()))
        return [f"there is no option {key!r}; there are: {options}" for key in sorted(strange)]

    def _of_methods(self) -> list[str]:
        found, with_auto = [], False
        for name, entry in self._given():
            try:
                for row, made in method_rows(name, entry).items():
                    with_auto |= made["loss"] == AUTO
                    if strange := made.keys() - _OF_METHOD:
                        found.append(
                            f"methods: {row}: there is no key {', '.join(sorted(strange))}"
                        )
                    budget = (made.get("training") or {}).get("budget")
                    if budget is not None and made["loss"] != AUTO:
                        found.append(f"methods: {row}: budget is what auto may try")
                    built(made)
                    parse(made.get("search") or {})
            except (ValueError, TypeError) as error:
                found.append(f"methods: {name}: {error}")
        shared = (self.training, *(about.get("training", {}) for about in self.data.values()))
        if not with_auto and any("budget" in training for training in shared):
            found.append("training: budget is what auto may try, and no row is of auto")
        return found


def load_grid(path: str | Path, **changes: Any) -> Grid:
    """A checked grid from a YAML file, with some of its keys changed."""
    path = Path(path)
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: {error}"]) from error
    if not isinstance(values, dict):
        raise ConfigError([f"{path}: expected `name: value` lines, got {type(values).__name__}"])
    return make_grid({**values, **{k: v for k, v in changes.items() if v is not None}})


def make_grid(values: dict[str, Any]) -> Grid:
    """A checked grid from a mapping; every mistake is reported at once."""
    known = [f.name for f in dataclasses.fields(Grid)]
    problems = []
    for key in values.keys() - set(known):
        close = difflib.get_close_matches(str(key), known, n=1)
        hint = f"; did you mean {close[0]}?" if close else f"; there are: {', '.join(known)}"
        problems.append(f"there is no key {key!r}{hint}")
    data = values.get("data")
    if not isinstance(data, dict) or not all(isinstance(v, dict) for v in data.values()):
        raise ConfigError([*problems, "data: expected a mapping of names to {root: ..., ...}"])
    grid = Grid(**{key: value for key, value in values.items() if key in known})
    if isinstance(grid.labels, str):
        grid.labels = [grid.labels]
    grid.training = with_numbers_read(grid.training)
    problems += grid.problems()
    if problems:
        raise ConfigError(sorted(problems))
    return grid


def _matching(entries: dict[str, Any], patterns: str, what: str) -> dict[str, Any]:
    several = [pattern.strip() for pattern in patterns.split(",")]
    found = {
        name: entry
        for name, entry in entries.items()
        if any(fnmatch.fnmatch(name, pattern) for pattern in several)
    }
    if not found:
        there = ", ".join(entries)
        raise ConfigError([f"{what}: none matches {patterns!r}; there are: {there}"])
    return found
