"""What epochs, and trials of a search, are compared by."""

from typing import TYPE_CHECKING

import torch

from halftruth.labels import UNKNOWN

if TYPE_CHECKING:
    from halftruth.train.trainer import Stage

# Keys of an epoch's record, in words.
CRITERIA = {
    "val_mAP": "validation mAP",
    "val_mAP_observed": "validation mAP on the observed labels",
    "val_AUC_observed": "validation AUC on the observed labels",
    "val_both_observed": "validation geometric mean of mAP and AUC on the observed labels",
}
_NAMED = {
    "observed": "val_mAP_observed",
    "auc": "val_AUC_observed",
    "both": "val_both_observed",
}


def criterion(stage: "Stage") -> str:
    """The key that a stage is told to choose by.

    Left to itself: mAP where complete labels are given, or the validation rows lack none; else
    the geometric mean of mAP and AUC, which comes closer to that choice than either: see
    docs/selection.md.
    """
    if stage.select_on_truth:
        return "val_mAP"
    if stage.config.select in _NAMED:
        return _NAMED[stage.config.select]
    rows = torch.as_tensor(stage.val_rows, device=stage.labels.device)
    complete = not bool((stage.labels[rows] == UNKNOWN).any())
    return _NAMED["observed" if complete else "both"]
