"""How the probabilities of a run lie, epoch by epoch: for its figures, small enough to keep."""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from halftruth.losses import Loss
from halftruth.losses.wrapper import Wrapper
from halftruth.metrics import count

BINS, CLASS_BINS = 100, 20
# What a label can be: by the labels given, and where those are silent by the truth, if known.
GROUPS = ("labelled", "hidden", "negative", "absent", "unknown")

# Training rows that are looked at after an epoch, where the truth is known: at most so many, and
# of images no more than a share, which costs a hundredth of the epoch or two.
_WATCHED = 2048
_SHARE_OF_IMAGES = 16
_ENTRIES_AT_ONCE = 1 << 22


def watched_rows(rows: np.ndarray, over_images: bool) -> np.ndarray:
    """Training rows, evenly picked and always the same, to follow through the epochs."""
    most = min(_WATCHED, len(rows), len(rows) // _SHARE_OF_IMAGES if over_images else len(rows))
    return rows[np.linspace(0, len(rows) - 1, max(most, 1)).round().astype(int)]


def groups(labels: Tensor, truth: Tensor | None) -> Tensor:
    """The group of every entry, as a place in GROUPS: of unknown labels the truth decides."""
    found = torch.where(labels > 0, 0, torch.where(labels < 0, 3, 4))
    if truth is None:
        return found
    unknown = labels == 0
    found = torch.where(unknown & (truth > 0), 1, found)
    return torch.where(unknown & (truth < 0), 2, found)


def histograms(logits: Tensor, labels: Tensor, truth: Tensor | None) -> dict[str, list[int]]:
    """How many entries of each group have their probability in each of BINS equal bins.

    >>> found = histograms(torch.tensor([[9.0, -9.0]]), torch.tensor([[1, 0]]), None)
    >>> found["labelled"][-1], found["unknown"][0]
    (1, 1)
    """
    found = _counts(torch.sigmoid(logits.float()), labels, truth, BINS).sum(dim=0).tolist()
    return {name: bins for name, bins in zip(GROUPS, found, strict=True) if any(bins)}


def class_histograms(
    probabilities: np.ndarray, labels: np.ndarray, truth: np.ndarray | None
) -> np.ndarray:
    """(K, groups, 20) the same, class by class, in coarser bins: what a run keeps at its end."""
    known = None if truth is None else torch.from_numpy(truth)
    given = torch.from_numpy(probabilities), torch.from_numpy(labels)
    return _counts(*given, known, CLASS_BINS).to(torch.int32).numpy()


def _counts(p: Tensor, labels: Tensor, truth: Tensor | None, bins: int) -> Tensor:
    """(K, groups, bins) entries of each class, group and bin."""
    classes = labels.shape[1]
    shape = (classes, len(GROUPS), bins)
    counts = torch.zeros(classes * len(GROUPS) * bins, dtype=torch.int64, device=p.device)
    first = torch.arange(classes, device=p.device) * len(GROUPS)
    step = max(_ENTRIES_AT_ONCE // max(classes, 1), 1)
    for at in range(0, len(labels), step):
        rows = slice(at, at + step)
        group = groups(labels[rows], None if truth is None else truth[rows])
        place = (p[rows] * bins).long().clamp_(max=bins - 1)
        counts += torch.bincount(((first + group) * bins + place).flatten(), minlength=len(counts))
    return counts.view(shape)


def loss_of_labelled(logits: Tensor, labels: Tensor) -> float:
    """Mean of -log p over the labels that are PRESENT; NaN where there is none."""
    return float(softplus(-logits[labels > 0].float()).mean())


def ambiguity(logits: Tensor, labels: Tensor, truth: Tensor) -> dict[str, float]:
    """Mean |z| of unknown labels that are there and that are not: 0 is undecided (001, Fig. 8)."""
    sides = {"hidden": truth > 0, "negative": truth < 0}
    return {name: float(logits[(labels == 0) & side].abs().mean()) for name, side in sides.items()}


def predictive_values(logits: Tensor, truth: Tensor, tau: float) -> dict[str, float]:
    """Means over classes of TP/(TP+FP) and TN/(TN+FN) at a cut of `tau`: PPV, NPV.

    Classes without an answer on that side are left out (paper 004, appendix).
    """
    counts = count(torch.sigmoid(logits.float()), truth, tau, ignore_unknown=True)
    sides = {
        "PPV": (counts.precision, counts.tp + counts.fp),
        "NPV": (counts.negative_precision, counts.tn + counts.fn),
    }
    return {name: float(share[said > 0].mean()) for name, (share, said) in sides.items()}


def missing_labels(logits: Tensor, labels: Tensor, truth: Tensor, tau: float) -> dict[str, float]:
    """Precision and recall of p > tau on unknown labels: which are there (paper 003, Fig. 7).

    >>> z, y = torch.tensor([[2.0, 2.0, -2.0, 2.0]]), torch.tensor([[0, 0, 0, 1]])
    >>> missing_labels(z, y, torch.tensor([[1, -1, 1, 1]]), 0.5)
    {'missing_precision': 0.5, 'missing_recall': 0.5}
    """
    judged = (labels == 0) & (truth != 0)
    said, there = judged & (torch.sigmoid(logits.float()) > tau), judged & (truth > 0)
    right = (said & there).sum()
    return {
        "missing_precision": float(right / said.sum()),
        "missing_recall": float(right / there.sum()),
    }


def cut_of(loss: Loss) -> float:
    """Above which probability a method takes an unknown label for present; 0.5 if it has none."""
    while isinstance(loss, Wrapper) and not hasattr(loss, "tau"):
        loss = loss.base
    return float(getattr(loss, "tau", 0.5))


def look(
    part: str, logits: Tensor, labels: Tensor, truth: Tensor | None, tau: float
) -> tuple[dict[str, float], dict[str, list[int]]]:
    """What is kept of a part ("val" or "train") after an epoch: numbers, and the histograms."""
    numbers = {f"{part}_loss_labelled": loss_of_labelled(logits, labels)}
    if truth is not None:
        values = predictive_values(logits, truth, tau)
        numbers |= {f"{part}_{name}": value for name, value in values.items()}
        sizes = ambiguity(logits, labels, truth)
        numbers |= {f"{part}_size_{name}": value for name, value in sizes.items()}
        missing = missing_labels(logits, labels, truth, tau)
        numbers |= {f"{part}_{name}": value for name, value in missing.items()}
    return numbers, histograms(logits, labels, truth)
