"""Multi-label learning when many labels are missing.

    halftruth.losses    every robust loss behind one interface: create("hill")(logits, labels)
    halftruth.labels    +1 present, 0 unknown, -1 absent: checks, conversions, hiding
    halftruth.metrics   mAP, F1 and relatives, thresholds

These need torch and numpy only. `pip install "halftruth[train]"` adds `fit`, `load`, `evaluate`,
`predict`, `HalftruthClassifier` and the `halftruth` command.
"""

import importlib
from typing import Any

from halftruth.extras import needs_extras

__version__ = "0.1.0"

# The module of each public name; imported on first use.
_MODULES = ("audit", "data", "labels", "losses", "metrics", "models", "presence", "train")
_NAMES = {
    "HalftruthClassifier": "estimator",
    "TrainedRun": "train.results.trained_run",
    "calibrate": "api",
    "evaluate": "train.results.evaluate",
    "export_onnx": "models.export",
    "export_torch": "models.export",
    "fit": "api",
    "load": "api",
    "predict": "train.results.predictions",
}

__all__ = ["__version__", *sorted([*_MODULES, *_NAMES])]


def __getattr__(name: str) -> Any:
    with needs_extras(f"halftruth.{name}"):
        if name in _MODULES:
            return importlib.import_module(f"halftruth.{name}")
        if name in _NAMES:
            return getattr(importlib.import_module(f"halftruth.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'halftruth' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
