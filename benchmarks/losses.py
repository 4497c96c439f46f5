"""Forward + backward of the losses against their published code style, in one run.

    python benchmarks/losses.py                                # both shapes, every method
    python benchmarks/losses.py --shapes 256x567 --methods asl em
    python benchmarks/losses.py --device cuda
    python benchmarks/losses.py --threads 1 --clock process    # on a machine that is not idle
    python benchmarks/losses.py --shapes 32x80 --threads 1 --take smallest    # a small batch

Inputs are those of training: logits from N(-3, 2), 3 % of the labels present, the others unknown;
int8 labels here, float targets there (`benchmarks/published.py`). Before anything is timed, values
and gradients of the two must agree. Rounds of ten steps alternate; times are medians of all but the
first step of a round, or the smallest of them.

Memory is the peak above the inputs during one forward + backward, the gradient included, as torch's
allocator counts it (on a CPU from the profiler's allocation events, on CUDA from its statistics).
`--resident` adds what Linux counts: the peak of the resident set above its size before the step.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import published
from common import start
from halftruth import losses

Shape = tuple[int, int]
Step = Callable[[], Tensor]

EPOCH, EPOCHS = 4, 8
# Steps per round; rounds of both forms alternate.
ROUND = 10
CHECKED = (512, 61)
# Smaller logits reuse memory of the step before, so the resident set does not grow.
RESIDENT_FROM = 32 * 2**20


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
        "focal-margin": Case("focal-margin", total, published.focal_margin),
        "wan": Case("wan", {}, partial(published.wan, weight=1 / (width - 1))),
        "swan": Case("swan", {}, published.swan),
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


def steps(case: Case, shape: Shape, device: str) -> tuple[Step, Step]:
    """One forward + backward of ours and of theirs on the same inputs, returning the gradient."""
    logits, labels = make(shape, device)

    def step(call: Callable[[Tensor, Tensor], Tensor], targets: Tensor) -> Tensor:
        leaf = logits.detach().requires_grad_()
        call(leaf, targets).backward()
        assert leaf.grad is not None
        return leaf.grad

    return partial(step, build(case), labels), partial(step, case.peer, labels.float())


def check(name: str, case: Case, device: str) -> None:
    """Value and gradient must be the same where the published guards do no harm (|z| < 6)."""
    logits, labels = make(CHECKED, device)
    found = []
    for call, targets in ((build(case), labels), (case.peer, labels.float())):
        leaf = logits.clamp(-6, 6).requires_grad_()
        value = call(leaf, targets)
        value.backward()
        assert leaf.grad is not None
        found.append((value.item(), leaf.grad))
    (ours, our_grad), (theirs, their_grad) = found
    gap = ((our_grad - their_grad).abs().max() / their_grad.abs().max()).item()
    # A guard of 1e-5 changes the slope at z = -6 by 0.4 %.
    if abs(ours - theirs) > 2e-3 * abs(theirs) or gap > 5e-3:
        raise SystemExit(
            f"{name}: the value is {ours:.6g}, in the published form {theirs:.6g}; "
            f"gradients differ by up to {gap:.1e} of the largest"
        )


def seconds(step: Step, device: str, clock: Callable[[], float]) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    start = clock()
    step()
    if device == "cuda":
        torch.cuda.synchronize()
    return clock() - start


def times_of(
    pair: tuple[Step, Step], device: str, clock: Any, budget: float, take: str
) -> list[float]:
    """Medians or minima of alternating runs, as many as `budget` seconds allow."""
    once = [seconds(step, device, clock) for step in pair for _ in range(2)]
    most = 40 if take == "median" else 1000
    rounds = int(min(max(budget / (ROUND * max(once[1] + once[3], 1e-6)), 2), most))
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for step, found in zip(pair, times, strict=True):
            # The first step of a round is slower: caches and threads served the other form.
            taken = [seconds(step, device, clock) for _ in range(ROUND)]
            found += taken[1:]
    return [sorted(found)[len(found) // 2 if take == "median" else 0] for found in times]


def peak_bytes(step: Step, device: str) -> float:
    """Most bytes allocated at once during a step, beyond those before it."""
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with tempfile.TemporaryDirectory() as folder, quiet():
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


@contextmanager
def quiet() -> Iterator[None]:
    """Discard standard error, to which the profiler writes its start and stop."""
    sys.stderr.flush()
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


def resident_bytes(step: Step) -> float:
    """Peak of the resident set during a step above its size before, as Linux counts it."""

    def status(key: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(key)) * 1024

    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = status("VmRSS")
    step()
    return status("VmHWM") - before


def table(shape: Shape, options: argparse.Namespace) -> None:
    clock = time.process_time if options.clock == "process" else time.perf_counter
    copy = 4 * shape[0] * shape[1]
    resident = options.resident and options.device == "cpu" and copy >= RESIDENT_FROM
    columns = ["method", "ours, ms", "published, ms", "speed-up", "ours, copies"]
    columns += ["published, copies", "share of memory"]
    columns += ["ours, resident", "published, resident"] if resident else []
    print(f"\n{shape[0]} x {shape[1]} float32 on {options.device}; memory in copies of the logits,")
    print(f"{copy / 2**20:.2f} MiB each.\n")
    print("| " + " | ".join(columns) + " |\n|---|" + "---:|" * (len(columns) - 1))
    for name, case in cases(shape[1]).items():
        if options.methods and name not in options.methods:
            continue
        check(name, cases(CHECKED[1])[name], options.device)
        pair = steps(case, shape, options.device)
        ours, theirs = times_of(pair, options.device, clock, options.seconds, options.take)
        memory = [peak_bytes(step, options.device) for step in pair]
        cells = [name, f"{ours * 1e3:.3f}", f"{theirs * 1e3:.3f}", f"{theirs / ours:.1f}x"]
        cells += [f"{size / copy:.1f}" for size in memory] + [f"{memory[0] / memory[1]:.2f}"]
        cells += [f"{resident_bytes(step) / copy:.1f}" for step in pair] if resident else []
        print("| " + " | ".join(cells) + " |", flush=True)


def parse(text: str) -> Shape:
    rows, columns = text.split("x")
    return int(rows), int(columns)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shapes", nargs="+", default=["256x567", "4096x10000"], metavar="BxK")
    parser.add_argument("--methods", nargs="+", choices=list(cases(8)), metavar="NAME")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clock", default="wall", choices=["wall", "process"])
    parser.add_argument("--take", default="median", choices=["median", "smallest"])
    parser.add_argument("--seconds", type=float, default=4.0, help="a method and shape (4)")
    parser.add_argument("--resident", action="store_true", help="also the resident set (Linux)")
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    name = torch.cuda.get_device_name() if options.device == "cuda" else f"{os.cpu_count()} cores"
    print(f"torch {torch.__version__}, {name}, {options.threads} threads, {options.clock} clock")
    for shape in map(parse, options.shapes):
        table(shape, options)


if __name__ == "__main__":
    start(main, "--shapes 16x80 --methods asl em --seconds 0.01 --threads 1")
