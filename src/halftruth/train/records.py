"""The record of an epoch (metrics.jsonl, histograms.jsonl), and the criterion to compare epochs."""

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from halftruth.labels import UNKNOWN
from halftruth.losses import Loss
from halftruth.metrics import count, mean_average_precision, mean_roc_auc

if TYPE_CHECKING:
    from halftruth.train.trainer import Trainer

# The criteria to compare epochs by: keys of an epoch's record, and their names.
CRITERIA = {
    "val_mAP": "validation mAP",
    "val_mAP_observed": "validation mAP on the observed labels",
    "val_AUC_observed": "validation AUC on the observed labels",
    "val_both_observed": "validation geometric mean of mAP and AUC on the observed labels",
}
_CRITERION_OF_SETTING = {
    "observed": "val_mAP_observed",
    "auc": "val_AUC_observed",
    "both": "val_both_observed",
}

BINS, CLASS_BINS = 100, 20
# Groups of labels. Unknown labels are "hidden" positives or "negative" by the complete labels, and
# "unknown" without those.
GROUPS = ("labelled", "hidden", "negative", "absent", "unknown")

# Training rows that are scored after every epoch if complete labels are known: at most 2048, and
# at most one image in sixteen, which costs one or two percent of the epoch.
_MOST_FOLLOWED = 2048
_IMAGES_PER_FOLLOWED = 16
_ENTRIES_PER_BLOCK = 1 << 22


def choose_criterion(stage: "Trainer") -> str:
    """Return the key of an epoch's record by which a stage compares epochs.

    With `select: auto`: mAP if complete labels are given or the validation rows have no unknown
    labels; otherwise the geometric mean of mAP and AUC on the observed labels, which chooses better
    epochs than either alone (docs/explained/selection.md).
    """
    if stage.select_on_truth:
        return "val_mAP"
    if stage.config.select in _CRITERION_OF_SETTING:
        return _CRITERION_OF_SETTING[stage.config.select]
    rows = torch.as_tensor(stage.val_rows, device=stage.labels.device)
    complete = not bool((stage.labels[rows] == UNKNOWN).any())
    return _CRITERION_OF_SETTING["observed" if complete else "both"]


def make_epoch_record(stage: "Trainer") -> dict[str, Any]:
    """Return the numbers of an epoch: loss, pseudo-labels, scores of the validation rows.

    `select` is the value of the criterion; without validation rows there is none. Epochs are
    counted from 1 in everything that is written or shown.
    """
    record: dict[str, object] = {
        "stage": stage.name,
        "epoch": stage.progress.epoch + 1,
        "loss": stage.progress.total / stage.batches.steps,
        "lr": float(stage.learner.optimizer.param_groups[-1]["lr"]),
    }
    if stage.truth is not None:
        rows = torch.as_tensor(stage.train_rows)
        truth = stage.truth[rows].to(stage.device)
        record |= measure_pseudo_labels(stage.loss, stage.labels[rows.to(stage.device)], truth)
        followed = choose_followed_rows(stage.train_rows, on_images=stage.model.is_network)
        _add_distribution(record, stage, "train", followed, stage.score(followed))
    if not len(stage.val_rows):
        return record
    scores = stage.score(stage.val_rows)
    _add_distribution(record, stage, "val", stage.val_rows, scores)
    return record | measure_validation(stage, scores)


def measure_validation(stage: "Trainer", scores: Tensor) -> dict[str, float]:
    """Return the metrics of the validation rows; `select` is the value of the criterion."""
    record: dict[str, float] = {}
    rows = torch.as_tensor(stage.val_rows, device=stage.device)
    observed = stage.labels[rows]
    with warnings.catch_warnings():
        # The logger has one message instead of a warning per epoch.
        warnings.filterwarnings("ignore", message="No class has")
        record["val_mAP_observed"] = mean_average_precision(scores, observed)
        record["val_AUC_observed"] = mean_roc_auc(scores, observed)
        if stage.truth is not None:
            truth = stage.truth.to(stage.device)[rows]
            record["val_mAP"] = mean_average_precision(scores, truth)
        complete = observed if stage.truth is None else truth
        if not bool((complete == UNKNOWN).any()):
            # Cut at 0.5, as in paper 000: what `tune --objective macro_F2` compares epochs by.
            counts = count(torch.sigmoid(scores.float()), complete, 0.5)
            record["val_macro_F2"] = float(counts.f_beta(2.0).mean())
    if undefined := [text for key, text in CRITERIA.items() if math.isnan(record.get(key, 0.0))]:
        stage.logger.log_once(
            f"not defined: {', '.join(undefined)}. No class of the validation rows has positive "
            "labels (for AUC, positive and negative labels)"
        )
    both = record["val_mAP_observed"] * record["val_AUC_observed"]
    record["val_both_observed"] = math.sqrt(both)
    record["select"] = record[stage.criterion]
    return record


def _add_distribution(
    record: dict[str, Any], stage: "Trainer", part: str, rows: np.ndarray, logits: Tensor
) -> None:
    """Add numbers and histograms of the probabilities of some rows, for figures."""
    if stage.folder is None:
        return
    at = torch.as_tensor(rows, device=stage.device)
    truth = None if stage.truth is None else stage.truth.to(stage.device)[at]
    threshold = stage.loss.pseudo_label_threshold
    numbers, counts = describe_part(part, logits, stage.labels[at], truth, threshold)
    record |= numbers
    record.setdefault("histograms", {})[part] = counts


def choose_followed_rows(rows: np.ndarray, on_images: bool) -> np.ndarray:
    """Return the training rows, evenly spaced, that are scored after every epoch."""
    share = len(rows) // _IMAGES_PER_FOLLOWED if on_images else len(rows)
    most = min(_MOST_FOLLOWED, len(rows), share)
    return rows[np.linspace(0, len(rows) - 1, max(most, 1)).round().astype(int)]


def describe_part(
    part: str, logits: Tensor, labels: Tensor, truth: Tensor | None, tau: float
) -> tuple[dict[str, float], dict[str, list[int]]]:
    """Return numbers and histograms of the scores of one part ("val" or "train")."""
    numbers = {f"{part}_loss_labelled": measure_labelled_loss(logits, labels)}
    if truth is not None:
        values = measure_predictive_values(logits, truth, tau)
        numbers |= {f"{part}_{name}": value for name, value in values.items()}
        sizes = measure_ambiguity(logits, labels, truth)
        numbers |= {f"{part}_size_{name}": value for name, value in sizes.items()}
        missing = measure_missing_labels(logits, labels, truth, tau)
        numbers |= {f"{part}_{name}": value for name, value in missing.items()}
    return numbers, count_histograms(logits, labels, truth)


# ---------------------------------------------------------------------- histograms


def count_histograms(logits: Tensor, labels: Tensor, truth: Tensor | None) -> dict[str, list[int]]:
    """Count the entries of each group per probability, in BINS equal bins.

    >>> found = count_histograms(torch.tensor([[9.0, -9.0]]), torch.tensor([[1, 0]]), None)
    >>> found["labelled"][-1], found["unknown"][0]
    (1, 1)
    """
    found = _count_entries(torch.sigmoid(logits.float()), labels, truth, BINS).sum(dim=0).tolist()
    return {name: bins for name, bins in zip(GROUPS, found, strict=True) if any(bins)}


def count_class_histograms(
    probabilities: np.ndarray, labels: np.ndarray, truth: np.ndarray | None
) -> np.ndarray:
    """Return the counts per class, (K, groups, 20), for the end of a run."""
    known = None if truth is None else torch.from_numpy(truth)
    given = torch.from_numpy(probabilities), torch.from_numpy(labels)
    return _count_entries(*given, known, CLASS_BINS).to(torch.int32).numpy()


def assign_groups(labels: Tensor, truth: Tensor | None) -> Tensor:
    """Return the group of every entry as an index into GROUPS."""
    found = torch.where(labels > 0, 0, torch.where(labels < 0, 3, 4))
    if truth is None:
        return found
    unknown = labels == 0
    found = torch.where(unknown & (truth > 0), 1, found)
    return torch.where(unknown & (truth < 0), 2, found)


def _count_entries(p: Tensor, labels: Tensor, truth: Tensor | None, bins: int) -> Tensor:
    """Return (K, groups, bins) counts of entries."""
    classes = labels.shape[1]
    shape = (classes, len(GROUPS), bins)
    counts = torch.zeros(classes * len(GROUPS) * bins, dtype=torch.int64, device=p.device)
    first = torch.arange(classes, device=p.device) * len(GROUPS)
    step = max(_ENTRIES_PER_BLOCK // max(classes, 1), 1)
    for at in range(0, len(labels), step):
        rows = slice(at, at + step)
        group = assign_groups(labels[rows], None if truth is None else truth[rows])
        place = (p[rows] * bins).long().clamp_(max=bins - 1)
        counts += torch.bincount(((first + group) * bins + place).flatten(), minlength=len(counts))
    return counts.view(shape)


# ---------------------------------------------------------------------- numbers


def measure_labelled_loss(logits: Tensor, labels: Tensor) -> float:
    """Return the mean of -log p over the present labels; NaN if there are none."""
    return float(softplus(-logits[labels > 0].float()).mean())


def measure_ambiguity(logits: Tensor, labels: Tensor, truth: Tensor) -> dict[str, float]:
    """Return the mean |z| of hidden positives and of negatives (paper 001, Fig. 8)."""
    sides = {"hidden": truth > 0, "negative": truth < 0}
    return {name: float(logits[(labels == 0) & side].abs().mean()) for name, side in sides.items()}


def measure_predictive_values(logits: Tensor, truth: Tensor, tau: float) -> dict[str, float]:
    """Return PPV and NPV, the class means of TP/(TP+FP) and TN/(TN+FN), at the threshold `tau`.

    Classes without a prediction on that side are left out (paper 004, appendix).
    """
    counts = count(torch.sigmoid(logits.float()), truth, tau, ignore_unknown=True)
    sides = {
        "PPV": (counts.precision, counts.tp + counts.fp),
        "NPV": (counts.negative_precision, counts.tn + counts.fn),
    }
    return {name: float(share[found > 0].mean()) for name, (share, found) in sides.items()}


def measure_missing_labels(
    logits: Tensor, labels: Tensor, truth: Tensor, tau: float
) -> dict[str, float]:
    """Return precision and recall of p > tau on unknown labels (paper 003, Fig. 7).

    >>> z, y = torch.tensor([[2.0, 2.0, -2.0, 2.0]]), torch.tensor([[0, 0, 0, 1]])
    >>> measure_missing_labels(z, y, torch.tensor([[1, -1, 1, 1]]), 0.5)
    {'missing_precision': 0.5, 'missing_recall': 0.5}
    """
    known = (labels == 0) & (truth != 0)
    found, present = known & (torch.sigmoid(logits.float()) > tau), known & (truth > 0)
    right = (found & present).sum()
    return {
        "missing_precision": float(right / found.sum()),
        "missing_recall": float(right / present.sum()),
    }


def measure_pseudo_labels(loss: Loss, labels: Tensor, truth: Tensor) -> dict[str, float]:
    """Return precision and recall of a method's pseudo-labels, by the complete training labels.

    The result is empty for a method without pseudo-labels; without any, precision is NaN.
    """
    counts = torch.zeros(2, 3, dtype=torch.int64)
    samples = torch.arange(len(labels), device=labels.device)
    for index in samples.split(max(_ENTRIES_PER_BLOCK // max(labels.shape[1], 1), 1)):
        given = loss.pseudo_labels(index)
        if given is None:
            return {}
        unknown = (labels[index] == 0) & (truth[index] != 0)
        for row, sign in enumerate((1, -1)):
            mine, right = (given == sign) & unknown, (truth[index] == sign) & unknown
            counts[row] += torch.stack([(mine & right).sum(), mine.sum(), right.sum()]).cpu()
    found = {}
    for name, row in zip(("positive", "negative"), counts.tolist(), strict=True):
        hits, predicted, present = row
        found[f"pseudo_{name}_precision"] = hits / predicted if predicted else math.nan
        found[f"pseudo_{name}_recall"] = hits / present if present else math.nan
    return found
