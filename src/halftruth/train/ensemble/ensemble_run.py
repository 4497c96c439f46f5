"""The ensemble of a run: fitted to its training rows, read from its checkpoint."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from halftruth.models import Classifier
from halftruth.models.ensemble import build_ensemble, put_on_backbone
from halftruth.train.ensemble.fit_ensemble import fit_ensemble
from halftruth.train.results.held_out_rows import OutOfSample
from halftruth.train.task import Task


def fit_ensemble_to_task(
    matrix: np.ndarray,
    task: Task,
    seed: int,
    device: torch.device,
    log: Callable[[str], None],
    network: Classifier | None = None,
) -> tuple[Classifier, dict[str, Any]]:
    """Fit the ensemble to the training rows; return the model and what its checkpoint has beside.

    `network`: whose features of images the matrix holds; the model is then that of images.
    """
    log("auto: fitting the members of an ensemble (docs/auto.md)")
    rows, labels = task.splits.train, task.labels
    # All rows are not copied: they may be mapped from a file.
    own = matrix if len(rows) == len(matrix) else matrix[rows]
    fitted = fit_ensemble(
        own, labels.values[rows], seed=seed, device=device, log=log,
        groups=None if task.groups is None else task.groups[rows],
        one_scale=None if task.encoder is None else task.encoder.one_scale,
        weights=None if labels.weights is None else labels.weights[rows],
        soft=None if labels.soft is None else labels.soft[rows],
    )  # fmt: skip
    log("auto: " + "\n      ".join(fitted.describe()))
    more: dict[str, Any] = {
        "layout": fitted.layout,
        "members": [vars(one) for one in fitted.table],
        "out_of_sample": {
            "rows": torch.from_numpy(rows[fitted.rows]),
            "logits": torch.from_numpy(fitted.logits).float(),
        },
    }
    if fitted.bias is not None:
        more["label_bias"] = vars(fitted.bias)
    model = fitted.model if network is None else put_on_backbone(network, fitted.model)
    return model, more


def load_ensemble(best: dict[str, Any], dim: int, classes: int) -> tuple[Classifier, OutOfSample]:
    """Return the ensemble on features of a checkpoint, and its out-of-sample logits."""
    model = build_ensemble(dim, classes, best["layout"])
    # On images, the checkpoint also has the backbone.
    model.load_state_dict({k: v for k, v in best["model"].items() if k.startswith("head.")})
    return model, OutOfSample.from_checkpoint(best)
