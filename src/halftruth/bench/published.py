"""The papers' numbers, by data set, label setting, method and metric."""

import functools
import importlib.resources
from dataclasses import dataclass
from typing import Any

import yaml


@dataclass(frozen=True)
class Number:
    """A published number in percent, and where it stands."""

    value: float
    source: str


Key = tuple[str, str, str, str]


@functools.cache
def published() -> dict[Key, Number]:
    """(data set, label setting, method, metric) -> number; of several sources the first listed.

    >>> published()["voc2012", "single", "gr", "mAP"]
    Number(value=89.83, source='Chen et al. 2024 (GR), Table 2')
    """
    found: dict[Key, Number] = {}
    for key, number in published_all():
        found.setdefault(key, number)
    return found


@functools.cache
def published_all() -> list[tuple[Key, Number]]:
    """Every published number, also those that several papers give for the same."""
    file = importlib.resources.files("halftruth.bench") / "published.yaml"
    return [
        ((data, labels, str(method), block["metric"]), Number(float(value), block["source"]))
        for block in yaml.safe_load(file.read_text(encoding="utf-8"))
        for method, values in block["rows"].items()
        for (data, labels), value in zip(_columns(block), values, strict=True)
        if value is not None
    ]


def _columns(block: dict[str, Any]) -> list[tuple[str, str]]:
    """Columns are data sets under one label setting, or label settings of one data set."""
    if isinstance(block["data"], list):
        return [(data, block["labels"]) for data in block["data"]]
    return [(block["data"], labels) for labels in block["labels"]]
