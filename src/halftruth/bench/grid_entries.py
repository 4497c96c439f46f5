"""What stands in a grid: rows of methods, and settings of training."""

import dataclasses
from typing import Any

from halftruth import losses
from halftruth.bench.job import PRIOR
from halftruth.bench.search_space import space_of
from halftruth.models.heads import registry as heads
from halftruth.train.auto import AUTO
from halftruth.train.config import Config
from halftruth.train.recipes import collect

# Settings of `halftruth train` that a grid fixes itself: files, the method, the seed.
_NOT_TRAINING = {
    "labels", "images", "features", "out", "truth", "reading", "reading_truth", "reading_features",
    "val", "group_column", "method", "options", "seed", "device", "cache", "cache_dir", "workers",
    "select", "tensorboard", "checkpoint_every", "bad_images", "report",
}  # fmt: skip
# Chooses everything by itself, from the labels that are shown.
BY_ITSELF = {"loss": AUTO, "options": {}, "search": {}, "fixed": []}
COMPLETE = {"loss": "bce", "labels": "complete", "search": {}}


def method_rows(name: str, entry: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    """The rows that a name in `methods` stands for."""
    if name == "all":
        every = {loss: {**with_needed(loss, {}), "fixed": []} for loss in losses.names()}
        return {"complete": dict(COMPLETE), **every}
    if name == "complete" and entry is None:
        return {name: dict(COMPLETE)}
    if AUTO in (name, (entry or {}).get("loss")):
        return {name: {**BY_ITSELF, **(entry or {})}}
    entry = {"loss": name, **(entry or {})}
    entry.setdefault("fixed", list(entry.get("options") or {}))
    return {name: {**entry, **with_needed(entry["loss"], entry)}}


def with_needed(loss: str, entry: dict[str, Any]) -> dict[str, Any]:
    """A method's entry with what it cannot do without: positives a row are counted on validation
    rows, other numbers start in the middle of what is searched.
    """
    options = dict(entry.get("options") or {})
    signature, space = losses.registry.signature(loss), space_of(loss)
    for key, parameter in signature.items():
        if key == "expected_positives":
            options.setdefault(key, PRIOR)
        elif parameter.default is parameter.empty and key in space:
            options.setdefault(key, space[key].at(0.5))
    return {"loss": losses.registry.resolve(loss), "options": options}


def built(entry: dict[str, Any]) -> losses.Loss | None:
    if entry["loss"] == AUTO:
        return None
    return losses.create(entry["loss"], **numbered(entry.get("options") or {}))


def numbered(options: dict[str, Any]) -> dict[str, Any]:
    """Options with some number where one is counted later."""
    return {key: 1.0 if value == PRIOR else value for key, value in options.items()}


def training_problems(training: dict[str, Any]) -> list[str]:
    strange = training.keys() & _NOT_TRAINING
    found = [f"training: {key} is not a grid's to say" for key in sorted(strange)]
    known = {f.name for f in dataclasses.fields(Config)}
    found += [f"training: there is no setting {key!r}" for key in sorted(training.keys() - known)]
    if not found:
        head = training.get("head", Config.head)
        maps = head in heads.names() and heads.get(head).wants_map
        inputs: dict[str, Any] = {"images": ["x"]} if maps else {}
        config = Config(**collect(training), **inputs)
        texts = (text for text in config.problems() if text.split(":")[0] in training)
        found += [f"training: {text}" for text in texts]
    return found


def with_numbers_read(training: dict[str, Any]) -> dict[str, Any]:
    """YAML takes 1e-4, which lacks a point, for text; `Config` does not."""
    known = {f.name for f in dataclasses.fields(Config)}
    if not training or training.keys() - known:
        return dict(training)
    config = Config(**training)
    return {key: getattr(config, key) for key in training}
