"""Everything a run can be told, with defaults, checked all at once before anything starts."""

import dataclasses
import difflib
import inspect
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from halftruth import losses
from halftruth.data import read_labels

READING = tuple(list(inspect.signature(read_labels).parameters)[1:])

CHOICES: dict[str, tuple[Any, ...]] = {
    "tune": ("all", "head", "head-first"),
    "optimizer": ("adam", "adamw", "sgd"),
    "schedule": ("one-cycle", "cosine", "constant"),
    "precision": ("auto", "no", "fp16", "bf16"),
    "augment": ("none", "flip", "weak", "strong"),
    "cache": ("auto", "memory", "disk", "none"),
    "bad_images": ("fail", "skip"),
    "select": ("auto", "observed", "truth"),
}


class ConfigError(ValueError):
    """Every mistake in a configuration, in one message."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        count = f"{len(problems)} mistakes" if len(problems) > 1 else "a mistake"
        super().__init__(
            "\n".join([f"the configuration has {count}:", *(f"  - {p}" for p in problems)])
        )


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
    val: float = 0.2
    group_column: str | None = None
    bad_images: str = "fail"

    method: str = "wan"
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
    optimizer: str = "adam"
    weight_decay: float = 0.0
    l1: float = 0.0
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
    compile: bool = False
    checkpoint_every: int = 0
    tensorboard: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.images, (str, Path)):
            self.images = [str(self.images)]
        self.images = [str(path) for path in self.images]
        for name in ("labels", "features", "out", "truth", "weights", "cache_dir"):
            value = getattr(self, name)
            if isinstance(value, Path):
                setattr(self, name, str(value))

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Config":
        """From a mapping, as a recipe holds it; wrong names and values are reported together."""
        known = {f.name for f in dataclasses.fields(cls)}
        problems = []
        for key in values.keys() - known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            problems.append(f"there is no setting {key!r}{hint}")
        config = cls(**{key: value for key, value in values.items() if key in known})
        problems += config.problems()
        if problems:
            raise ConfigError(sorted(problems))
        return config

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def problems(self) -> list[str]:
        """What is wrong with the values; files are looked at, not read."""
        found: list[str] = []

        def expect(ok: bool, name: str, expected: str) -> None:
            if not ok:
                found.append(f"{name}: expected {expected}, got {getattr(self, name)!r}")

        for name, allowed in CHOICES.items():
            expect(getattr(self, name) in allowed, name, "one of " + ", ".join(map(str, allowed)))
        for name in ("epochs", "head_epochs", "batch_size"):
            expect(_is_int(getattr(self, name)) and getattr(self, name) >= 1, name, "at least 1")
        for name in ("seed", "workers", "checkpoint_every", "hidden"):
            expect(_is_int(getattr(self, name)) and getattr(self, name) >= 0, name, "0 or more")
        for name in ("lr", "head_lr"):
            expect(_is_number(getattr(self, name)) and getattr(self, name) > 0, name, "more than 0")
        for name in ("weight_decay", "l1", "clip"):
            expect(_is_number(getattr(self, name)) and getattr(self, name) >= 0, name, "0 or more")
        for name in ("ema", "dropout", "warmup"):
            value = getattr(self, name)
            expect(_is_number(value) and 0 <= value < 1, name, "a number in [0, 1)")
        expect(_is_number(self.val) and 0 < self.val < 1, "val", "a share between 0 and 1")
        expect(
            self.image_size is None or (_is_int(self.image_size) and self.image_size >= 8),
            "image_size",
            "at least 8 or nothing",
        )
        expect(
            self.patience is None or (_is_int(self.patience) and self.patience >= 1),
            "patience",
            "at least 1 or nothing",
        )
        found += self._file_problems()
        found += [
            f"{group}: read_labels has no option {key!r}"
            for group in ("reading", "reading_truth")
            for key in getattr(self, group).keys() - set(READING)
        ]
        try:
            loss = losses.create(self.method, **self.options)
        except (ValueError, TypeError) as error:
            found.append(f"method: {error}")
        else:
            if loss.views > 1 and not self.images and self.features:
                found.append(
                    f"method: {self.method} compares views of an image; features have none"
                )
        return found

    def _file_problems(self) -> list[str]:
        found = []
        if bool(self.images) == bool(self.features):
            both = "both" if self.images else "neither"
            found.append(f"images, features: expected one of the two, got {both}")
        files = {"labels": self.labels, "features": self.features, "truth": self.truth}
        for name, path in files.items():
            if path and not Path(path).exists():
                found.append(f"{name}: there is no file or folder {path}")
        if not self.labels:
            found.append("labels: expected a label file")
        found += [
            f"images: there is no folder or zip {path}"
            for path in self.images
            if not Path(path).exists()
        ]
        named = self.weights in ("pretrained", "none")
        if self.images and not named and not Path(self.weights).is_file():
            found.append(f'weights: expected "pretrained", "none" or a file, got {self.weights!r}')
        if self.select == "truth" and not self.truth:
            found.append('select: "truth" needs the complete labels (truth)')
        return found


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
