"""Training: `fit`, the configuration of a run, and what a run leaves behind."""

from halftruth.train.checkpoint import CheckpointError
from halftruth.train.config import Config, ConfigError
from halftruth.train.recipes import load_settings
from halftruth.train.result import Result
from halftruth.train.stage_progress import Interrupted, TrainingStopped
from halftruth.train.start import fit

__all__ = [
    "CheckpointError",
    "Config",
    "ConfigError",
    "Interrupted",
    "Result",
    "TrainingStopped",
    "fit",
    "load_settings",
]
