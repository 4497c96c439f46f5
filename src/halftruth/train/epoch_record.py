"""What is written down of an epoch: a line of metrics.jsonl, and of histograms.jsonl."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from halftruth.metrics import mean_average_precision, mean_roc_auc
from halftruth.train.inputs import Features
from halftruth.train.loss_views import pseudo_label_quality
from halftruth.train.probability_records import cut_of, look, watched_rows

if TYPE_CHECKING:
    from halftruth.train.trainer import Stage


def epoch_record(stage: "Stage") -> dict[str, Any]:
    """Loss, pseudo-labels against the truth where it is known, and the validation rows scored.

    `select` is what epochs are compared by; without validation rows there is none.
    """
    record: dict[str, Any] = {
        "stage": stage.name,
        "epoch": stage.progress.epoch,
        "loss": stage.progress.total / stage.batches.steps,
        "lr": float(stage.learner.optimizer.param_groups[-1]["lr"]),
    }
    if stage.truth is not None:
        rows = torch.as_tensor(stage.train_rows)
        truth = stage.truth[rows].to(stage.device)
        record |= pseudo_label_quality(stage.loss, stage.labels[rows.to(stage.device)], truth)
        watched = watched_rows(stage.train_rows, not isinstance(stage.inputs, Features))
        _add_spread(record, stage, "train", watched, stage.score(watched))
    if not len(stage.val_rows):
        return record
    scores = stage.score(stage.val_rows)
    _add_spread(record, stage, "val", stage.val_rows, scores)
    rows = torch.as_tensor(stage.val_rows, device=stage.device)
    observed = stage.labels[rows]
    record["val_mAP_observed"] = mean_average_precision(scores, observed)
    record["val_AUC_observed"] = mean_roc_auc(scores, observed)
    both = record["val_mAP_observed"] * record["val_AUC_observed"]
    record["val_both_observed"] = math.sqrt(both)
    if stage.truth is not None:
        truth = stage.truth.to(stage.device)[rows]
        record["val_mAP"] = mean_average_precision(scores, truth)
    record["select"] = record[stage.criterion]
    return record


def _add_spread(
    record: dict[str, Any], stage: "Stage", part: str, rows: np.ndarray, logits: Tensor
) -> None:
    """How the probabilities of some rows lie, for figures; nothing where there is no folder."""
    if stage.folder is None:
        return
    at = torch.as_tensor(rows, device=stage.device)
    truth = None if stage.truth is None else stage.truth.to(stage.device)[at]
    numbers, counts = look(part, logits, stage.labels[at], truth, cut_of(stage.loss))
    record |= numbers
    record.setdefault("histograms", {})[part] = counts
