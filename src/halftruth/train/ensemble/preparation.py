"""Prepare raw features for the members of the ensemble."""

from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from halftruth.data.wide_matrix import WideMatrix, choose_columns
from halftruth.models.ensemble import make_preparation
from halftruth.train.inputs.batches import apply_in_blocks, fit_standardization, share_scale


def fit_preparation(features: Any, one_scale: np.ndarray | None = None) -> list[nn.Module]:
    """Return the steps from raw to prepared features, in float64, fitted to these rows."""
    steps = make_preparation(features.shape[1]).double()
    steps[0] = share_scale(fit_standardization(features), one_scale)
    middle = apply_in_blocks(steps[:2], features).numpy()
    steps[2] = share_scale(fit_standardization(middle), one_scale)
    return list(steps)


def prepare_features(features: object, one_scale: np.ndarray | None = None) -> Tensor:
    """Return features that are prepared for the members."""
    steps = fit_preparation(features, one_scale)
    return apply_in_blocks(nn.Sequential(*steps), features).float()


def choose_dense(features: WideMatrix, labels: np.ndarray, inside: np.ndarray) -> WideMatrix:
    """Return a wide matrix whose dense columns are chosen by the labels of some rows, a mask.

    Rows that are held out must have no part in the choice: of many columns, some are associated
    with their labels by chance, and members would seem to predict these labels.
    """
    own = features.sparse[inside][:, features.others :]
    chosen = features.others + choose_columns(own, labels[inside], len(features))
    return replace(features, columns=np.concatenate([np.arange(features.others), chosen]))
