"""Probabilities of many classes: one curve for all, at a level that the frequent classes tell.

Most classes have too few labels for a curve of their own. The shared one gives probabilities of
being labelled. From the frequent classes follows how many of the present labels are shown; all
probabilities are then moved, by the same logit, to that number of labels per row. If rare classes
are labelled less often than frequent ones, it is too low for them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from halftruth.data import Splits
from halftruth.data.wide_matrix import Matrix
from halftruth.labels import PRESENT, UNKNOWN, SparseLabels
from halftruth.models import Classifier
from halftruth.models.many_classes import ManyClassHead
from halftruth.presence.decisions import Decisions, decide
from halftruth.presence.estimated_scores import EstimatedScores, estimate_scores
from halftruth.presence.probabilities import (
    Probabilities,
    check_labels_per_row,
    fit_probabilities,
)
from halftruth.presence.solvers import find_shift, fit_shared_curve, sigmoid
from halftruth.presence.uncertainty import Z90, Estimate
from halftruth.train.config import Config
from halftruth.train.many_classes.fit_many import draw, score_blocks

# Labels of held-out rows by which the curve is found, and those whose logits are kept, which are
# of at least and at most so many rows.
_CELLS, _KEPT_CELLS, _KEPT_ROWS = 30_000_000, 4_000_000, (100, 1_000)
# The curve is fitted to counts of logits in bins, between these ends.
_BINS, _FAR = 4_000, 17.0
# Rows on which the number of labels per row is found, the classes that tell it, and their labels.
_ROWS, _MOST_CLASSES, _LEAST_CLASSES, _LEAST_LABELS = 2_000, 200, 3, 10
NOT_ESTIMATED = (
    "labels per row are not estimated, {why}: probabilities and decisions are for being labelled; "
    "give the number with --labels-per-row (labels_per_row)"
)


@dataclass(frozen=True)
class HeldOutScores:
    """Scores of rows that the model was not fitted on: counts of all, logits of some."""

    # Present labels of each row.
    shown: np.ndarray
    # Mean logit, number and number of PRESENT labels of each bin.
    z: np.ndarray
    cells: np.ndarray
    present: np.ndarray
    # Some rows with the logits (n, K) of all classes.
    rows: np.ndarray
    logits: np.ndarray
    # Frequent classes, and their labels and logits (m, k) on some rows.
    classes: np.ndarray
    frequent_labels: np.ndarray
    frequent_logits: np.ndarray

    @cached_property
    def curve(self) -> tuple[float, float]:
        """Offset and slope of P(labelled | x), the same for all classes."""
        if not self.present.any():
            return 0.0, 1.0
        return fit_shared_curve(self.z, self.cells, self.present)

    @cached_property
    def frequent(self) -> tuple[np.ndarray, Probabilities]:
        """Logits of P(labelled) of the frequent classes, and the model of their labelling."""
        offset, slope = self.curve
        z = offset + slope * self.frequent_logits
        return z, fit_probabilities(self.frequent_labels, z, selection="missing_at_random")


@torch.no_grad()
def score_held_out(
    head: ManyClassHead, features: Matrix, labels: SparseLabels, rows: np.ndarray
) -> HeldOutScores:
    """Score rows that the model was not fitted on, in blocks."""
    count = labels.classes
    rows = draw(rows, max(_CELLS // count, _ROWS))
    shown = labels.select(rows)
    kept = np.isin(rows, draw(rows, int(np.clip(_KEPT_CELLS // count, *_KEPT_ROWS))))
    telling = np.isin(rows, draw(rows, _ROWS))
    per_class = shown.select(telling).count_per_class()
    most = np.argsort(-per_class, kind="stable")[:_MOST_CLASSES]
    classes = np.sort(most[per_class[most] >= _LEAST_LABELS])
    total = np.zeros((3, _BINS))
    # Made at once: parts that are kept between the blocks would hold on to their memory.
    logits = np.empty((int(kept.sum()), count), dtype=np.float32)
    some = np.empty((int(telling.sum()), len(classes)))
    first: np.ndarray = np.cumsum(kept) - kept
    other: np.ndarray = np.cumsum(telling) - telling
    for block, z in score_blocks(head, features, rows):
        at = np.searchsorted(rows, block)
        place = ((z.flatten() / _FAR + 1) * (_BINS / 2)).long().clamp(0, _BINS - 1)
        present = torch.from_numpy(labels.to_dense(block) == PRESENT).flatten()
        for sums, weight in zip(total, (z.flatten(), None, present), strict=True):
            sums += torch.bincount(
                place, None if weight is None else weight.double(), minlength=_BINS
            ).numpy()
        logits[first[at[kept[at]]]] = z.numpy()[kept[at]]
        some[other[at[telling[at]]]] = z.numpy()[telling[at]][:, classes]
    z, cells, present = total[:, total[1] > 0]
    return HeldOutScores(
        shown.count_per_row(), z / cells, cells, present, rows[kept], logits,
        classes, labels.select(rows[telling]).select_classes(classes).to_dense(), some,
    )  # fmt: skip


def fit_shared_decisions(
    model: Classifier,
    features: Matrix,
    labels: SparseLabels,
    splits: Splits,
    config: Config,
    log: Callable[[str], None],
) -> tuple[HeldOutScores, Probabilities, Decisions]:
    """Return scores of the validation rows, and by these one curve and one threshold for all."""
    head: Any = model.head
    held = score_held_out(head, features, labels, splits.val)
    probabilities = fit_level(held, labels, config.labels_per_row, log)
    shown = labels.select(splits.train).count_per_class()
    p = probabilities(held.logits)
    return held, probabilities, decide(p, shown, config.decide, probabilities, shared=True)


def fit_level(
    held: HeldOutScores,
    labels: SparseLabels,
    known: float | None = None,
    log: Callable[[str], None] = lambda text: None,
) -> Probabilities:
    """Return P(present | x) by one curve for all classes. `known`: labels per row, if known."""
    check_labels_per_row(known, labels.classes, {})
    (offset, slope), shown = held.curve, float(held.shown.mean())
    found: Estimate | str = Estimate(shown, shown, shown)
    if known is not None:
        found = Estimate(known, known, known)
    elif labels.rest == UNKNOWN:
        found = estimate_labels_per_row(held)
    if isinstance(found, str):
        log("many classes: " + NOT_ESTIMATED.format(why=found))
        count = Estimate(shown, shown, float(labels.classes))
    else:
        count = found
        if labels.rest == UNKNOWN and known is None:
            log(
                f"many classes: {shown:.2f} labels per row are shown, {count.value:.2f} are "
                "estimated to be present, by the frequent classes (90 % interval "
                f"{count.low:.2f} to {count.high:.2f})"
            )
    if count.value > 0:
        at = (offset + slope * held.z)[None]
        offset += find_shift(at, count.value * len(held.shown), held.cells)
    mean = sigmoid(offset + slope * held.logits).mean(axis=0)
    per_class = labels.count_per_class()
    noise = np.exp(Z90 / np.sqrt(np.maximum(per_class, 1)))
    fewest, most = (end / max(count.value, 1e-12) for end in (count.low, count.high))
    ends = np.stack([mean, mean * fewest / noise, np.minimum(mean * most * noise, 1.0)], axis=1)
    ends[per_class == 0, 1:] = [0.0, 1.0]
    return Probabilities(
        np.full(labels.classes, offset), np.full(labels.classes, slope), ends, per_class,
        len(labels), "missing_at_random", count, fewest=min(fewest, 1.0), most=max(most, 1.0),
    )  # fmt: skip


def estimate_labels_per_row(held: HeldOutScores) -> Estimate | str:
    """Return the number of present labels per row, or why it cannot be estimated."""
    if held.shown.max(initial=0) <= 1:
        return "since no row shows more than one"
    if len(held.classes) < _LEAST_CLASSES:
        return f"since too few classes have {_LEAST_LABELS} labels in the validation rows"
    fitted = held.frequent[1]
    if fitted.not_known:
        return f"since {fitted.not_known}"
    count = fitted.labels_per_row
    part = float((held.frequent_labels == PRESENT).sum(axis=1).mean())
    ends = (max(end / part, 1.0) for end in (count.value, count.low, count.high))
    return Estimate(*(float(held.shown.mean()) * end for end in ends))


def estimate_frequent(
    held: HeldOutScores, curves: tuple[np.ndarray, np.ndarray], decisions: Decisions
) -> EstimatedScores | None:
    """Return scores of the frequent classes, estimated for complete labels.

    `curves`: offset and slope of the probabilities of all classes.
    """
    if len(held.classes) < _LEAST_CLASSES or decisions.rule.name == "top":
        return None
    z, fitted = held.frequent
    if fitted.not_known:
        return None
    own = Decisions(
        decisions.rule, decisions.thresholds[held.classes], decisions.predicted[held.classes]
    )
    offset, slope = (part[held.classes] for part in curves)
    p = sigmoid(offset + slope * held.frequent_logits)
    present = fitted.infer(held.frequent_labels, z)
    return estimate_scores(p, held.frequent_labels, own(p), present)
