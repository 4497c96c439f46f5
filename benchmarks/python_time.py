"""Python time of a loss step on the GPU code path, measured without a GPU.

    python benchmarks/python_time.py [--steps 2000] [--rounds 8]

The code is that of CUDA tensors, with two differences: the tensors lie on the CPU, and a launch
does nothing. The floor is an empty autograd node: the cost of `backward()` alone. Times are of
`loss(z, y).backward()` at 16 x 80, the smallest of several rounds, and of
`loss.value_and_grad(z, y)`, which does not use autograd.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from common import start
from halftruth import labels, losses
from halftruth.losses._engine import fused
from losses import EPOCH, EPOCHS, cases

ROWS, CLASSES = 16, 80
# Methods with a memory, or with terms over rows, in addition to those with a published form.
OTHERS: dict[str, dict[str, Any]] = {
    "class-balanced": {}, "ll-r": {}, "ll-cp": {}, "em-apl": {"warmup": 1},
    "en": {"expected_positives": 2.0}, "smile": {}, "mime": {"warmup": 1},
    "role": {"expected_positives": 1.5, "light": True, "rate": 1e-3},
}  # fmt: skip


class NoLaunch:
    """Replaces a compiled kernel and its variants, and launches nothing."""

    function = packed_metadata = None

    def __getitem__(self, grid: Any) -> Callable[..., "NoLaunch"]:
        return lambda *arguments, **constants: self

    def run(self, *arguments: Any) -> None: ...


class Nothing(torch.autograd.Function):
    """The floor: an empty autograd node."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        ctx.slopes = logits.detach()
        return torch.empty(())

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Tensor:
        return ctx.slopes


@contextmanager
def as_on_gpu() -> Iterator[None]:
    """Let CPU tensors take the code path of a GPU: no launches, no checks of label values."""
    with (
        patch.object(fused, "fits", lambda z: z.dtype != torch.float64 and z.numel() > 0),
        patch.object(fused, "kernel_from", lambda text: NoLaunch()),
        patch.object(torch._C, "_cuda_getCurrentRawStream", lambda device: 0, create=True),
        patch.object(labels, "check", lambda values: values),
    ):
        yield


def microseconds(step: Callable[[], None], steps: int, rounds: int) -> float:
    found = []
    for _ in range(rounds + 1):
        started = time.perf_counter()
        for _ in range(steps):
            step()
        found.append((time.perf_counter() - started) / steps * 1e6)
    return min(found[1:])


@as_on_gpu()
def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=2000, help="steps per round (2000)")
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args(argv)
    warnings.filterwarnings("ignore", message="em-apl|role|epoch")
    draw = torch.Generator().manual_seed(0)
    z = torch.randn(ROWS, CLASSES, generator=draw) * 2 - 3
    y = (torch.rand(ROWS, CLASSES, generator=draw) < 0.03).to(torch.int8)
    index = torch.arange(ROWS)
    named = {name: losses.create(case.name, **case.options) for name, case in cases(80).items()}
    named |= {name: losses.create(name, **chosen) for name, chosen in OTHERS.items()}
    print("| method | step, µs | above the floor, µs | value_and_grad, µs |\n|---|---:|---:|---:|")

    def timed(call: Callable[[Tensor], Tensor]) -> float:
        return microseconds(
            lambda: call(z.detach().requires_grad_()).backward(), options.steps, options.rounds
        )

    floor = timed(Nothing.apply)
    print(f"| floor | {floor:.0f} | 0 | |", flush=True)
    for name, loss in named.items():
        loss.begin(y)
        loss.start_epoch(EPOCH, EPOCHS)
        taken = timed(lambda leaf, loss=loss: loss(leaf, y, index=index))
        direct = microseconds(
            lambda loss=loss: loss.value_and_grad(z, y, index), options.steps, options.rounds
        )
        shown = f"{taken:.0f} | {taken - floor:.0f} | {direct:.0f}"
        print(f"| {name} | {shown} |", flush=True)


if __name__ == "__main__":
    start(main, "--steps 2 --rounds 1")
