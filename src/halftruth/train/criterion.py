"""What epochs, and trials of a search, are compared by."""

from typing import TYPE_CHECKING

import torch

from halftruth.labels import UNKNOWN

if TYPE_CHECKING:
    from halftruth.train.stage import Stage

# Keys of an epoch's record, in words.
CRITERIA = {
    "val_mAP": "validation mAP",
    "val_mAP_observed": "validation mAP on the observed labels",
    "val_AUC_observed": "validation AUC on the observed labels",
}


def criterion(stage: "Stage") -> str:
    """The key that a stage is told to choose by.

    Left to itself: mAP where complete labels are given, or the validation rows lack none; else
    AUC, which keeps the order of models where labels are missing (docs/auto.md).
    """
    if stage.select_on_truth:
        return "val_mAP"
    if stage.config.select == "observed":
        return "val_mAP_observed"
    rows = torch.as_tensor(stage.val_rows, device=stage.labels.device)
    complete = not bool((stage.labels[rows] == UNKNOWN).any())
    by_map = complete and stage.config.select != "auc"
    return "val_mAP_observed" if by_map else "val_AUC_observed"
