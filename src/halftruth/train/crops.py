"""Which part of a picture an augmented view shows."""

import torch
from torch import Tensor

from halftruth.data.crop_boxes import random_boxes
from halftruth.data.transforms import Augment


def crop_boxes(augment: Augment, keys: Tensor) -> Tensor:
    """(B, 4) left, top, width, height of the view that `augment(images, keys=keys)` makes.

    Shares of the picture's sides; where it is flipped, left is the edge on the right and the width
    is negative.
    """
    draws = augment._draws(keys, 1, None, keys)[0]
    return torch.stack(random_boxes(draws, augment.crop_scale, augment.flip), dim=1)
