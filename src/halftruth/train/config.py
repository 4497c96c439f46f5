"""Everything a run can be told, with defaults, checked all at once before anything starts."""

import dataclasses
import difflib
import inspect
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from halftruth import losses
from halftruth.data import read_features, read_labels
from halftruth.losses.memory import Memory
from halftruth.losses.spatial import SpatialConsistency
from halftruth.train.checks import as_number, expected

if TYPE_CHECKING:
    from halftruth.models.heads import Head

# What a label file and a matrix of features may be read with.
READING = tuple(list(inspect.signature(read_labels).parameters)[1:])
READING_FEATURES = tuple(set(inspect.signature(read_features).parameters) - {"path", "rows"})

# What decides neither the model nor what it learns: a resumed run may change it without a word.
OF_THE_MACHINE = (
    "labels", "images", "features", "out", "truth", "reading", "reading_truth", "reading_features",
    "val", "group_column", "bad_images", "device", "workers", "cache", "cache_dir",
    "channels_last", "compile", "graphs", "memory", "checkpoint_every", "tensorboard", "report",
)  # fmt: skip


class ConfigError(ValueError):
    """Every mistake in a configuration, in one message."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        count = f"{len(problems)} mistakes" if len(problems) > 1 else "a mistake"
        super().__init__(
            "\n".join([f"the configuration has {count}:", *(f"  - {p}" for p in problems)])
        )


# Defaults that differ where features are given: a step takes a millisecond, so there may be more.
OVER_FEATURES = {"epochs": 30, "head_lr": 1e-3}


@dataclass
class Config:
    """One run. `halftruth train --help` and docs/training.md explain each field."""

    labels: str = ""
    images: list[str] = field(default_factory=list)
    features: str | None = None
    out: str = "runs/last"
    # Complete labels of the same items, where they are known: for validation, test and statistics.
    truth: str | None = None
    reading: dict[str, Any] = field(default_factory=dict)
    reading_truth: dict[str, Any] = field(default_factory=dict)
    reading_features: dict[str, Any] = field(default_factory=dict)
    val: float = 0.2
    group_column: str | None = None
    bad_images: str = "fail"

    method: str = "auto"
    # What `auto` may try: a number of trials, or "10 minutes".
    budget: str | int | None = None
    options: dict[str, Any] = field(default_factory=dict)

    backbone: str = "resnet50"
    weights: str = "pretrained"
    image_size: int | None = None
    hidden: int = 0
    head: str = "linear"
    dropout: float = 0.0
    tune: str = "head-first"
    freeze_bn: bool = True

    epochs: int = 10
    head_epochs: int = 12
    batch_size: int = 32
    lr: float = 1e-4
    head_lr: float = 3e-4
    head_lr_mult: float = 1.0
    optimizer: str = "adam"
    weight_decay: float = 0.0
    l1: float = 0.0
    ridge: float | None = None
    schedule: str = "one-cycle"
    warmup: float = 0.2
    ema: float = 0.999
    clip: float = 0.0
    augment: str = "weak"
    patience: int | None = None
    select: str = "auto"

    seed: int = 0
    device: str = "auto"
    precision: str = "auto"
    workers: int = 2
    cache: str = "auto"
    cache_dir: str | None = None
    channels_last: bool = True
    compile: bool | None = None
    graphs: bool = True
    # Where a method's table by sample lies.
    memory: str = "auto"
    checkpoint_every: int = 0
    tensorboard: bool = False
    report: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.images, (str, Path)):
            self.images = [str(self.images)]
        if isinstance(self.images, (list, tuple)):
            self.images = [str(path) if isinstance(path, Path) else path for path in self.images]
        for name, kind in typing.get_type_hints(Config).items():
            value = getattr(self, name)
            if isinstance(value, Path):
                setattr(self, name, str(value))
            elif kind is float:
                setattr(self, name, as_number(value))

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Config":
        """From a mapping, as a recipe holds it; wrong names and values are reported together."""
        known = {f.name for f in dataclasses.fields(cls)}
        if values.get("features"):
            values = {**OVER_FEATURES, **values}
        problems = []
        for key in values.keys() - known:
            close = difflib.get_close_matches(key, [*known, *READING], n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            problems.append(f"there is no setting {key!r}{hint}")
        config = cls(**{key: value for key, value in values.items() if key in known})
        problems += config.problems()
        if problems:
            raise ConfigError(sorted(problems))
        return config

    @property
    def selects_on_truth(self) -> bool:
        """Whether epochs and thresholds are chosen on complete labels."""
        return self.select == "truth" or (self.select == "auto" and self.truth is not None)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def problems(self) -> list[str]:
        """What is wrong with the values; files are looked at, not read."""
        found = {}
        for name, kind in typing.get_type_hints(Config).items():
            value = getattr(self, name)
            if wanted := expected(name, kind, value):
                found[name] = f"{name}: expected {wanted}, got {value!r}"
        checks = [
            (("images", "features", "labels", "truth"), self._file_problems),
            (("weights", "images", "select", "truth"), self._choice_problems),
            (("reading", "reading_truth", "reading_features"), self._reading_problems),
            (("device", "precision"), self._device_problems),
            (("method", "options", "images", "features", "head"), self._method_problems),
            (("method", "budget"), self._budget_problems),
            (("method", "options", "memory"), self._memory_problems),
            (("backbone", "head", "images", "tune", "hidden"), self._model_problems),
        ]
        more = [
            problem
            for needed, check in checks
            if not found.keys() & set(needed)
            for problem in check()
        ]
        return [*found.values(), *more]

    def _file_problems(self) -> list[str]:
        found = []
        if bool(self.images) == bool(self.features):
            both = "both" if self.images else "neither"
            found.append(f"images, features: expected one of the two, got {both}")
        files = {"labels": self.labels, "features": self.features, "truth": self.truth}
        found += [
            f"{name}: there is no file or folder {path}"
            for name, path in files.items()
            if path and not Path(path).exists()
        ]
        if not self.labels:
            found.append("labels: expected a label file")
        found += [
            f"images: there is no folder or zip {path}"
            for path in self.images
            if not Path(path).exists()
        ]
        return found

    def _choice_problems(self) -> list[str]:
        found = []
        named = self.weights in ("pretrained", "none")
        if self.images and not named and not Path(self.weights).is_file():
            found.append(f'weights: expected "pretrained", "none" or a file, got {self.weights!r}')
        if self.select == "truth" and not self.truth:
            found.append('select: "truth" needs the complete labels (truth)')
        return found

    def _reading_problems(self) -> list[str]:
        known = {"reading": READING, "reading_truth": READING, "reading_features": READING_FEATURES}
        return [
            f"{group}: there is no option {key!r}; the options are {', '.join(sorted(names))}"
            for group, names in known.items()
            for key in getattr(self, group).keys() - set(names)
        ]

    def _device_problems(self) -> list[str]:
        found = []
        if self.device == "cuda" and not torch.cuda.is_available():
            found.append("device: there is no CUDA device here; take auto or cpu")
        if self.device == "mps" and not torch.backends.mps.is_available():
            found.append("device: there is no MPS device here; take auto or cpu")
        if self.precision == "fp16" and (self.device == "cpu" or not torch.cuda.is_available()):
            found.append("precision: fp16 needs a CUDA device; take auto, no or bf16")
        return found

    def _method_problems(self) -> list[str]:
        if self.method == "auto":
            given = ", ".join(map(str, self.options))
            return [f"options: auto chooses them, got {given}; name a method"] * bool(given)
        try:
            loss = losses.create(self.method, **self.options)
        except (ValueError, TypeError) as error:
            return [f"method: {error}"]
        head = self._head()
        if len(head.members) > 1 and loss.needs_index:
            return [
                f"head: {self.head!r} trains {len(head.members)} members on every row, and "
                f"{self.method} remembers one value per row; choose another head or method"
            ]
        if loss.views > 1 and self.features:
            return [f"method: {self.method} compares views of an image; features have none"]
        spatial = any(isinstance(part, SpatialConsistency) for part in loss.modules())
        if spatial and (self.features or not head.keeps_maps):
            return [
                f"method: {self.method} looks at class maps, which images with the head 'cam' or "
                "'boostlu' have (--head cam --tune all)"
            ]
        return []

    def _budget_problems(self) -> list[str]:
        if self.budget is None or self.method == "auto":
            return []
        return [
            f"budget: is what method auto may try; {self.method} is trained as it is set. Leave "
            "one of the two out, or search its arguments with `halftruth tune`"
        ]

    def _memory_problems(self) -> list[str]:
        if self.memory != "host" or self.method == "auto":
            return []
        try:
            loss = losses.create(self.method, **self.options)
        except (ValueError, TypeError):
            # Told among the mistakes of the method.
            return []
        if any(isinstance(part, Memory) for part in loss.modules()):
            return []
        hint = "; take light=True" if "light" in losses.registry.signature(self.method) else ""
        return [f"memory: {self.method} has no table that could lie in host memory{hint}"]

    def _head(self) -> "type[Head]":
        """The head's class; one that claims nothing where the name is wrong: that is told apart."""
        from halftruth.models.heads import Head, registry

        return registry.get(self.head) if self.head in registry.names() else Head

    def _model_problems(self) -> list[str]:
        from halftruth.models import import_timm
        from halftruth.models.heads import registry as heads

        found, head = [], self._head()
        if self.head not in heads.names():
            found.append(f"head: expected one of {', '.join(heads.names())}, got {self.head!r}")
        if not self.images:
            if head.wants_map:
                found.append(f"head: {self.head!r} needs feature maps, which only images have")
            return found
        timm, name = import_timm(), self.backbone.partition(".")[0]
        if ":" not in name and not timm.is_model(name):
            close = difflib.get_close_matches(name, timm.list_models(), n=3)
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            found.append(f"backbone: timm has no model called {self.backbone!r}{hint}")
        if head.only_features:
            found.append(f"head: {self.head!r} is for features; a model of images takes another")
        if self.hidden:
            found.append(f"hidden: is for features; a model of images takes 0, got {self.hidden}")
        if self.head != "linear" and self.tune != "all":
            found.append(
                f"tune: {self.tune!r} trains a linear head on features; with the head "
                f"{self.head!r} take tune 'all'"
            )
        return found
