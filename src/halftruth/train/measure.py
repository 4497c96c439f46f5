"""The best weights of a run on its validation and test rows."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from accelerate import Accelerator

from halftruth.metrics import average_precision, count, thresholds
from halftruth.metrics import evaluate as score_labels
from halftruth.metrics.counts import UndefinedMetricWarning
from halftruth.models import Classifier
from halftruth.train.config import Config
from halftruth.train.inputs import Inputs
from halftruth.train.probability_records import class_histograms
from halftruth.train.result import Result
from halftruth.train.scoring import outputs
from halftruth.train.task import Task


@dataclass
class Measured:
    """The outcome of a run, and the probabilities (rows, K) of its parts that it was taken from."""

    result: Result
    probabilities: dict[str, np.ndarray]
    classes: pd.DataFrame
    # Of each part, (K, groups, bins) counts of probabilities.
    histograms: dict[str, np.ndarray]


def measure(
    config: Config,
    task: Task,
    model: Classifier,
    inputs: Inputs,
    best: dict[str, Any],
    accelerator: Accelerator,
) -> Measured:
    """Metrics of both parts, against the truth where it is known; cuts from validation only."""
    model.to(accelerator.device).eval()

    def probabilities(rows: np.ndarray) -> np.ndarray:
        logits = outputs(model, inputs, rows, accelerator, 2 * config.batch_size)
        return torch.sigmoid(logits.double()).cpu().numpy()

    judged = task.labels.values if task.truth is None else task.truth
    val, test = task.splits.val, task.splits.test
    scores = {"val": probabilities(val), "test": probabilities(test)}
    # A cut below all probabilities is 0, one above them 1: both mean the same there.
    cuts = np.clip(thresholds.best(scores["val"], task.selected(config)[val]), 0, 1)
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
        result.val = score_labels(scores["val"], judged[val], threshold=cuts)
        if len(test):
            result.test = score_labels(scores["test"], judged[test], threshold=cuts)
    counts = {
        part: class_histograms(
            scores[part], task.labels.values[at], None if task.truth is None else task.truth[at]
        )
        for part, at in (("val", val), ("test", test))
        if len(at)
    }
    return Measured(result, scores, class_table(task, judged, scores, cuts), counts)


def class_table(
    task: Task, judged: np.ndarray, scores: dict[str, np.ndarray], cuts: np.ndarray
) -> pd.DataFrame:
    """A row a class: how often it is there, its cut, and how well it is found in each part.

    `*_true` counts are by the truth, where it is known. AP and recall are NaN for a class that a
    part does not hold, precision is NaN where nothing was found.
    """
    rows = {"train": task.splits.train, "val": task.splits.val, "test": task.splits.test}
    columns: dict[str, Any] = {"class": list(task.classes), "threshold": cuts}
    for part, at in rows.items():
        if not len(at):
            continue
        columns[f"{part}_present"] = (task.labels.values[at] > 0).sum(axis=0)
        if task.truth is not None:
            columns[f"{part}_true"] = (task.truth[at] > 0).sum(axis=0)
        if part == "train":
            continue
        counts = count(scores[part], judged[at], cuts)
        found, there = counts.tp + counts.fp, counts.tp + counts.fn
        columns[f"{part}_AP"] = average_precision(scores[part], judged[at], empty="nan")
        columns[f"{part}_precision"] = counts.precision.where(found > 0, torch.nan).numpy()
        columns[f"{part}_recall"] = counts.recall.where(there > 0, torch.nan).numpy()
        columns[f"{part}_F1"] = counts.f_beta().where(there > 0, torch.nan).numpy()
    return pd.DataFrame(columns)
