"""What a loss that remembers is shown after an epoch, and how right it is where truth is known."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from halftruth.losses import Loss
from halftruth.losses.role import ROLE
from halftruth.losses.wrapper import Wrapper
from halftruth.models import Classifier
from halftruth.train.inputs import Inputs

_ENTRIES_AT_ONCE = 1 << 22


def innermost(loss: Loss) -> Loss:
    """The loss inside all wrappers."""
    while isinstance(loss, Wrapper):
        loss = loss.base
    return loss


def takes_batches(loss: Loss) -> bool:
    """Whether a method that needs scores takes them batch by batch, not only all at once."""
    return type(innermost(loss)).observe is not Loss.observe


def estimates(loss: Loss) -> dict[str, Tensor]:
    """The labels that a method estimates beside the model, to go on from in the next stage."""
    inner = innermost(loss)
    return {"estimates": inner.estimates()} if isinstance(inner, ROLE) else {}


def load_estimates(loss: Loss, best: dict[str, Any]) -> None:
    """Go on from the estimates that were kept with the best weights of the stage before."""
    inner = innermost(loss)
    if isinstance(inner, ROLE) and "estimates" in best:
        inner.load_estimates(best["estimates"])


@torch.no_grad()
def show_scores(
    hear: Callable[[Tensor, Tensor], None],
    model: Classifier,
    inputs: Inputs,
    rows: np.ndarray,
    place: Tensor,
    accelerator: Accelerator,
    batch_size: int,
) -> None:
    """Let `hear` have what the model says of every row; each process goes through its part."""
    mine = np.ascontiguousarray(rows[accelerator.process_index :: accelerator.num_processes])
    batches = [mine[at : at + batch_size] for at in range(0, len(mine), batch_size)]
    model.eval()
    for raw, index in inputs.load(batches, accelerator.device):
        with accelerator.autocast():
            logits = model(inputs.prepare(raw))
        hear(logits.float(), place[index])


def pseudo_label_quality(loss: Loss, labels: Tensor, truth: Tensor) -> dict[str, float]:
    """Precision and recall of what a method takes unknown labels for, by the training set's truth.

    Empty for a method without pseudo-labels. Precision is NaN where there are none.
    """
    counts = torch.zeros(2, 3, dtype=torch.int64)
    for index in _blocks(labels):
        taken = loss.pseudo_labels(index)
        if taken is None:
            return {}
        unknown = (labels[index] == 0) & (truth[index] != 0)
        for row, sign in enumerate((1, -1)):
            given, true = (taken == sign) & unknown, (truth[index] == sign) & unknown
            counts[row] += torch.stack([(given & true).sum(), given.sum(), true.sum()]).cpu()
    found = {}
    for name, (right, given, true) in zip(("positive", "negative"), counts.tolist(), strict=True):
        found[f"pseudo_{name}_precision"] = right / given if given else float("nan")
        found[f"pseudo_{name}_recall"] = right / true if true else float("nan")
    return found


def _blocks(labels: Tensor) -> Iterator[Tensor]:
    samples = torch.arange(len(labels), device=labels.device)
    yield from samples.split(max(_ENTRIES_AT_ONCE // max(labels.shape[1], 1), 1))
