"""The configuration of a run: settings from the caller and from YAML files, checked all at once."""

import dataclasses
import difflib
import inspect
import warnings
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from halftruth.reading import READING
from halftruth.seeds import is_seed
from halftruth.train.auto.named_methods import expand_named_method
from halftruth.train.settings import (
    AUTO,
    ENSEMBLE,
    GIVEN,
    MANY_CLASSES_METHOD,
    PLANS,
    SETTINGS,
    Settings,
    as_options,
    get_defaults,
    parse_number,
    read_yaml,
)

if TYPE_CHECKING:
    from halftruth.losses import Loss
    from halftruth.models.heads import Head

# Settings that are mappings: a caller's values are merged with those of a recipe, key by key.
_NESTED = ("reading", "reading_truth", "reading_features", "options")


class ConfigError(ValueError):
    """All mistakes in a configuration, in one message."""

    def __init__(self, problems: list[str]) -> None:
        # The argument itself, not the message: an error is pickled as its class and arguments.
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return _list_problems(self.problems)

    def as_options(self) -> str:
        """Return the message with the options of the command line instead of settings."""
        return _list_problems([as_options(problem) for problem in self.problems])


def _list_problems(problems: list[str]) -> str:
    count = f"{len(problems)} mistakes" if len(problems) > 1 else "a mistake"
    return "\n".join([f"the configuration has {count}:", *(f"  - {p}" for p in problems)])


@dataclass
class Config(Settings):
    """The settings of one run; `settings.py` declares them, docs/settings.md lists them."""

    def __post_init__(self) -> None:
        for name in ("images", "features", "hints"):
            paths = getattr(self, name)
            if isinstance(paths, (str, Path)):
                paths = [str(paths)]
            if isinstance(paths, (list, tuple)):
                paths = [str(path) if isinstance(path, Path) else path for path in paths]
            setattr(self, name, [] if paths is None else paths)
        for name, setting in SETTINGS.items():
            value = getattr(self, name)
            if isinstance(value, Path):
                setattr(self, name, str(value))
            elif name == "seed" and is_seed(value):
                self.seed = int(value)
            elif setting.kind in (float, float | None):
                setattr(self, name, parse_number(value))

    @classmethod
    def of(cls, values: Mapping[str, object]) -> "Config":
        """Return a checked configuration; all mistakes are reported together."""
        problems = []
        for key in values.keys() - SETTINGS.keys():
            close = difflib.get_close_matches(key, [*SETTINGS, *READING], n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            problems.append(f"there is no setting {key!r}{hint}")
        defaults = get_defaults(values)
        known = {key: value for key, value in values.items() if key in SETTINGS}
        config = cls(**{**defaults, **known})
        problems += config.problems(known)
        if problems:
            raise ConfigError(sorted(problems))
        return config

    @property
    def selects_on_truth(self) -> bool:
        """Whether epochs and thresholds are chosen on complete labels."""
        return self.select == "truth" or (self.select == "auto" and self.truth is not None)

    def to_dict(self) -> dict[str, object]:
        """Return all settings."""
        return dataclasses.asdict(self)

    def effective(self) -> dict[str, object]:
        """Return the settings that have an effect in this run."""
        return {k: v for k, v in self.to_dict().items() if self.without_effect(k) is None}

    def with_changes(self, settings: Mapping[str, object]) -> "Config":
        """Return a checked copy with other values for some settings."""
        settings = resolve_method(settings)
        usual = type(self)(**get_defaults(self.to_dict())).to_dict()
        own = {k: v for k, v in self.to_dict().items() if v != usual[k]}
        return type(self).of({**self.effective(), **own, **settings})

    def to_yaml(self) -> str:
        """Return the settings that have an effect, as a recipe for `halftruth train`."""
        return yaml.safe_dump(self.effective(), sort_keys=False, allow_unicode=True)

    def problems(self, given: Collection[str] = ()) -> list[str]:
        """Return all problems of the values; files must exist, but are not read.

        given: names of settings that must have an effect.
        """
        found = {}
        for name, setting in SETTINGS.items():
            value = getattr(self, name)
            if expected := setting.expected(value):
                found[name] = f"{name}: expected {expected}, got {value!r}"
        checks = [
            (("images", "features", "text", "labels", "truth", "hints"), self._check_files),
            (("weights", "images", "select", "truth", "val"), self._check_choices),
            (("reading", "reading_truth", "reading_features"), self._check_reading),
            (("device", "precision"), self._check_device_and_precision),
            (("method", "options", "images", "features", "head"), self._check_method),
            (("method", "budget"), self._check_budget),
            (("backbone", "head", "images", "tune"), self._check_model),
        ]
        more = [
            problem
            for needed, check in checks
            if not found.keys() & set(needed)
            for problem in check()
        ]
        no_effect = [
            f"{name}: has no effect, since {reason}"
            for name in given
            if name not in found
            and getattr(self, name) not in (None, [], {})
            and (reason := self.without_effect(name))
        ]
        return [*found.values(), *more, *no_effect]

    def _check_files(self) -> list[str]:
        found = []
        if not self.images and not self.on_features:
            found.append("images, features, text: expected at least one of them, got none")
        if self.images and self.tunes_encoder:
            found.append("tune: together with `images` the `encoder` stays frozen; leave it out")
        files = [("labels", self.labels), ("truth", self.truth)]
        files += [("features", path) for path in self.features]
        files += [("hints", path) for path in self.hints] + [("hint_names", self.hint_names)]
        from halftruth.data.errors import mask
        from halftruth.data.shards import exists

        every = [*files, *(("images", path) for path in self.images)]
        if secret := [f"{name}: {mask(to)}" for name, to in every if to and mask(to) != str(to)]:
            # Nothing else is checked: messages would show it.
            return [
                f"{one}: has a password or a signature, which the run folder would keep; give "
                "credentials by the usual variables, or copy the file"
                for one in secret
            ]
        found += [
            f"{name}: there is no file or folder {path}"
            for name, path in files
            if path and not exists(path)
        ]
        found += [
            f"{name}: {path} is given twice"
            for name in ("features", "hints", "images")
            for path, count in Counter(map(str, getattr(self, name))).items()
            if count > 1
        ]
        if self.tunes_encoder and self.features:
            found.append(
                "tune: with files of `features` the `encoder` stays frozen; leave out one of the "
                "two"
            )
        if not self.labels:
            found.append("labels: expected a label file")
        found += [
            f"images: there is no folder, zip file or shard {path}"
            for path in self.images
            if not exists(path)
        ]
        if Path(self.out).is_file():
            found.append(f"out: expected a folder, got the file {self.out}")
        return found

    def _check_choices(self) -> list[str]:
        found = []
        named = self.weights in ("pretrained", "none")
        if self.images and not named and not Path(self.weights).is_file():
            found.append(f'weights: expected "pretrained", "none" or a file, got {self.weights!r}')
        if self.cache == "none" and self.on_features:
            found.append("cache: none is for `images`; expected auto, memory or disk")
        if self.val == 0 and not self.fits_at_once:
            found.append(
                "val: expected more than 0 for a model that is trained by epochs, got 0: its "
                "validation rows choose the epoch and give probabilities and decisions. Only the "
                "ensemble of `method` auto (on `features` or `text`, or on `images` with `tune` "
                "head) needs none"
            )
        if self.fits_at_once and self.select not in ("auto", "observed", "truth"):
            found.append(
                f"select: {self.select} chooses an epoch, and an ensemble has none; expected auto, "
                "observed or truth (the labels that probabilities and decisions are fitted to)"
            )
        if self.select == "averaged" and (self.on_features or self.tune != "head-first"):
            found.append(
                "select: averaged needs weights from before the whole network is trained; use it "
                "with `images` and `tune` head-first"
            )
        if self.select == "truth" and not self.truth:
            found.append('select: "truth" needs the complete labels (`truth`)')
        return found

    def _check_reading(self) -> list[str]:
        groups = [name for name in ("reading", "reading_truth") if getattr(self, name)]
        known = dict.fromkeys(groups, tuple(READING))
        if self.reading_features:
            known["reading_features"] = _list_feature_arguments()
        return [
            f"{group}: there is no argument {key!r}; the arguments are {', '.join(sorted(names))}"
            for group, names in known.items()
            for key in getattr(self, group).keys() - set(names)
        ]

    def _check_device_and_precision(self) -> list[str]:
        found = find_device_problems(self.device)
        if self.precision == "fp16":
            import torch

            if self.device == "cpu" or not torch.cuda.is_available():
                found.append("precision: fp16 needs a CUDA device; use auto, no or bf16")
        return found

    def _check_method(self) -> list[str]:
        if self.method == MANY_CLASSES_METHOD and not self.on_features:
            return ["method: many-classes is fitted to `features` or `text`"]
        if self.method in (ENSEMBLE, MANY_CLASSES_METHOD) and not self.fits_ensemble:
            return [
                "method: the ensemble is fitted to features: of `features`, of `text` with TF-IDF "
                "or a frozen `encoder`, or of `images` with `tune` head"
            ]
        if self.method == GIVEN and (len(self.features) != 1 or self.images or self.text):
            return ["method: given-scores takes one file of `features`, the scores, and no others"]
        if self.method in (*PLANS, GIVEN):
            given = ", ".join(map(str, self.options))
            return [f"options: {AUTO} chooses them, got {given}; name a `method`"] * bool(given)
        try:
            loss = self._create_loss()
        except ConfigError as error:
            return error.problems
        head = self._get_head_class()
        if loss.views > 1 and self.on_features:
            return [f"method: {self.method} compares views of an image; features have none"]
        if loss.teacher_on_features and self.on_features and not self.tunes_encoder:
            return [
                f"method: {self.method} trains a network, on images or text; on features, auto "
                "fits the ensemble that would be its teacher"
            ]
        if loss.needs_maps and (self.on_features or not head.keeps_maps):
            return [
                f"method: {self.method} needs class maps, which only images with the `head` cam or "
                "boostlu have; use `head` cam with `tune` all"
            ]
        return []

    def _create_loss(self) -> "Loss":
        """Return the loss; a wrong name or argument is an error about that setting."""
        from halftruth import losses

        try:
            arguments = losses.registry.signature(self.method)
        except ValueError as error:
            # Plans of the data, not losses.
            close = difflib.get_close_matches(self.method, PLANS, n=1, cutoff=0.75)
            hint = f"did you mean {close[0]}? " if close else ""
            raise ConfigError([f"method: {hint}{error}"]) from error
        missing = [
            name
            for name, parameter in arguments.items()
            if parameter.default is parameter.empty and name not in self.options
        ]
        if missing and not self.options.keys() - arguments.keys():
            example = losses.registry.find_example(self.method, **self.options)
            raise ConfigError(
                [
                    f"options: the method {self.method} needs {name}, for instance "
                    f'options={{"{name}": {example}}}'
                    for name in missing
                ]
            )
        try:
            return losses.create(self.method, **self.options)
        except (ValueError, TypeError) as error:
            raise ConfigError([f"options: {error}"]) from error

    def _check_budget(self) -> list[str]:
        if self.budget is None or self.method in PLANS:
            return []
        return [
            f"budget: limits the settings that method auto tries; {self.method} tries none. "
            "Leave out one of the two, or search its arguments with `halftruth tune`"
        ]

    def _get_head_class(self) -> "type[Head]":
        """Return the class of the head; `_check_model` reports a wrong name."""
        from halftruth.models.heads import Head, registry

        return registry.get(self.head) if self.head in registry.names() else Head

    def _check_model(self) -> list[str]:
        from halftruth.models.heads import registry as heads
        from halftruth.models.timm_support import backbone_names

        found, head = [], self._get_head_class()
        if self.head not in heads.names():
            found.append(f"head: expected one of {', '.join(heads.names())}, got {self.head!r}")
        if not self.images:
            if head.wants_map:
                found.append(f"head: {self.head!r} needs feature maps, which only images have")
            elif self.tunes_encoder and self.head != "linear":
                found.append(f"head: a fine-tuned `encoder` has a linear head, got {self.head!r}")
            return found
        name = self.backbone.partition(".")[0]
        if ":" not in name and name not in (known := backbone_names()):
            close = difflib.get_close_matches(name, known, n=3)
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            found.append(f"backbone: timm has no model called {self.backbone!r}{hint}")
        if head.only_features:
            found.append(f"head: {self.head!r} is for `features`; choose another for `images`")
        if self.head != "linear" and self.tune != "all":
            found.append(
                f"tune: {self.tune!r} trains a linear head on features; with the `head` "
                f"{self.head} use `tune` all"
            )
        return found


def find_device_problems(device: str) -> list[str]:
    """Return the problems of a device: none or one."""
    if expected := SETTINGS["device"].expected(device):
        return [f"device: expected {expected}, got {device!r}"]
    if device not in ("cuda", "mps"):
        return []
    import torch

    backend = torch.cuda if device == "cuda" else torch.backends.mps
    if backend.is_available():
        return []
    return [f"device: there is no {device.upper()} device here; use auto or cpu"]


def check_device(device: str) -> None:
    """Raise a `ConfigError` for a device that is unknown or not available."""
    if found := find_device_problems(device):
        raise ConfigError(found)


# ---------------------------------------------------------------------- reading and writing


def _list_feature_arguments() -> tuple[str, ...]:
    from halftruth.data.feature_columns import read_feature_columns

    return tuple(set(inspect.signature(read_feature_columns).parameters) - {"path", "lenient"})


def collect(settings: Mapping[str, object]) -> dict[str, Any]:
    """Return the settings, with arguments of `read_labels` moved into `reading`."""
    values = dict(settings)
    if not values.keys() - SETTINGS.keys():
        return values
    names = [name for name in READING if name in values]
    found = {name: _to_text(values.pop(name)) for name in names}
    if found:
        reading = values.get("reading")
        values["reading"] = {**(reading if isinstance(reading, dict) else {}), **found}
    return values


def _to_text(value: object) -> object:
    """Return paths, also those in a list, as text, which config.yaml can hold."""
    if isinstance(value, list | tuple):
        return [_to_text(one) for one in value]
    return str(value) if isinstance(value, Path) else value


def read_settings(source: Path) -> dict[str, Any]:
    """Return the settings of a recipe, of a config.yaml, or of the run in a folder."""
    path = source / "config.yaml" if source.is_dir() or not source.suffix else source
    if not path.is_file():
        raise ConfigError([f"{source} holds no run: there is no {path}"])
    try:
        values = read_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        twice = getattr(error, "problem", None)
        if twice and twice.endswith("is given twice"):
            raise ConfigError([f"{path}, {twice}"]) from error
        raise ConfigError([f"{path} is not YAML: {error}"]) from error
    if values is None:
        raise ConfigError([f"{path}: expected `name: value` lines, got an empty file"])
    if not isinstance(values, dict):
        raise ConfigError([f"{path}: expected `name: value` lines, got {type(values).__name__}"])
    return collect({str(key): value for key, value in values.items()})


def load_settings(
    source: Path | Mapping[str, object] | None, settings: Mapping[str, object]
) -> Config:
    """Return a checked configuration: the settings of a recipe (if any), overridden by `settings`.

    source: a file, a run folder, or the settings of a recipe. Recipe settings that lose their
    effect because of `settings` are left out, with a warning; any other setting without effect is
    an error.
    """
    settings = expand_named_method(resolve_method(settings))
    if source is None:
        return Config.of(settings)
    if isinstance(source, Mapping):
        recipe = resolve_method(collect(source))
        if settings.get("labels", recipe.get("labels")) != recipe.get("labels"):
            recipe = _drop_data(recipe)
    else:
        recipe = read_settings(Path(source))
    values = override(recipe, settings)
    known = {name: value for name, value in values.items() if name in SETTINGS}
    before = Config(**{name: value for name, value in recipe.items() if name in SETTINGS})
    after = Config(**known)
    dropped = [
        name
        for name in known.keys() - settings.keys()
        if after.without_effect(name) and not before.without_effect(name)
    ]
    config = Config.of({name: value for name, value in values.items() if name not in dropped})
    if dropped:
        warnings.warn(
            f"settings of the recipe that have no effect here are left out: "
            f"{', '.join(sorted(dropped))}",
            stacklevel=2,
        )
    return config


def resolve_method(settings: Mapping[str, Any], stored: bool = True) -> dict[str, Any]:
    """Return settings in which a loss, or its class, is replaced by its name and its arguments.

    stored: config.yaml must hold them.
    """
    method, given = settings.get("method"), settings.get("options")
    if method is None or isinstance(method, str):
        return dict(settings)
    from halftruth.losses import Loss, registry

    if isinstance(method, Loss) and given:
        raise ConfigError(
            [
                f"options: have no effect, since the method is a built {type(method).__name__}; "
                "set its arguments when you create it, or give its class"
            ]
        )
    try:
        name, options = registry.describe(method, stored)
    except (ValueError, TypeError) as error:
        raise ConfigError([f"method: {error}"]) from error
    return {**settings, "method": name, "options": {**options, **(given or {})}}


def _drop_data(recipe: Mapping[str, object]) -> dict[str, object]:
    """Return a paper's recipe without the settings for the data of the paper."""
    names = {"labels", "truth", "images", "features", "text", "encoder", "group_column"}
    names |= {"reading", "reading_truth", "reading_features"}
    if recipe.get("select") == "truth":
        names.add("select")
    return {name: value for name, value in recipe.items() if name not in names}


def override(values: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` overridden by `settings`.

    Another method drops the options and the budget. Features or text replace images, and images
    replace both.
    """
    below = dict(values)
    kinds = (("images",), ("features", "text", "encoder"))
    for here, other in (kinds, kinds[::-1]):
        if any(map(settings.get, here)) and not any(map(settings.get, other)):
            for name in other:
                below.pop(name, None)
    if settings.get("method", below.get("method")) != below.get("method"):
        below.pop("options", None)
        below.pop("budget", None)
    nested = {
        name: {**below[name], **settings[name]}
        for name in _NESTED
        if isinstance(below.get(name), dict) and isinstance(settings.get(name), dict)
    }
    return {**below, **settings, **nested}
