"""Training: `fit`, the configuration of a run, and what a run leaves behind."""

import importlib
from typing import Any

# Where a public name lives: checking settings should not wait for what only training needs.
_NAMES = {
    "CheckpointError": "checkpoint",
    "Config": "config",
    "ConfigError": "config",
    "Interrupted": "stage_progress",
    "Result": "result",
    "TrainingStopped": "stage_progress",
    "fit": "start",
    "load_settings": "config",
}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"halftruth.train.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'halftruth.train' has no attribute {name!r}")
