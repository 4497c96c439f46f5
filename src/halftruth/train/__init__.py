"""Training: the settings of a run, the run itself, and the files it leaves."""

import importlib
from typing import Any

from halftruth.extras import needs_extras

# The module of each public name; loaded on first use, so that checking settings is fast.
_NAMES = {
    "CheckpointError": "run_folder",
    "Config": "config",
    "ConfigError": "config",
    "Interrupted": "trainer",
    "Result": "results.run_result",
    "TrainingStopped": "trainer",
    "load_settings": "config",
}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        with needs_extras(f"halftruth.train.{name}"):
            return getattr(importlib.import_module(f"halftruth.train.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'halftruth.train' has no attribute {name!r}")
