"""Metrics of many classes, by blocks of rows and of classes: no (N, K) matrix is needed."""

import numpy as np
import torch

from halftruth.data.wide_matrix import Matrix
from halftruth.labels import PRESENT, SparseLabels
from halftruth.metrics import average_precision
from halftruth.metrics.by_blocks import RowBlockMetrics
from halftruth.models.many_classes import ManyClassHead
from halftruth.presence.decisions import Decisions
from halftruth.train.many_classes.fit_many import prepared_blocks, score_blocks

# Numbers of a block of classes for all rows.
_CLASS_BLOCK = 10_000_000


def measure_by_blocks(
    head: ManyClassHead,
    features: Matrix,
    rows: np.ndarray,
    labels: SparseLabels,
    curves: tuple[np.ndarray, np.ndarray],
    decisions: Decisions,
    propensity: np.ndarray,
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Return metrics of some rows, and numbers per class: present, AP, precision, recall and F1.

    `labels`: those of all rows. Labels that are not PRESENT count as absent. `curves`: offset and
    slope of the probabilities.
    """
    metrics = RowBlockMetrics(propensity)
    offset, slope = (torch.from_numpy(part).float() for part in curves)
    for some, z in score_blocks(head, features, rows):
        p = torch.sigmoid(z.mul_(slope).add_(offset))
        metrics.add(p, torch.from_numpy(labels.to_dense(some)), decisions(p.numpy()))
    ap = _measure_average_precision(head, features, rows, labels)
    counts, none = metrics.counts, torch.nan
    found, present = counts.tp + counts.fp, counts.tp + counts.fn
    table = {
        "present": present.numpy(),
        "AP": ap,
        "precision": counts.precision.where(found > 0, none).numpy(),
        "recall": counts.recall.where(present > 0, none).numpy(),
        "F1": counts.f_beta().where(present > 0, none).numpy(),
    }
    mean = float(np.nanmean(ap)) if np.isfinite(ap).any() else float("nan")
    return {"mAP": mean, **metrics.compute()}, table


@torch.no_grad()
def _measure_average_precision(
    head: ManyClassHead, features: Matrix, rows: np.ndarray, labels: SparseLabels
) -> np.ndarray:
    """(K,) the AP per class, by blocks of classes; NaN without a PRESENT label."""
    some, count = labels.select(rows), labels.classes
    prepared, index, weight = [], [], []
    for _, x in prepared_blocks(head, features, rows):
        found = head.find_neighbours(x)
        prepared.append(x)
        index.append(found[0])
        weight.append(found[1])
    found = torch.cat(index), torch.cat(weight)
    x, ap = torch.cat(prepared), np.full(count, np.nan)
    size = max(_CLASS_BLOCK // max(len(rows), 1), 1)
    for low in range(0, count, size):
        high = min(low + size, count)
        given = some.to_dense(classes=slice(low, high))
        filled = np.flatnonzero((given == PRESENT).any(axis=0))
        if len(filled):
            scores = head.score_classes(x, found, low, high).cpu().numpy()[:, filled]
            ap[low + filled] = average_precision(scores, given[:, filled], empty="nan")
    return ap
