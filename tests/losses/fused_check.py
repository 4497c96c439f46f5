"""Run by test_fused: every loss through its generated kernel, against its definition.

Triton's interpreter has to be chosen (TRITON_INTERPRET=1) before Triton is imported, so this is a
process of its own. On a machine with a GPU the kernels run there, compiled.
"""

import itertools
import os
import sys
import warnings

import torch

from cases import CASES
from halftruth import losses
from halftruth.losses._engine import fused
from halftruth.losses._engine.one_pass import walk
from halftruth.losses._engine.tracing import Untraceable

# The interpreter computes both sides of a choice, also the one that divides by zero.
warnings.simplefilter("ignore", RuntimeWarning)

DEVICE = "cpu" if "TRITON_INTERPRET" in os.environ else "cuda"


def batch(rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(rows)
    z = torch.randn(rows, columns, generator=draw) * 4
    y = torch.randint(-1, 2, (rows, columns), generator=draw).to(torch.int8)
    # Extremes in separate rows: the mean of a row with 1e30 and -1e30 is not well defined.
    z[0], z[1], y[0], y[2] = 1e30, -1e30, -1, 0
    return z, y


failures = compared = 0
# The last has two blocks of columns per row.
for shape in ((4, 5), (11, 33), (3, 2100)):
    for case in (cls(**settings) for cls in CASES.values() for settings in ({}, *cls.variants)):
        z, y = batch(*shape)
        loss = case.build()
        loss.begin(y)
        case.remember(loss, y)
        loss.to(DEVICE)
        z, y = z.to(DEVICE), y.to(DEVICE)
        order = torch.arange(len(z), device=DEVICE)
        try:
            # Twice: the second time, the memory must be read for the second batch.
            for index in (order, order.flip(0)):
                context = loss.prepare(z, y, index)
                value, slope = fused.run_kernel(loss, z, y, context, 0.5, True)
        except (Untraceable, ValueError) as error:
            # A case for another number of classes is not a failure, an untraceable loss is.
            failures += isinstance(error, Untraceable)
            print(f"{case!r}: {error}")
            continue
        wanted_value, wanted_slope = walk(loss, z, y, context, "all", True)
        near = torch.allclose(value.double(), wanted_value.double() * 0.5, rtol=2e-6, atol=1e-6)
        near &= torch.allclose(slope, wanted_slope * 0.5, rtol=4e-6, atol=1e-6)
        near &= bool(torch.isfinite(slope).all())
        compared += 1
        if not near:
            failures += 1
            worst = (slope - wanted_slope * 0.5).abs().max()
            print(f"{case!r} {shape}: {value} for {wanted_value * 0.5}, slopes differ by {worst}")

# A whole step as on a device, with one program and with many, twice through one graph.
fused.fits = lambda logits: True
for shape, dtype in itertools.product(((4, 7), (3, 2100)), (torch.float32, torch.bfloat16)):
    z, y = (x.to(DEVICE) for x in batch(*shape))
    z = z.clamp(-50, 50).to(dtype).requires_grad_()
    loss = losses.create("any-class", base="hill", reduction="batch")
    value = loss(z, y)
    wanted_value, wanted_slope = walk(loss, z.detach(), y, None, "all", True)
    near = torch.allclose(value.double(), wanted_value.double() / shape[0], rtol=2e-6, atol=1e-6)
    for _ in range(2):
        (grad,) = torch.autograd.grad(value * 3, z, retain_graph=True)
        wanted = (wanted_slope * 3 / shape[0]).to(dtype)
        near &= torch.allclose(grad, wanted, rtol=4e-6 if dtype == torch.float32 else 8e-3)
    compared += 1
    if not near:
        failures += 1
        print(f"a step of {shape} {dtype}: {value} for {wanted_value.double() / shape[0]}")
print(f"{compared} compared, {failures} failed")
sys.exit(1 if failures or not compared else 0)
