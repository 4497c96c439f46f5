"""Losses for incomplete labels, behind one interface.

>>> import torch
>>> from halftruth import losses
>>> loss = losses.create("hill")
>>> logits = torch.tensor([[2.0, -1.0, 0.5]], requires_grad=True)
>>> loss(logits, torch.tensor([[1, 0, 0]])).backward()   # +1 present, 0 unknown, -1 absent
>>> logits.grad.shape
torch.Size([1, 3])
"""

from halftruth.losses.any_class import AnyClass
from halftruth.losses.assume_negative import BCE, LabelSmoothing, WeakNegative
from halftruth.losses.base import Loss, registry
from halftruth.losses.class_balanced import ClassBalanced
from halftruth.losses.consistency import Consistency, PseudoLabelConsistency, SpatialConsistency
from halftruth.losses.em import EM, EMAPL, EntropyMin
from halftruth.losses.em_teacher import EMTeacher
from halftruth.losses.epr import EPR
from halftruth.losses.expected_negative import ExpectedNegative
from halftruth.losses.focal import ASL, Focal, FocalMargin, Hill
from halftruth.losses.gr import GR
from halftruth.losses.label_values import LabelValues
from halftruth.losses.large_loss import LargeLoss, LargeLossPermanent
from halftruth.losses.lasd import LAS, LASD
from halftruth.losses.memory_loss import MemoryLoss
from halftruth.losses.mime import MIME
from halftruth.losses.noise_robust import (
    GeneralisedCrossEntropy,
    SquaredError,
    SymmetricCrossEntropy,
    TaylorCrossEntropy,
)
from halftruth.losses.pairwise import PairwiseRanking
from halftruth.losses.partial import PartialASL
from halftruth.losses.pseudo_label import PseudoLabel
from halftruth.losses.role import ROLE
from halftruth.losses.smile import SMILE
from halftruth.losses.splc import SPLC
from halftruth.losses.swan import Swan
from halftruth.losses.unified import Unified
from halftruth.losses.wrapper import Wrapper

create = registry.create
names = registry.names

# A method is a file in this folder, and one line above and below: its class is then registered, and
# type checkers know it.
__all__ = [
    "ASL",
    "BCE",
    "EM",
    "EMAPL",
    "EPR",
    "GR",
    "LAS",
    "LASD",
    "MIME",
    "ROLE",
    "SMILE",
    "SPLC",
    "AnyClass",
    "ClassBalanced",
    "Consistency",
    "EMTeacher",
    "EntropyMin",
    "ExpectedNegative",
    "Focal",
    "FocalMargin",
    "GeneralisedCrossEntropy",
    "Hill",
    "LabelSmoothing",
    "LabelValues",
    "LargeLoss",
    "LargeLossPermanent",
    "Loss",
    "MemoryLoss",
    "PairwiseRanking",
    "PartialASL",
    "PseudoLabel",
    "PseudoLabelConsistency",
    "SpatialConsistency",
    "SquaredError",
    "Swan",
    "SymmetricCrossEntropy",
    "TaylorCrossEntropy",
    "Unified",
    "WeakNegative",
    "Wrapper",
    "create",
    "names",
    "registry",
]
