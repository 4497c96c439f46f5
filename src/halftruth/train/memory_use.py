"""The memory that a run on features will need, said before it starts."""

import numpy as np

from halftruth.data.memory import check_memory, format_bytes, get_free_memory
from halftruth.models import Classifier
from halftruth.train.config import Config
from halftruth.train.task import Task

# Less than this needs no line.
_WORTH_SAYING = 500e6


def describe_memory(config: Config, task: Task, model: Classifier) -> str | None:
    """Return a line with the expected memory of a run on features; None where it is little.

    A run that cannot fit is refused. Features on disk do not count: they are read in parts.
    """
    if task.features is None:
        return None
    parts = estimate_memory(config, task, model)
    total = sum(parts.values())
    check_memory(
        # The labels and features are there already.
        total - parts["labels"] - parts["features"],
        f"training on {len(task.labels):,} rows x {len(task.classes):,} classes",
        "use fewer classes, or a method without a table per sample (see `halftruth methods`)",
    )
    if total < _WORTH_SAYING:
        return None
    shown = ", ".join(f"{name} {format_bytes(size)}" for name, size in parts.items() if size > 1e7)
    return f"memory: about {format_bytes(total)} ({shown}); {format_bytes(get_free_memory())} free"


def estimate_memory(config: Config, task: Task, model: Classifier) -> dict[str, float]:
    """Return the bytes of the large parts of a run on features, by name."""
    rows, classes = task.labels.values.shape
    features = task.features
    assert features is not None
    mapped = isinstance(features, np.memmap) or isinstance(features.base, np.memmap)
    numbers = sum(parameter.numel() for parameter in model.parameters())
    known = (task.truth, task.labels.soft, task.labels.weights)
    values = sum(array.nbytes for array in known if array is not None)
    # Logits and their gradient, and what autograd keeps of the features.
    step = config.batch_size * (4 * classes * 4 + 2 * 4 * features.shape[1])
    return {
        "features": 0.0 if mapped else float(features.nbytes),
        "labels": float(rows * classes + values),
        # Weights, gradients, two moments of Adam, moving average, best checkpoint.
        "model": 6.0 * 4 * numbers,
        "a step": float(step),
        # Scores of the validation rows, and copies for their metrics.
        "validation": 3.0 * 4 * len(task.splits.val) * classes,
    }
