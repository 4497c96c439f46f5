"""Forward and backward pass of the losses beside their published code style, in one run.

    python benchmarks/losses.py                               # both shapes, every method
    python benchmarks/losses.py --shapes 256x567 --methods asl em
    python benchmarks/losses.py --clock process --threads 1   # on a machine that is not idle
    python benchmarks/losses.py --device cuda --shapes 4096x10000 16x80 256x567

Inputs are those of training: logits from N(-3, 2), 3 % of the labels present, the others unknown;
int8 labels here, float targets there (published.py). Before anything is timed, values and gradients
of the two must agree. Both forms run in short rounds that alternate; times are medians over the
rounds, and "times faster" is the median of the ratios of the rounds, so that other load affects
both. `value_and_grad` returns the same gradient without autograd, as the training loop uses it.

Memory is the peak above the inputs during a step, the gradient included, as torch's allocator
counts it, in copies of the logits. On a GPU, "device alone" is a step replayed as a CUDA graph, and
"floors" its ratio to a copy of the logits and a read of the labels: no loss with a gradient can
move fewer bytes.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import published
from common import print_header, print_row, start
from halftruth import losses

Shape = tuple[int, int]
Step = Callable[[], Any]

EPOCH, EPOCHS = 4, 8
# Steps per round.
ROUND = 10
CHECKED = (512, 61)


class Case(NamedTuple):
    """A method with its arguments, and its published form."""

    name: str
    options: dict[str, Any]
    peer: Callable[[Tensor, Tensor], Tensor]


def cases(width: int) -> dict[str, Case]:
    """Both forms of each method; schedules are at half time, corrections are switched on."""
    total = {"reduction": "sum"}
    detached = partial(published.asl, detach_weight=True)
    half_time = partial(published.gr, w=1.0, b=-2.0, mu=0.65, sigma=1.25)
    lasd = partial(published.lasd, lam_neg=1 / (width - 1))
    return {
        "asl": Case("asl", total, published.asl),
        "asl (detached)": Case("asl", {"detach_weight": True, **total}, detached),
        "hill": Case("hill", total, published.hill),
        "em": Case("em", {}, published.em),
        "gr": Case("gr", {}, half_time),
        "splc": Case("splc", total, published.splc),
        "bce": Case("bce", {}, published.bce),
        "lasd": Case("lasd", {}, lasd),
        "any-class": Case("any-class", {"reduction": "batch"}, published.any_class),
    }


def make(shape: Shape, device: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=generator) * 2 - 3
    labels = torch.rand(shape, generator=generator) < 0.03
    return logits.to(device), labels.to(device, torch.int8)


def build(case: Case) -> losses.Loss:
    loss = losses.create(case.name, **case.options)
    loss.start_epoch(EPOCH, EPOCHS)
    return loss


def backward(call: Callable[[Tensor, Tensor], Tensor], logits: Tensor, targets: Tensor) -> Tensor:
    """One forward and backward pass; return the gradient."""
    leaf = logits.detach().requires_grad_()
    call(leaf, targets).backward()
    assert leaf.grad is not None
    return leaf.grad


def check(name: str, case: Case, device: str) -> None:
    """Value and gradient must be the same where the published guards do no harm (|z| < 6)."""
    logits, labels = make(CHECKED, device)
    logits = logits.clamp(-6, 6)
    ours, theirs = ((build(case), labels), (case.peer, labels.float()))
    values = [call(logits, targets).item() for call, targets in (ours, theirs)]
    grads = [backward(call, logits, targets) for call, targets in (ours, theirs)]
    gap = ((grads[0] - grads[1]).abs().max() / grads[1].abs().max()).item()
    # A guard of 1e-5 changes the slope at z = -6 by 0.4 %.
    if abs(values[0] - values[1]) > 2e-3 * abs(values[1]) or gap > 5e-3:
        raise SystemExit(
            f"{name}: the value is {values[0]:.6g}, in the published form {values[1]:.6g}; "
            f"gradients differ by up to {gap:.1e} of the largest"
        )


def take_turns(steps: list[Step], given: argparse.Namespace) -> list[list[float]]:
    """Seconds per step in alternating rounds. A GPU is waited for at the end of a round."""
    clock = time.process_time if given.clock == "process" else time.perf_counter

    def seconds(step: Step) -> float:
        # The first is not counted: caches and threads served the other form.
        step()
        wait(given.device)
        started = clock()
        for _ in range(ROUND):
            step()
        wait(given.device)
        return (clock() - started) / ROUND

    once = sum([seconds(step) for _ in range(2) for step in steps][len(steps) :])
    rounds = int(min(max(given.seconds / (ROUND * once), 2), 40))
    turns = [[seconds(step) for step in steps] for _ in range(rounds)]
    return [list(found) for found in zip(*turns, strict=True)]


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def peak_bytes(step: Step, device: str) -> float:
    """Most bytes allocated at once during a step, beyond those before it."""
    if device == "cuda":
        wait(device)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step()
        return torch.cuda.max_memory_allocated() - before
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        with torch.profiler.profile(profile_memory=True) as profile:
            step()
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    changes = [event for event in events if event.get("name") == "[memory]"]
    level = peak = 0
    for event in sorted(changes, key=lambda event: event["ts"]):
        level += event["args"]["Bytes"]
        peak = max(peak, level)
    return peak


def replay_seconds(step: Step, given: argparse.Namespace) -> float:
    """Time of a step as a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return statistics.median(take_turns([graph.replay], given)[0])


def print_shape(shape: Shape, given: argparse.Namespace) -> None:
    """Print the table of one shape."""
    device, entries = given.device, shape[0] * shape[1]
    logits, labels = make(shape, device)
    targets, copy, floor = labels.float(), torch.empty_like(logits), 0.0
    print(f"\n{shape[0]} x {shape[1]} float32 on {device}\n")
    columns = ["method", "published, ms", "`value_and_grad`, ms", "times faster"]
    columns += ["with `backward()`, ms", "times faster", "copies", "published copies"]
    if device == "cuda":
        floor = replay_seconds(partial(torch.mul, logits, labels, out=copy), given)
        columns += ["device alone, ms", "floors"]
    print_header(*columns)
    for name, case in cases(shape[1]).items():
        if given.methods and name not in given.methods:
            continue
        check(name, cases(CHECKED[1])[name], device)
        loss = build(case)
        ours = partial(backward, loss, logits, labels)
        theirs = partial(backward, case.peer, logits, targets)
        direct = partial(loss.value_and_grad, logits, labels)
        times = take_turns([theirs, direct, ours], given)
        cells = [f"{1e3 * statistics.median(times[0]):.3g}"]
        for taken in times[1:]:
            faster = statistics.median(b / a for a, b in zip(taken, times[0], strict=True))
            cells += [f"{1e3 * statistics.median(taken):.3g}", f"{faster:.1f}"]
        cells += [f"{peak_bytes(step, device) / (4 * entries):.1f}" for step in (ours, theirs)]
        if device == "cuda":
            alone = replay_seconds(ours, given)
            cells += [f"{1e3 * alone:.3g}", f"{alone / floor:.2f}"]
        print_row(name, *cells)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shapes", nargs="+", default=["256x567", "4096x10000"], metavar="BxK")
    parser.add_argument("--methods", nargs="+", choices=list(cases(8)), metavar="NAME")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clock", default="wall", choices=["wall", "process"])
    parser.add_argument("--seconds", type=float, default=4.0, help="a method and shape (4)")
    given = parser.parse_args(argv)
    torch.set_num_threads(given.threads)
    name = torch.cuda.get_device_name() if given.device == "cuda" else f"{os.cpu_count()} cores"
    print(f"torch {torch.__version__}, {name}, {given.threads} threads, {given.clock} clock")
    for shape in given.shapes:
        rows, columns = map(int, shape.split("x"))
        print_shape((rows, columns), given)


if __name__ == "__main__":
    start(main, "--shapes 16x80 --seconds 0.01 --threads 1")
