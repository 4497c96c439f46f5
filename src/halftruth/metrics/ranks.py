"""The ranks of the positives, from which average precision, ROC-AUC and thresholds follow.

For a positive with score s, precision at s is (positives with score >= s) / (samples with score
>= s). Both counts need sorted values only: no argsort, and no work per negative.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from halftruth.labels import PRESENT, UNKNOWN
from halftruth.metrics.scores_and_labels import Data, block_bytes_on, slices


@dataclass(frozen=True)
class Ranks:
    """One entry per positive, class after class; tied scores share their counts.

    ``positives`` and ``samples`` count those that score at least as high, ``tied`` the samples
    that score the same; ``below`` is the next lower score of the class, -inf where there is none.
    """

    column: Tensor
    score: Tensor
    positives: Tensor
    samples: Tensor
    tied: Tensor
    below: Tensor


def rank_positives(data: Data, block_bytes: int | None = None) -> Iterator[Ranks]:
    """Yield the ranks of the positives of every class, a few classes at a time."""
    samples, classes = data.shape
    budget = block_bytes or block_bytes_on(data.scores.device)
    if data.scores.device.type == "cuda":
        # Sorted values and positions, running counts, groups of ties and the results of cummax.
        for where in slices(classes, budget // (80 * samples)):
            yield rank_together(data, where)
        return
    threads = torch.get_num_threads()
    # A copy of the columns and their labels, and the sorted values; enough parts for all threads.
    fits = budget // (threads * samples * (2 * data.scores.element_size() + 2))
    step = min(fits, -(-classes // (4 * threads)))
    with ThreadPoolExecutor(threads) as pool:
        pending: deque[Future[Ranks]] = deque()
        for where in slices(classes, step):
            if len(pending) > threads:
                yield pending.popleft().result()
            pending.append(pool.submit(rank_each, data, where))
        while pending:
            yield pending.popleft().result()


def rank_each(data: Data, where: slice) -> Ranks:
    """Rank on a CPU: numpy sorts values several times faster than torch sorts with positions."""
    columns, codes = data.scores[:, where].t(), data.labels[:, where].t()
    scores = np.ascontiguousarray(_sortable(columns).numpy())
    labels = np.ascontiguousarray(codes.cpu().numpy())
    data.check(scores, labels)
    ranked = [_rank_column(s, y, data.ignore_unknown) for s, y in zip(scores, labels, strict=True)]
    counts = [len(score) for score, *_ in ranked]
    column = np.repeat(np.arange(where.start, where.stop), counts)
    parts = (torch.from_numpy(np.concatenate(part)) for part in zip(*ranked, strict=True))
    return Ranks(torch.from_numpy(column), *parts)


def _rank_column(
    scores: np.ndarray, labels: np.ndarray, ignore_unknown: bool
) -> tuple[np.ndarray, ...]:
    hits = np.sort(scores[labels == PRESENT])
    ordered = np.sort(scores[labels != UNKNOWN] if ignore_unknown else scores)
    first = np.searchsorted(ordered, hits)
    below = np.where(first > 0, ordered[first - 1], -np.inf)
    positives = len(hits) - np.searchsorted(hits, hits)
    tied = np.searchsorted(ordered, hits, side="right") - first
    samples = len(ordered) - first
    return hits.astype(np.float64), positives, samples, tied, below.astype(np.float64)


def rank_together(data: Data, where: slice) -> Ranks:
    """Rank on a GPU: one sort for all classes of the block, no synchronisation per class."""
    scores = _sortable(data.scores[:, where].t()).contiguous()
    labels = data.labels[:, where].t().to(scores.device)
    data.check(scores, labels)
    ordered, order = torch.sort(scores, dim=1)
    labels = labels.gather(1, order)
    present, known = labels == PRESENT, torch.ones_like(labels, dtype=torch.bool)
    if data.ignore_unknown:
        known = labels != UNKNOWN
        # An unknown entry must not be the next lower score of a known one: it takes the last
        # known score, so that it joins that one's ties (where it does not count).
        ordered = torch.where(known, ordered, -torch.inf).cummax(dim=1).values
    starts = torch.ones_like(present)
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    place = torch.arange(ordered.shape[1], device=ordered.device)
    first = torch.where(starts, place, 0).cummax(dim=1).values

    row, at = present.nonzero(as_tuple=True)
    start = first[row, at]
    below = torch.where(start > 0, ordered[row, (start - 1).clamp_min(0)], -torch.inf)
    tied = torch.zeros_like(first).scatter_add_(1, first, known.long())
    return Ranks(
        row + where.start,
        ordered[row, at].double(),
        _count_from(present, row, start),
        _count_from(known, row, start),
        tied[row, start],
        below.double(),
    )


def _count_from(mask: Tensor, row: Tensor, start: Tensor) -> Tensor:
    """Count the set entries from ``start`` to the end of the row."""
    running = mask.cumsum(dim=1)
    return running[row, -1] - running[row, start] + mask[row, start].long()


def _sortable(scores: Tensor) -> Tensor:
    """Convert half precision to float32, which holds the same numbers and sorts on every device."""
    return scores if scores.dtype in (torch.float32, torch.float64) else scores.float()
