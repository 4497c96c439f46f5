"""The best weights of a run on its validation and test rows."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator

from halftruth.metrics import evaluate as score_labels
from halftruth.metrics import thresholds
from halftruth.metrics.counts import UndefinedMetricWarning
from halftruth.models import Classifier
from halftruth.train.config import Config
from halftruth.train.inputs import Inputs
from halftruth.train.result import Result
from halftruth.train.scores import outputs
from halftruth.train.task import Task


def measure(
    config: Config,
    task: Task,
    model: Classifier,
    inputs: Inputs,
    best: dict[str, Any],
    accelerator: Accelerator,
) -> Result:
    """Metrics of both parts, against the truth where it is known; cuts from validation only."""
    model.to(accelerator.device).eval()

    def probabilities(rows: np.ndarray) -> np.ndarray:
        logits = outputs(model, inputs, rows, accelerator, 2 * config.batch_size)
        return torch.sigmoid(logits.double()).cpu().numpy()

    judged = task.labels.values if task.truth is None else task.truth
    val, test = task.splits.val, task.splits.test
    scores = probabilities(val)
    # A cut below all probabilities is 0, one above them 1: both mean the same there.
    cuts = np.clip(thresholds.best(scores, task.selected(config)[val]), 0, 1)
    result = Result(
        folder=Path(config.out),
        method=config.method,
        classes=task.classes,
        best_epoch=int(best["epoch"]),
        best_stage=best["stage"],
        thresholds=[float(cut) for cut in cuts],
    )
    with warnings.catch_warnings():
        # A class that occurs nowhere in a part is no news here: `data check` tells of it.
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        result.val = score_labels(scores, judged[val], threshold=cuts)
        if len(test):
            result.test = score_labels(probabilities(test), judged[test], threshold=cuts)
    return result
