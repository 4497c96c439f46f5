"""How many labels are missing with many classes: the model of labelling on the frequent classes.

The model of many classes is fitted to labels as they are shown, so its probabilities are those of
being labelled. Most classes have too few labels to estimate more. From the frequent ones follows
how many of the present labels are shown; all probabilities are then moved, by the same logit, to
that number of labels per row. If rare classes are labelled less often than frequent ones, it is too
low for them.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halftruth.labels import PRESENT, UNKNOWN, SparseLabels
from halftruth.models.many_classes import ManyClassHead
from halftruth.presence.decisions import Decisions
from halftruth.presence.estimated_scores import estimate_scores
from halftruth.presence.probabilities import check_labels_per_row, fit_probabilities
from halftruth.presence.solvers import bisect, sigmoid
from halftruth.presence.uncertainty import Estimate
from halftruth.train.many_classes.fit_many import prepared_blocks

# Rows on which the number of labels per row is found, the classes that tell it, and their labels.
_ROWS, _MOST_CLASSES, _LEAST_CLASSES, _LEAST_LABELS = 2_000, 200, 3, 10
NOT_ESTIMATED = (
    "labels per row are not estimated, {why}: probabilities and decisions are for being labelled; "
    "give the number with --labels-per-row (labels_per_row)"
)


@torch.no_grad()
def score_blocks(
    head: ManyClassHead, features: Any, rows: np.ndarray
) -> Iterator[tuple[np.ndarray, Tensor]]:
    """Yield some rows and their probabilities, (B, K)."""
    for some, x in prepared_blocks(head, features, rows):
        found = head.find_neighbours(x)
        yield some, torch.sigmoid(head.score_classes(x, found, 0, head.num_classes))


def set_labels_per_row(
    head: ManyClassHead,
    features: Any,
    labels: SparseLabels,
    rows: np.ndarray,
    known: float | None,
    log: Callable[[str], None],
) -> None:
    """Move probabilities of being labelled to those of being present.

    `rows`: that the model was not fitted on. `known`: labels per row that the user knows.
    """
    check_labels_per_row(known, head.num_classes, {})
    if known is not None:
        return match_labels_per_row(head, features, rows, known)
    if labels.rest != UNKNOWN:
        return None
    found = estimate_labels_per_row(head, features, labels, rows)
    if isinstance(found, str):
        return log("many classes: " + NOT_ESTIMATED.format(why=found))
    match_labels_per_row(head, features, rows, found.value)
    shown = labels.select(rows).count_per_row().mean()
    return log(
        f"many classes: {shown:.2f} labels per row are shown, {found.value:.2f} are estimated to "
        f"be present, by the frequent classes (90 % interval {found.low:.2f} to {found.high:.2f})"
    )


def estimate_labels_per_row(
    head: ManyClassHead, features: Any, labels: SparseLabels, rows: np.ndarray
) -> Estimate | str:
    """Return the number of present labels per row, or why it cannot be estimated."""
    shown = labels.select(rows).count_per_row()
    if shown.max(initial=0) <= 1:
        return "since no row shows more than one"
    values, logits, _ = _take_frequent(head, features, labels, rows)
    if values.shape[1] < _LEAST_CLASSES:
        return f"since too few classes have {_LEAST_LABELS} labels in the validation rows"
    fitted = fit_probabilities(values, logits, selection="missing_at_random")
    if fitted.not_known:
        return f"since {fitted.not_known}"
    count = fitted.labels_per_row
    part = float((values == PRESENT).sum(axis=1).mean())
    ends = (max(end / part, 1.0) for end in (count.value, count.low, count.high))
    return Estimate(*(float(shown.mean()) * end for end in ends))


def match_labels_per_row(
    head: ManyClassHead, features: Any, rows: np.ndarray, labels_per_row: float
) -> None:
    """Shift the probabilities so that they add up to a known number of labels per row."""
    rows = _draw(rows, _ROWS // 2)
    logits = [torch.logit(p, eps=1e-7) for _, p in score_blocks(head, features, rows)]

    def is_above(shift: np.ndarray) -> bool:
        total = sum(float(torch.sigmoid(z + float(shift)).sum()) for z in logits)
        return total / len(rows) >= labels_per_row

    head.offset += float(bisect(is_above, -15.0, 15.0, 30))


def estimate_frequent(
    head: ManyClassHead,
    features: Any,
    labels: SparseLabels,
    rows: np.ndarray,
    decisions: Decisions,
) -> str | None:
    """Return scores of the frequent classes, estimated for complete labels, as text."""
    values, logits, classes = _take_frequent(head, features, labels, rows)
    if values.shape[1] < _LEAST_CLASSES or decisions.rule.name == "top":
        return None
    p = sigmoid(logits)
    fitted = fit_probabilities(values, logits, selection="missing_at_random")
    if fitted.not_known:
        return f"scores are not estimated: {fitted.not_known}"
    chosen = (p > decisions.thresholds[classes]) & decisions.predicted[classes]
    found = estimate_scores(p, values, chosen, fitted.infer(values, logits))
    scores = ", ".join(
        f"{name} {100 * one.value:.1f} ({100 * one.low:.0f} to {100 * one.high:.0f})"
        for name, one in (("mAP", found.mAP), ("CF1", found.CF1), ("OF1", found.OF1))
    )
    return f"estimated on {len(classes):,} frequent classes, with 90 % intervals: {scores}"


def _take_frequent(
    head: ManyClassHead, features: Any, labels: SparseLabels, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return labels and logits (n, k) of the frequent classes of some rows, and these classes."""
    rows = _draw(rows, _ROWS)
    count = labels.select(rows).count_per_class()
    most = np.argsort(-count, kind="stable")[:_MOST_CLASSES]
    classes = np.sort(most[count[most] >= _LEAST_LABELS])
    values = [
        labels.to_dense(some)[:, classes] for some, _ in prepared_blocks(head, features, rows)
    ]
    logits = [
        torch.logit(p[:, torch.from_numpy(classes)].double(), eps=1e-9).numpy()
        for _, p in score_blocks(head, features, rows)
    ]
    return np.concatenate(values), np.concatenate(logits), classes


def _draw(rows: np.ndarray, most: int) -> np.ndarray:
    """Return at most `most` of the rows."""
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(0).choice(rows, most, replace=False))
