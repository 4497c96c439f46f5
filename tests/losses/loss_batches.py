"""Batches for the tests of losses, and their loops over the registry."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from cases import CASES, Case
from cases.remembering import with_index
from halftruth import losses

WRAPPERS = ("any-class", "class-balanced", "consistency", "pseudo-label", "scl", "splc")


# A method without a case is one failure, in test_loss_contract, and not one per test.
METHODS = [name for name in losses.names() if name in CASES]


def every_method() -> Any:
    return pytest.mark.parametrize("name", METHODS)


def every_variant() -> Any:
    """Every method with its defaults and with each of the settings its case lists."""
    found = [
        CASES[name](**settings) for name in METHODS for settings in ({}, *CASES[name].variants)
    ]
    return pytest.mark.parametrize("case", found, ids=repr)


def wrapped_cases() -> Iterator[Case]:
    """Every wrapper with every base that it accepts."""
    for wrapper in WRAPPERS:
        for base in METHODS:
            plain = base not in (*WRAPPERS, "pr")
            if wrapper == "splc" and not plain:
                continue
            if wrapper in ("scl", "consistency") and base in ("consistency", "lagc"):
                continue
            if base == "pseudo-label":
                continue
            yield CASES[wrapper](base=CASES[base])


def mixed(views: int = 1, rows: int = 7, classes: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    """float64 logits and labels of all three kinds, with rows all unknown, absent and present."""
    random = torch.Generator().manual_seed(seed)
    shape = (rows, classes) if views == 1 else (views, rows, classes)
    logits = torch.randn(shape, generator=random, dtype=torch.float64) * 3
    labels = torch.randint(-1, 2, (rows, classes), generator=random, dtype=torch.int8)
    for row, label in enumerate((0, -1, 1)):
        if row < rows - 1:
            labels[row] = label
    return logits, labels


def fresh(name: str, labels: Tensor, **options: Any) -> losses.Loss:
    """A method for any number of classes, at an epoch where it is active."""
    case = CASES[name]
    needed = {k: v for k, v in case.needed.items() if k not in ("counts", "negatives")}
    loss = losses.create(name, **needed, **options)
    loss.begin(labels)
    loss.start_epoch(case.epoch or 1, 10)
    return with_index(loss)


def value_and_gradient(
    loss: Any, logits: Tensor, labels: Tensor, upstream: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    leaf = logits.detach().clone().requires_grad_()
    value = loss(leaf, labels)
    value.backward(torch.ones_like(value) if upstream is None else upstream)
    assert leaf.grad is not None
    return value.detach(), leaf.grad
