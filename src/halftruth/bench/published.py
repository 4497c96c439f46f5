"""The papers' numbers, by data set, label setting, method and metric."""

import functools
import importlib.resources
from dataclasses import dataclass

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
    file = importlib.resources.files("halftruth.bench") / "published.yaml"
    found: dict[Key, Number] = {}
    for block in yaml.safe_load(file.read_text(encoding="utf-8")):
        metric = block.get("metric", "mAP")
        for method, values in block["rows"].items():
            for (data, labels), value in zip(_columns(block), values, strict=True):
                if value is not None:
                    key = (data, labels, str(method), metric)
                    found.setdefault(key, Number(float(value), block["source"]))
    return found


def _columns(block: dict) -> list[tuple[str, str]]:  # type: ignore[type-arg]
    """Columns are data sets under one label setting, or label settings of one data set."""
    if isinstance(block["data"], list):
        return [(data, block["labels"]) for data in block["data"]]
    return [(block["data"], labels) for labels in block["labels"]]
