"""The generated kernels, on the CPU by Triton's interpreter (on a GPU: benchmarks/losses.py)."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from halftruth import losses
from halftruth.losses import fused, traces

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)


@needs_triton
def test_kernels_give_what_the_curves_give():
    script = Path(__file__).with_name("fused_check.py")
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(script.parent)}
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, env=env
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_a_schedule_changes_numbers_not_the_kernel():
    loss, z = losses.create("gr"), torch.zeros(4, 6)
    tapes = []
    for epoch in (1, 5):
        loss.start_epoch(epoch, 8)
        tapes.append(traces.trace(loss, z, None))
    assert tapes[0].lines == tapes[1].lines
    assert tapes[0].numbers != tapes[1].numbers


def test_settings_tell_apart_what_is_traced():
    assert traces.settings(losses.Hill()) == traces.settings(losses.Hill())
    assert traces.settings(losses.Hill()) != traces.settings(losses.Hill(lam=1.4))
    nested = [losses.create("any-class", base={"name": "asl", "gamma_neg": g}) for g in (2, 4)]
    assert traces.settings(nested[0]) != traces.settings(nested[1])


def test_logits_on_a_cpu_or_in_float64_are_left_to_the_definition():
    assert not fused.fits(torch.zeros(2, 2))
    assert not fused.fits(torch.zeros(2, 2, dtype=torch.float64))
