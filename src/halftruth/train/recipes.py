"""Recipes: settings from a YAML file, from a run's config.yaml, and from the caller."""

from pathlib import Path
from typing import Any

import yaml

from halftruth.train.config import READING, Config, ConfigError

# Settings that hold settings: what a caller gives is laid over what a recipe says, key by key.
_NESTED = ("reading", "reading_truth", "reading_features", "options")


def collect(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with the options of `read_labels` among them put in their place."""
    values = dict(settings)
    given = {name: values.pop(name) for name in READING if name in values}
    if given:
        reading = values.get("reading")
        values["reading"] = {**(reading if isinstance(reading, dict) else {}), **given}
    return values


def read_settings(source: Path) -> dict[str, Any]:
    """The settings of a recipe, of a config.yaml, or of the run in a folder."""
    path = source / "config.yaml" if source.is_dir() or not source.suffix else source
    if not path.is_file():
        raise ConfigError([f"{source} holds no run: there is no {path}"])
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path} is not YAML: {error}"]) from error
    if values is None:
        raise ConfigError([f"{path}: expected `name: value` lines, got an empty file"])
    if not isinstance(values, dict):
        raise ConfigError([f"{path}: expected `name: value` lines, got {type(values).__name__}"])
    return collect({str(key): value for key, value in values.items()})


def load_settings(source: Path | None, settings: dict[str, Any]) -> Config:
    """A checked configuration: a recipe's settings, if any, overruled by `settings`."""
    return Config.of(settings if source is None else overruled(read_settings(source), settings))


def overruled(values: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """`values` with `settings` laid over them.

    Options, and what auto may try, belong to a method: where that changes, they are dropped.
    """
    below = dict(values)
    if settings.get("method", below.get("method")) != below.get("method"):
        below.pop("options", None)
        below.pop("budget", None)
    nested = {
        name: {**below[name], **settings[name]}
        for name in _NESTED
        if isinstance(below.get(name), dict) and isinstance(settings.get(name), dict)
    }
    return {**below, **settings, **nested}


def to_yaml(config: Config) -> str:
    """A configuration as `halftruth train` takes it again."""
    return yaml.safe_dump(config.to_dict(), sort_keys=False, allow_unicode=True)
