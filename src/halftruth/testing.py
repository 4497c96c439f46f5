"""Checks for a loss, for the tests of packages that add their own.

from halftruth.testing import check_loss

def test_my_loss():
    check_loss(MyLoss)
    check_loss(MyLoss(gamma=0.5))
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from halftruth.losses import Loss
from halftruth.losses._engine import one_pass

ROWS, EPOCHS = 8, 10
SIZES = (0.0, 1e-8, 1.0, 30.0, 104.0, 1e4)
# The largest distance of a stated slope from central differences, with this step.
STEP, NEAR = 1e-5, 1e-7


def check_loss(
    loss: Loss | type[Loss], *, classes: int = 5, exact_slope: bool = True, epoch: int = 1
) -> None:
    """Raise an AssertionError that names the first promise of a loss that it does not keep.

    `loss`: an instance, or a class that needs no arguments; it is copied. `classes`: the number of
    classes it is made for. `exact_slope=False`: some of its factors have no gradient on purpose, so
    that its slope is not the derivative of its value. `epoch`: of 10, one in which it is active.

    Checked are: values and gradients at extreme logits are finite; the gradient is the derivative,
    by differences in float64; inputs are not changed; the same call gives the same result; other
    layouts, precisions and sizes of blocks give the same result; an empty batch gives 0; a label
    that is ABSENT keeps a negative term; a copy and a restored `state_dict` give the same result;
    and a loss whose value changes with the epoch says so (`depends_on_epoch`).

    >>> from halftruth import losses
    >>> check_loss(losses.Hill)
    >>> class Wrong(losses.BCE):
    ...     def unknown(self, s):
    ...         return s.p, s.p
    >>> check_loss(Wrong)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    AssertionError: Wrong: expected the derivative of the value as gradient, got a difference of ...
    """
    fresh = loss() if isinstance(loss, type) else copy.deepcopy(loss)
    _Check(fresh, classes, epoch).run(exact_slope)


class _Check:
    def __init__(self, fresh: Loss, classes: int, epoch: int) -> None:
        self.fresh, self.name = fresh, type(fresh).__name__
        random = torch.Generator().manual_seed(0)
        self.labels = torch.randint(-1, 2, (ROWS, classes), generator=random, dtype=torch.int8)
        # Rows with one kind of label each, where there are enough classes to tell.
        self.labels[0], self.labels[1], self.labels[2] = 0, -1, 1
        views = (fresh.views,) if fresh.views > 1 else ()
        self.logits = torch.randn(*views, ROWS, classes, generator=random, dtype=torch.float64) * 3
        self.loss = copy.deepcopy(fresh)
        self.loss.begin(self.labels)
        self.loss.start_epoch(epoch, EPOCHS)
        # Evaluation, so that a memory is read and not written.
        self.loss.eval()

    def run(self, exact_slope: bool) -> None:
        given = self.logits.clone(), self.labels.clone()
        value, slope = want = self.result()
        self.say(value.dim() == 0, "one value", f"the shape {tuple(value.shape)}")
        same = torch.equal(self.logits, given[0]) and torch.equal(self.labels, given[1])
        self.say(same, "unchanged logits and labels", "others after the call")
        self.same(want, self.result(), "from a second call", 0)
        if exact_slope:
            self.check_slope(slope)
        self.check_absent()
        self.check_extremes()
        turned = self.logits.mT.contiguous().mT, self.labels.mT.contiguous().mT
        self.same(want, self.result(*turned), "from transposed inputs", 1e-11)
        with _small_blocks():
            self.same(want, self.result(), "from a batch in small blocks", 1e-11)
        for dtype, near in ((torch.float32, 1e-4), (torch.bfloat16, 5e-2)):
            rounded = self.logits.to(dtype)
            exact = self.result(rounded.double())
            self.same(exact, self.result(rounded), f"in {dtype}", near)
        empty = self.result(self.logits[..., :0, :], self.labels[:0])[0]
        self.say(empty.item() == 0, "0 for an empty batch", f"{empty.item():g}")
        self.same(want, self.result(loss=copy.deepcopy(self.loss)), "from a copy", 0)
        again = copy.deepcopy(self.fresh)
        again.load_state_dict(self.loss.state_dict())
        self.same(want, self.result(loss=again.eval()), "from a restored state_dict", 0)
        self.check_epochs()

    def result(
        self, logits: Tensor | None = None, labels: Tensor | None = None, loss: Loss | None = None
    ) -> tuple[Tensor, Tensor]:
        """Value and gradient."""
        loss = self.loss if loss is None else loss
        labels = self.labels if labels is None else labels
        leaf = (self.logits if logits is None else logits).detach().requires_grad_()
        index = torch.arange(len(labels)) if loss.needs_index else None
        value = loss(leaf, labels, index=index)
        value.sum().backward()
        assert leaf.grad is not None
        return value.detach(), leaf.grad

    def check_slope(self, slope: Tensor) -> None:
        found = torch.empty_like(slope)
        for i in range(self.logits.numel()):
            ends = []
            for sign in (1, -1):
                moved = self.logits.clone()
                moved.view(-1)[i] += sign * STEP
                ends.append(self.result(moved)[0])
            found.view(-1)[i] = (ends[0] - ends[1]) / (2 * STEP)
        off = (found - slope).abs()
        at = int(off.argmax())
        label = int(self.labels.view(-1)[at % self.labels.numel()])
        self.say(
            bool(off.max() < NEAR),
            "the derivative of the value as gradient",
            f"a difference of up to {off.max():.2g} at label {label}",
        )

    def check_absent(self) -> None:
        """To predict what is ABSENT costs more, whatever the method does with unknown labels."""
        labels = torch.full_like(self.labels, -1)
        labels[:, 0] = 1
        logits = torch.full_like(self.logits, -3.0)
        right = self.result(logits, labels)[0]
        logits[..., 1:] = 3.0
        wrong = self.result(logits, labels)[0]
        self.say(
            bool(wrong > right),
            "a higher value where ABSENT labels are predicted as present",
            f"{wrong:.4g}, and {right:.4g} where they are predicted as absent",
        )

    def check_extremes(self) -> None:
        row = torch.tensor([sign * size for size in SIZES for sign in (1, -1)])
        count, width = len(row), self.labels.shape[1]
        for dtype in (torch.float32, torch.float16):
            for start in range(count):
                columns = row.roll(start).repeat(-(-width // count))[:width]
                logits = columns.expand_as(self.logits).to(dtype)
                for found, what in zip(self.result(logits), ("value", "gradient"), strict=True):
                    finite = bool(found.isfinite().all())
                    self.say(finite, f"a finite {what} for every finite logit", f"{found}")

    def check_epochs(self) -> None:
        if self.loss.depends_on_epoch:
            return
        found = []
        for epoch in (0, EPOCHS - 1):
            self.loss.start_epoch(epoch, EPOCHS)
            found.append(self.result())
        self.same(found[0], found[1], "in another epoch, as depends_on_epoch is False", 0)

    def same(
        self, want: tuple[Tensor, ...], got: tuple[Tensor, ...], where: str, near: float
    ) -> None:
        for a, b, what in zip(want, got, ("value", "gradient"), strict=True):
            off = (a.double() - b.double()).abs().max() / a.double().abs().max().clamp(min=1e-9)
            self.say(bool(off <= near), f"the same {what} {where}", f"a difference of {off:.2g}")

    def say(self, ok: bool, expected: str, got: str) -> None:
        if not ok:
            raise AssertionError(f"{self.name}: expected {expected}, got {got}")


@contextmanager
def _small_blocks() -> Iterator[None]:
    """Compute every row of a batch in a block of its own, as a large batch in several."""
    before, one_pass.BLOCK = one_pass.BLOCK, 1
    try:
        yield
    finally:
        one_pass.BLOCK = before
