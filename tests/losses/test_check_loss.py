"""`halftruth.testing.check_loss`: every method passes, and each kind of mistake is found."""

import pytest
import torch

from cases import Case
from halftruth import losses
from halftruth.losses import curves
from halftruth.testing import check_loss
from loss_batches import every_variant


@every_variant()
def test_every_variant_keeps_its_promises(case: Case):
    with_case = case.build()
    check_loss(with_case, exact_slope=not case.has_constants, epoch=case.epoch or 1)
