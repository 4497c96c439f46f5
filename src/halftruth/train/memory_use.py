"""The memory that a run will need, estimated before it starts."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from halftruth.data.memory import check_memory, format_bytes, get_free_memory
from halftruth.data.wide_matrix import WideMatrix
from halftruth.models import Classifier
from halftruth.models.many_classes import BLOCK
from halftruth.train.config import Config
from halftruth.train.many_classes.fit_many import NEIGHBOUR_ROWS
from halftruth.train.task import Task

# Less than this needs no line.
_WORTH_SAYING = 500e6
# Copies of the training rows while members are fitted: standardised, without a fold, on the way to
# another process.
_COPIES = 4.0


def describe_memory(
    config: Config,
    task: Task,
    model: Classifier | None = None,
    device: torch.device | None = None,
) -> str | None:
    """Return a line with the expected memory of a run; None where it is little.

    A run that cannot fit is refused. Features and images on disk do not count: they are read in
    parts. `model`: None for that of many classes.
    """
    if model is None:
        parts = estimate_many_classes(task)
    else:
        parts = estimate_memory(config, task, model)
    total = sum(parts.values())
    on_gpu = {"model", "a step"} if device is not None and device.type == "cuda" else set()
    here = {name: size for name, size in parts.items() if name not in on_gpu}
    # Labels, features and the model are there already.
    made = {name: size for name, size in here.items() if name not in ("labels", "features")}
    check_memory(sum(made.values()), _describe_run(config, task), _advise(config, made))
    if on_gpu and device is not None:
        free = float(torch.cuda.mem_get_info(device)[0])
        there = {name: parts[name] for name in sorted(on_gpu) if name in parts}
        what = f"on the GPU, {_describe_run(config, task)}"
        check_memory(sum(there.values()), what, _advise(config, there), free)
    if total < _WORTH_SAYING:
        return None
    shown = ", ".join(f"{name} {format_bytes(size)}" for name, size in parts.items() if size > 1e7)
    return f"memory: about {format_bytes(total)} ({shown}); {format_bytes(get_free_memory())} free"


def _describe_run(config: Config, task: Task) -> str:
    return f"training on {len(task.labels):,} rows x {len(task.classes):,} classes"


def _advise(config: Config, parts: dict[str, float]) -> str:
    """What helps most, by the largest part."""
    smaller = " or --image-size, or train the head alone (--tune head)" if config.images else ""
    return {
        "images": "keep decoded images on disk (--cache disk), or use a smaller --image-size",
        "members": "name a method (--method swan), which reads the features in parts",
        "a step": f"use a smaller --batch-size{smaller}",
        "model": "use a smaller model, or fewer classes",
        "similar rows": "use fewer features",
        "blocks of scores": "use fewer classes",
    }.get(
        max(parts, key=lambda name: parts[name], default=""),
        "use fewer classes, or a method without a table per sample (see `halftruth methods`)",
    )


def estimate_memory(config: Config, task: Task, model: Classifier) -> dict[str, float]:
    """Return the bytes of the large parts of a run, by name."""
    rows, classes = task.labels.values.shape
    numbers = sum(parameter.numel() for parameter in model.parameters())
    known = (task.truth, task.labels.soft, task.labels.weights)
    values = sum(array.nbytes for array in known if array is not None)
    features = task.features
    parts = {"features": 0.0 if features is None or _is_mapped(features) else features.nbytes}
    parts["labels"] = float(rows * classes + values)
    if features is None and config.cache == "memory":
        parts["images"] = 3.0 * len(task.labels) * model.image_size**2
    if model.is_network and config.tune == "head":
        # Features of all rows, and a head on them.
        numbers += 5 * model.feature_dim * classes
        parts["features"] = 4.0 * rows * model.feature_dim
        parts["model"] = 4.0 * numbers
        return parts
    # Weights, gradients, two moments of Adam, moving average, best checkpoint.
    parts["model"] = 6.0 * 4 * numbers
    if model.is_network:
        parts["a step"] = config.batch_size * measure_step(model, task)
    else:
        assert features is not None
        width = features.shape[1]
        if config.fits_ensemble and not isinstance(features, WideMatrix):
            parts["members"] = _COPIES * 4 * len(task.splits.train) * width
        elif isinstance(features, WideMatrix):
            # The sparse matrix scaled, without a fold and turned; the steps of the solver.
            dense = _COPIES * 4 * len(task.splits.train) * len(features.columns)
            parts["members"] = dense + 3.0 * features.nbytes + 24.0 * 4 * width * classes
        else:
            # Logits and their gradient, and what autograd keeps of the features.
            parts["a step"] = config.batch_size * (4.0 * classes * 4 + 2 * 4 * width)
    # Scores of the validation rows, and copies for their metrics.
    parts["validation"] = 3.0 * 4 * len(task.splits.val) * classes
    return parts


def estimate_many_classes(task: Task) -> dict[str, float]:
    """Return the bytes of the large parts of a run with many classes, by name."""
    (rows, dim), count = task.features.shape, len(task.classes)
    similar = min(rows, NEIGHBOUR_ROWS)
    return {
        "features": 0.0 if _is_mapped(task.features) else 4.0 * rows * dim,
        "labels": 20.0 * len(task.labels.sparse.columns),
        # Weights, two moments, the model, its checkpoint.
        "model": 4.0 * 5 * count * dim,
        "similar rows": 4.0 * 2 * similar * dim,
        # A block has at most the validation rows, about a fifth of all.
        "blocks of scores": 4.0 * 60 * min(BLOCK, rows / 5 * max(count, similar)),
    }


def _is_mapped(features: Any) -> bool:
    if isinstance(features, WideMatrix):
        return False
    return isinstance(features, np.memmap) or isinstance(features.base, np.memmap)


@torch.no_grad()
def measure_step(model: Classifier, task: Task) -> float:
    """Return the bytes that training keeps per row: the outputs of all layers, from one row."""
    kept = [0]

    def count(module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor):
            kept[0] += 4 * output.numel()

    leaves = [part for part in model.modules() if not list(part.children())]
    handles = [part.register_forward_hook(count) for part in leaves]
    device = next(model.parameters()).device
    was_training = model.training
    try:
        if model.image_size:
            example = torch.zeros(1, 3, model.image_size, model.image_size)
        else:
            assert task.features is not None
            # Tokens of a text that is as long as possible.
            example = torch.zeros(1, task.features.shape[1])
        model.eval()(example.to(device))
    finally:
        for handle in handles:
            handle.remove()
        model.train(was_training)
    return float(kept[0])
