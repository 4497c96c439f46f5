"""The generated kernels: on a GPU, and on the CPU by Triton's interpreter."""

import gc
import importlib.util
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from halftruth import losses
from halftruth.losses._engine import fused, programs
from halftruth.losses._engine.tracing import Untraceable

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)


@needs_triton
def test_kernels_equal_the_curves():
    script = Path(__file__).with_name("fused_check.py")
    env = {**os.environ}
    if not torch.cuda.is_available():
        env["TRITON_INTERPRET"] = "1"
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_a_schedule_changes_numbers_not_the_kernel():
    loss, z = losses.create("gr"), torch.zeros(4, 6)
    tapes = []
    for epoch in (1, 5):
        loss.start_epoch(epoch, 8)
        tapes.append(programs.trace(loss, z, None))
    assert tapes[0].lines == tapes[1].lines
    assert tapes[0].numbers != tapes[1].numbers


def test_settings_differ_where_traces_differ():
    assert programs.settings(losses.Hill()) == programs.settings(losses.Hill())
    assert programs.settings(losses.Hill()) != programs.settings(losses.Hill(lam=1.4))
    nested = [losses.create("any-class", base={"name": "asl", "gamma_neg": g}) for g in (2, 4)]
    assert programs.settings(nested[0]) != programs.settings(nested[1])


def test_no_kernel_for_logits_on_a_cpu_or_in_float64():
    assert not fused.fits(torch.zeros(2, 2))
    assert not fused.fits(torch.zeros(2, 2, dtype=torch.float64))


class Traced:
    """Programs that are tapes, with a count of the traces."""

    def __init__(self):
        self.tapes = []
        self.programs = programs.Programs(lambda tape: self.tapes.append(tape) or tape)

    def get(self, loss, context=None, shape=(4, 6)):
        return self.programs.get(loss, torch.zeros(shape), context)

    def numbers(self, loss, shape=(4, 6)):
        return self.get(loss, None, shape).numbers


def test_a_loss_is_traced_once_per_shape():
    traced, loss, other = Traced(), losses.create("hill"), losses.create("gr")
    for epoch in range(3):
        traced.numbers(loss)
        traced.numbers(loss, (2, 6))
        # Another loss continues its schedule, which does not change this one.
        other.start_epoch(epoch, 3)
    assert len(traced.tapes) == 2


def test_a_changed_setting_of_any_inner_loss_is_noticed():
    traced = Traced()
    loss = losses.create("any-class", base={"name": "splc", "base": "hill", "start": 0})
    before = traced.numbers(loss)
    loss.base.base.lam = 1.25
    assert 1.25 in traced.numbers(loss)
    assert 1.25 not in before
    loss.base = losses.create("hill", lam=1.75)
    assert 1.75 in traced.numbers(loss)


@pytest.mark.parametrize("change", ["add_module", "register_module", "set_submodule"])
def test_a_replaced_inner_loss_is_noticed(change):
    traced, loss = Traced(), losses.create("any-class", base="hill")
    # Created before, because creating a loss counts as a change.
    other = losses.create("hill", lam=1.25)
    traced.numbers(loss)
    getattr(loss, change)("base", other)
    assert 1.25 in traced.numbers(loss)


def test_a_setting_changed_back_is_noticed():
    class Weighted(losses.BCE):
        weight = 2.5

        def unknown(self, s):
            value, slope = self.absent(s)
            return value * self.weight, slope * self.weight

    traced, loss = Traced(), Weighted()
    loss.weight = 3.5
    assert 3.5 in traced.numbers(loss)
    del loss.weight
    assert 2.5 in traced.numbers(loss)


def test_a_module_that_does_not_count_changes_is_read_every_time():
    class Weighted(losses.BCE):
        def __init__(self):
            super().__init__()
            self.part = torch.nn.Identity()
            self.part.weight = 2.5

        def unknown(self, s):
            value, slope = self.absent(s)
            return value * self.part.weight, slope * self.part.weight

    traced, loss = Traced(), Weighted()
    assert 2.5 in traced.numbers(loss)
    loss.part.weight = 3.5
    assert 3.5 in traced.numbers(loss)


def test_traces_are_not_stored_in_the_loss():
    traced, loss = Traced(), losses.create("hill")
    traced.numbers(loss)
    copied = pickle.loads(pickle.dumps(loss))
    copied.lam = 1.25
    assert 1.25 in traced.numbers(copied)
    assert 1.25 not in traced.numbers(loss)
    del loss, copied
    gc.collect()
    assert not traced.programs.known


def test_tensors_of_a_batch_are_read_again_without_a_new_trace():
    traced, loss = Traced(), losses.create("ll-cp")
    for _ in range(3):
        context = threshold, before = torch.randn(()), torch.rand(4, 6) > 0.5
        tape = traced.get(loss, context)
        tensors = programs.tensors_of(context)
        assert torch.equal(tensors[0], threshold)
        assert torch.equal(tensors[1], before)
    assert len(traced.tapes) == 1
    assert tape.tensors == [("float", "one"), ("bool", "entry")]
    traced.get(loss, (threshold, None))
    assert len(traced.tapes) == 2


class Factor(losses.BCE):
    """A loss with a factor in its context."""

    def factor(self, context):
        return context["factor"]

    def terms(self, s, labels, context, rows):
        value, slope = super().terms(s, labels, None, rows)
        factor = self.factor(context)
        return value * factor, slope * factor


class Decided(Factor):
    """... that depends on the values of the context."""

    def factor(self, context):
        return 2.5 if context.max() > 0 else 1.5


class Held(Factor):
    """... that is a tensor of the loss, which may be another one in the next batch."""

    held = torch.tensor(2.5)

    def factor(self, context):
        return self.held


@pytest.mark.parametrize(
    ("loss", "context"),
    [
        (Factor(), {"factor": 2.5}),
        (Decided(), torch.ones(4, 6)),
        (Held(), None),
    ],
)
def test_what_depends_on_values_of_a_batch_is_not_traced(loss, context):
    traced = Traced()
    for _ in range(2):
        with pytest.raises(Untraceable):
            traced.get(loss, context)
    assert not traced.tapes
