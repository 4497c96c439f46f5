"""`halftruth.testing.check_loss`: every method passes, and each kind of mistake is found."""

import pytest
import torch

from cases import Case
from halftruth import losses
from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.testing import check_loss
from loss_batches import every_variant, mixed, value_and_gradient


@every_variant()
def test_every_variant_keeps_its_promises(case: Case):
    check_loss(case.build(), exact_slope=not case.has_constants, epoch=case.epoch or 1)


class WrongSlope(losses.BCE):
    def unknown(self, s):
        return s.p, s.p


class Infinite(losses.BCE):
    def present(self, s):
        return -torch.log(s.p)


class AbsentOverruled(losses.BCE):
    def absent(self, s):
        return self.present(s)


class Random(losses.BCE):
    def unknown(self, s):
        return curves.scaled(self.absent(s), float(torch.rand(())))


class WritesLogits(losses.BCE):
    def prepare(self, logits, labels, index):
        logits.add_(1)


class OneRowOnly(losses.BCE):
    """It takes the rows of its block for the whole batch."""

    def terms(self, s, labels, context, rows):
        return curves.scaled(super().terms(s, labels, context, rows), 1 / len(labels))


class Forgets(losses.BCE):
    limit = 1.0

    def begin(self, labels):
        self.limit = 2.0

    def unknown(self, s):
        return curves.scaled(self.absent(s), self.limit)


class HiddenSchedule(losses.BCE):
    def unknown(self, s):
        return curves.scaled(self.absent(s), self.epoch / self.epochs)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (WrongSlope, "the derivative of the value as gradient.*at label 0"),
        (Infinite, "a finite value"),
        (AbsentOverruled, "ABSENT labels"),
        (Random, "from a second call"),
        (WritesLogits, "unchanged logits"),
        (OneRowOnly, "in small blocks"),
        (Forgets, "from a restored state_dict"),
        (HiddenSchedule, "in another epoch, as depends_on_epoch is False"),
    ],
)
def test_a_mistake_is_named(kind, message):
    with pytest.raises(AssertionError, match=f"{kind.__name__}: expected .*{message}"):
        check_loss(kind)


class Half(losses.BCE):
    def unknown(self, s):
        """It gives away the tensors of `s` itself, and mixes them."""
        both = curves.mixed(s.p, curves.log_loss(s), (s.p, s.pq))
        return curves.scaled(both, 0.5)


def test_a_curve_may_be_made_of_the_tensors_of_the_logit():
    """The same at every size of the batch."""
    check_loss(Half, exact_slope=False)
    loss = Half(reduction="sum")
    logits = torch.randn(16, 20, generator=torch.Generator().manual_seed(0))
    unknown = torch.zeros(16, 20, dtype=torch.int8)
    _, small = value_and_gradient(loss, logits, unknown)
    _, large = value_and_gradient(loss, logits.repeat(64, 1), unknown.repeat(64, 1))
    torch.testing.assert_close(large, small.repeat(64, 1), rtol=1e-5, atol=1e-6)
    p = torch.sigmoid(logits)
    wanted = 0.5 * (p * (p - 1) + (1 - p) * p * (1 - p))
    torch.testing.assert_close(small, wanted, rtol=1e-5, atol=1e-6)


class ValueAlone(losses.Loss):
    """Hill by autograd: every curve is a value without a slope."""

    def present(self, s):
        return (1 - torch.sigmoid(s.z - 1)) ** 2 * torch.nn.functional.softplus(1 - s.z)

    def absent(self, s):
        return (1.5 - s.p) * s.p**2


def test_a_value_alone_is_a_curve():
    check_loss(ValueAlone)
    logits, labels = mixed()
    for reduction in ("mean", "none"):
        want = value_and_gradient(losses.Hill(reduction=reduction), logits, labels)
        got = value_and_gradient(ValueAlone(reduction=reduction), logits, labels)
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-12)


class RowSum(losses.Loss):
    """A value alone whose entries depend on each other."""

    couples_rows = True

    def terms(self, s, labels, context, rows):
        return s.p * s.p.sum(dim=1, keepdim=True) * (1 + (labels < 0))


def test_a_value_alone_may_couple_the_entries_of_a_row():
    check_loss(RowSum)


CURVES = {
    "log_loss": (), "absent_log_loss": (), "focal": (2.0,), "shifted_focal": (4.0, 0.05),
    "hill": (1.5,), "entropy": (), "robust_log": (1.0,), "taylor_log": (2,), "squared": (),
    "toward": (torch.rand(4, 5),), "nothing": (),
}  # fmt: skip


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("name", CURVES)
def test_no_curve_changes_what_it_is_given(name, mirror):
    def make(s):
        if mirror:
            return curves.mirrored(getattr(curves, name), s, *CURVES[name])
        return getattr(curves, name)(s, *CURVES[name])

    def kept(s):
        names = ("z", "minus_z", "p", "q", "pq", "loss_p", "loss_q", "slope_log_p", "slope_log_q")
        return {name: getattr(s, name).clone() for name in names}

    s = Logit(torch.randn(4, 5, generator=torch.Generator().manual_seed(0)))
    before, share = kept(s), torch.full((4, 5), 0.3)
    curve = make(s)
    copy = [part.clone() for part in curve]
    where = torch.tensor([True, False, True, False, False]).expand(4, 5)
    curves.mixed(share, curve, curve)
    curves.mixed(s.p, curve, (s.p, s.pq))
    curves.scaled(curve, 2.0)
    curves.added(curve, curve)
    curves.patched(curve, where, curves.log_loss, s)
    curves.patched((s.p, s.q), where, curves.log_loss, s)
    for old, new in zip(copy, curve, strict=True):
        assert torch.equal(old, new)
    for key, old in before.items():
        assert torch.equal(old, getattr(s, key)), key
