"""The grid of a benchmark: methods x data sets x label settings x seeds, from a YAML file."""

import dataclasses
import difflib
import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from halftruth import losses
from halftruth.bench import datasets as benchmarks
from halftruth.bench.cells import PRIOR, BenchCell, is_on_features
from halftruth.bench.label_settings import find_setting
from halftruth.bench.search_space import middle_of_required, parse, space_of
from halftruth.data import DataError
from halftruth.data.errors import find_twice, some
from halftruth.models.heads import registry as heads
from halftruth.seeds import SEED_RANGE, is_seed
from halftruth.train.config import AUTO, Config, ConfigError, collect
from halftruth.train.settings import read_yaml

# Settings of `halftruth train` that a grid sets itself: files, the method, the seed.
_NOT_TRAINING = {
    "labels", "images", "features", "out", "truth", "reading", "reading_truth", "reading_features",
    "val", "group_column", "method", "options", "seed", "device", "cache", "cache_dir", "workers",
    "select", "track", "checkpoint_every", "bad_images", "report",
}  # fmt: skip
# auto chooses everything from the shown labels.
AUTO_ROW = {"loss": AUTO, "options": {}, "search": {}, "fixed": []}
COMPLETE = {"loss": "bce", "labels": "complete", "search": {}}


def method_rows(name: str, entry: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    """The table rows of a name in `methods`."""
    if name == "all":
        every = {loss: {**fill_required_options(loss, {}), "fixed": []} for loss in losses.names()}
        return {"complete": dict(COMPLETE), **every}
    if name == "complete" and entry is None:
        return {name: dict(COMPLETE)}
    entry = {"loss": name, **(entry or {})}
    if AUTO in (name, entry["loss"]):
        return {name: {**AUTO_ROW, **entry}}
    entry.setdefault("fixed", list(entry.get("options") or {}))
    return {name: {**entry, **fill_required_options(entry["loss"], entry)}}


def fill_required_options(loss: str, entry: dict[str, Any]) -> dict[str, Any]:
    """A method's entry with its required options filled in: the number of positives per row is
    counted on validation rows, other options start in the middle of their search range.
    """
    options = {**middle_of_required(loss), **(entry.get("options") or {})}
    if "expected_positives" in losses.registry.signature(loss):
        options.setdefault("expected_positives", PRIOR)
    return {"loss": losses.registry.resolve(loss), "options": options}


def build_loss(entry: dict[str, Any]) -> losses.Loss | None:
    if entry["loss"] == AUTO:
        return None
    return losses.create(entry["loss"], **fill_placeholders(entry.get("options") or {}))


def fill_placeholders(options: Mapping[str, object]) -> dict[str, Any]:
    """Options with 1.0 as placeholder for a number that is counted on the data later."""
    return {key: 1.0 if value == PRIOR else value for key, value in options.items()}


def threshold_problems(entry: Mapping[str, Any]) -> list[str]:
    """Mistakes of the threshold in a grid or the entry of a method."""
    threshold = entry.get("threshold", "fit")
    number = type(threshold) in (int, float) and 0 <= threshold <= 1
    if number or threshold in ("fit", "offset"):
        return []
    return [f'threshold: expected "fit", "offset" or 0 to 1, got {threshold!r}']


def training_problems(training: dict[str, object]) -> list[str]:
    found = [f"{key} cannot be set in a grid" for key in sorted(training.keys() & _NOT_TRAINING)]
    unknown = sorted(training.keys() - _SETTINGS - _NOT_TRAINING)
    found += [f"there is no setting {key!r}" for key in unknown]
    if not found:
        head = training.get("head", Config.head)
        maps = head in heads.names() and heads.get(head).wants_map
        inputs: dict[str, Any] = {"images": ["x"]} if maps else {}
        problems = Config(**collect(training), **inputs).problems()
        found = [text for text in problems if text.split(":")[0] in training]
    return [f"training: {text}" for text in found]


def convert_numbers(training: dict[str, Any]) -> dict[str, Any]:
    """Convert values such as 1e-4, which YAML reads as text, to numbers."""
    if training.keys() - _SETTINGS:
        return dict(training)
    config = Config(**training)
    return {key: getattr(config, key) for key in training}


_SETTINGS = {f.name for f in dataclasses.fields(Config)}
_OF_METHOD = {"loss", "options", "labels", "search", "fixed", "training", "threshold"}
_OF_DATA = {"reader", "root", "frozen", "published", "val", "limit", "training"}
_ON_FEATURES = {"head_lr": {"low": 1e-4, "high": 3e-2, "log": True}}
_ON_IMAGES = {"lr": {"low": 1e-5, "high": 3e-4, "log": True}}


@dataclass
class Grid:
    """A benchmark as described by its YAML file; docs/benchmarks.md explains each key."""

    data: dict[str, dict[str, Any]]
    labels: list[str] = field(default_factory=lambda: ["single"])
    methods: Any = "all"
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2])
    # Seed of the shown labels: 1200 is the published draw; several: each with every seed; "seed":
    # drawn again for each seed.
    label_seed: int | str | list[int] = 1200
    training: dict[str, Any] = field(default_factory=dict)
    # Settings tried per method on validation rows, equal for all methods; 1 tries nothing.
    trials: int = 1
    search: dict[str, Any] | None = None
    # The metric that selects a trial; the threshold of predictions, "fit" (on validation rows), or
    # "offset": (1 + lowest validation prediction) / 2. A method may have its own.
    choose: str = "mAP"
    threshold: float | str = "fit"

    def cells(self) -> list[BenchCell]:
        """Every combination of data set, label setting and method, with its search space."""
        return [
            self._cell(data, setting, name, method)
            for data in self.data
            for setting in self.labels
            for name, method in self.entries().items()
            if self.applies(data, method)
        ]

    def _cell(self, data: str, setting: str, name: str, method: dict[str, Any]) -> BenchCell:
        return BenchCell(
            data=data,
            source=self.source(data),
            labels=method.get("labels", setting),
            column=setting,
            method=name,
            loss=method["loss"],
            options=method.get("options") or {},
            training=self._training(data, method),
            threshold=method.get("threshold", self.threshold),
            setup={**self.training, "cut": self.threshold},
            search=self._search(data, method),
            label_seed=self.label_seed,
            choose=self.choose,
            seeds=tuple(self.seeds),
            count=self.trials,
        )

    def source(self, data: str) -> dict[str, Any]:
        """Where a data set comes from: its reader, its root and its options."""
        about = {key: value for key, value in self.data[data].items() if key != "training"}
        return {"reader": data, **about}

    def _search(self, data: str, method: dict[str, Any]) -> dict[str, Any]:
        common = {} if method["loss"] == AUTO else self.search
        if common is None:
            common = _ON_FEATURES if is_on_features(self.source(data)) else _ON_IMAGES
        given = method.get("search")
        own = space_of(method["loss"]) if given is None else parse(given)
        # Options that the grid sets are not searched.
        fixed = method.get("fixed", ())
        own = {key: axis for key, axis in own.items() if key not in fixed}
        return {"training": parse(common), "options": own}

    def applies(self, data: str, method: dict[str, Any]) -> bool:
        """Whether a method can be trained on a data set: features have no views and no maps."""
        kind = "features" if is_on_features(self.source(data)) else "images"
        head = self._training(data, method).get("head", Config.head)
        options = fill_placeholders(method.get("options") or {})
        inputs: dict[str, Any] = {kind: ["x"]}
        config = Config(method=method["loss"], options=options, head=head, **inputs)
        return not config._check_method()

    def _training(self, data: str, method: dict[str, Any]) -> dict[str, Any]:
        """The training settings of a method: from the grid, the data set and the method."""
        about, own = self.data[data].get("training", {}), method.get("training", {})
        return {**self.training, **about, **own}

    def entries(self) -> dict[str, dict[str, Any]]:
        """The methods by the name of their table row: loss, options, labels."""
        rows = (method_rows(name, entry) for name, entry in self._given().items())
        return {name: entry for several in rows for name, entry in several.items()}

    def _given(self) -> dict[str, Any]:
        given = [self.methods] if isinstance(self.methods, str) else self.methods
        if isinstance(given, Mapping):
            return {str(name): entry for name, entry in given.items()}
        return {str(name): None for name in given}

    def select(self, methods: str | None = None, data: str | None = None) -> "Grid":
        """The grid with only the methods and data sets that match one of the patterns."""
        kept = dataclasses.replace(self)
        if data is not None:
            kept.data = matching(self.data, data, "data")
        if methods is not None:
            kept.methods = matching(self.entries(), methods, "methods")
        return kept

    def problems(self) -> list[str]:
        """Everything that is wrong with the values; files are not read."""
        found = [f"data {name}: {text}" for name in self.data for text in self._data_problems(name)]
        found += [text for name, entry in self._given().items() for text in _problems(name, entry)]
        for key in ("labels", "methods", "seeds"):
            several = getattr(self, key)
            if isinstance(several, list) and (twice := find_twice(several)):
                found.append(f"{key}: {some(twice)} is given twice")
        if not self.seeds or not all(type(s) is int and is_seed(s) for s in self.seeds):
            found.append(f"seeds: expected a list, each {SEED_RANGE}, got {self.seeds}")
        if type(self.trials) is not int or self.trials < 1:
            found.append(f"trials: expected an integer >= 1, got {self.trials!r}")
        samples = self.label_seed if isinstance(self.label_seed, list) else [self.label_seed]
        if samples != ["seed"] and not (samples and all(map(is_seed, samples))):
            found.append(
                f'label_seed: expected {SEED_RANGE}, a list of these, or "seed", got '
                f"{self.label_seed!r}"
            )
        found += threshold_problems(vars(self))
        for about in (*self.data.values(), {"training": self.training}):
            found += training_problems(about.get("training", {}))
            if "budget" in about.get("training", {}):
                found.append("training: budget belongs to the row of a method auto")
        try:
            for setting in self.labels:
                find_setting(setting)
        except DataError as error:
            found.append(f"labels: {error}")
        try:
            unknown = parse(self.search or {}).keys() - _SETTINGS
        except ValueError as error:
            return [*found, str(error)]
        return [*found, *(f"search: training has no setting {key!r}" for key in unknown)]

    def _data_problems(self, name: str) -> list[str]:
        about = self.data[name]
        if "root" not in about:
            return ["expected `root`, its folder or file below the data folder"]
        try:
            known = _OF_DATA | benchmarks.registry.signature(about.get("reader", name)).keys()
        except ValueError as error:
            return [str(error)]
        options = ", ".join(sorted(known))
        strange = sorted(about.keys() - known)
        return [f"there is no option {key!r}; there are: {options}" for key in strange]


def _problems(name: str, entry: dict[str, Any] | None) -> list[str]:
    """Mistakes of one name in `methods`."""
    found = []
    try:
        for made in method_rows(name, entry).values():
            if strange := made.keys() - _OF_METHOD:
                found.append(f"there is no key {', '.join(sorted(strange))}")
            if "budget" in (made.get("training") or {}) and made["loss"] != AUTO:
                found.append("budget works only with the method auto")
            found += threshold_problems(made)
            build_loss(made)
            parse(made.get("search") or {})
    except (ValueError, TypeError) as error:
        found.append(str(error))
    return [f"methods: {name}: {text}" for text in found] + training_problems(
        (entry or {}).get("training") or {}
    )


def load_grid(
    path: str | Path, settings: Mapping[str, object] | None = None, **changes: object
) -> Grid:
    """Read and check a grid from a YAML file, with some of its keys replaced.

    settings: training settings of every run, of which a method or data set may have its own.
    """
    path = Path(path)
    try:
        values = read_yaml(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: {error}"]) from error
    if not isinstance(values, dict):
        raise ConfigError([f"{path}: expected `name: value` lines, got {type(values).__name__}"])
    several = (values, *(values.get("data") or {}).values(), *_entries(values.get("methods")))
    for about in several if settings else ():
        if about is values or "training" in about:
            about["training"] = {**(about.get("training") or {}), **(settings or {})}
    return make_grid({**values, **{k: v for k, v in changes.items() if v is not None}})


def _entries(methods: object) -> list[dict[str, Any]]:
    """The entries of `methods` that have keys."""
    return [one for one in methods.values() if one] if isinstance(methods, dict) else []


def make_grid(values: dict[str, Any]) -> Grid:
    """Check a grid from a mapping; all mistakes are reported at once."""
    known = [f.name for f in dataclasses.fields(Grid)]
    problems = []
    for key in values.keys() - set(known):
        close = difflib.get_close_matches(str(key), known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(known)}"
        problems.append(f"there is no key {key!r}; {hint}")
    data = values.get("data")
    if not isinstance(data, dict) or not all(isinstance(v, dict) for v in data.values()):
        raise ConfigError([*problems, "data: expected a mapping of names to {root: ..., ...}"])
    grid = Grid(**{key: value for key, value in values.items() if key in known})
    if isinstance(grid.labels, str):
        grid.labels = [grid.labels]
    grid.training = convert_numbers(grid.training)
    if problems := problems + grid.problems():
        raise ConfigError(sorted(problems))
    return grid


def matching(entries: dict[str, Any], patterns: str, what: str) -> dict[str, Any]:
    """The entries whose names match one of several patterns."""
    several = [pattern.strip() for pattern in patterns.split(",")]
    found = {name: entry for name, entry in entries.items()
             if any(fnmatch.fnmatch(name, pattern) for pattern in several)}  # fmt: skip
    if not found:
        there = ", ".join(entries) if len(entries) < 100 else f"{len(entries)} names"
        raise ConfigError([f"{what}: none matches {patterns!r}; there are: {there}"])
    return found
