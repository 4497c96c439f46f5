"""Metrics that are one fraction a class: their options, empty classes, and means over classes."""

import warnings
from collections.abc import Callable
from typing import Literal, TypedDict, get_args

import torch
from torch import Tensor

from halftruth.metrics.inputs import Array, Data, read

Empty = Literal["skip", "zero", "nan"]


class ByClass(TypedDict, total=False):
    """Options of ``average_precision``, which explains them."""

    empty: Empty
    ignore_unknown: bool
    block_bytes: int | None


def by_class(
    fraction: Callable[[Data, int | None], tuple[Tensor, Tensor]],
    scores: Array,
    labels: Array,
    *,
    empty: Empty = "skip",
    ignore_unknown: bool = False,
    block_bytes: int | None = None,
) -> tuple[Data, Tensor]:
    """What was read, and (K,) part / whole; a class whose whole is 0 is empty."""
    if empty not in get_args(Empty):
        raise ValueError(f"Expected empty to be one of {get_args(Empty)}, but got {empty!r}.")
    data = read(scores, labels, ignore_unknown)
    part, whole = fraction(data, block_bytes)
    return data, torch.where(whole > 0, part / whole, 0.0 if empty == "zero" else torch.nan)


def mean_of_classes(values: Tensor, empty: Empty, why: str) -> float:
    """The mean of values that are NaN for empty classes, which ``empty="skip"`` leaves out."""
    if empty != "skip":
        return values.mean().item()
    mean = values.nanmean().item()
    if mean != mean:
        warnings.warn(why, stacklevel=3)
    return mean
