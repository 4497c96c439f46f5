"""The generated kernels on a GPU: against the definition, the published code style and the floor.

    python benchmarks/kernels.py [--out results.json]

The floor is a kernel that reads logits and int8 labels once and writes one float32 per entry: no
loss with a gradient can move fewer bytes. Times are medians of CUDA events; ours and theirs take
many short turns, and "times faster" is the median over the turns, so that other load on the
machine affects both. Inputs rotate among several sets, so that they are not in the cache.
"device" is the same step replayed as a CUDA graph, "Python" the CPU time of a step without
waiting: a step takes the longer of the two. "value_and_grad" returns the same two tensors without
autograd, as in the training loop. Memory is the allocator's
peak above the inputs, in copies of the logits. Every kernel is first compared with its definition,
in values and gradients, apart from entries that rounding may put on the other side of a threshold.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from common import start
from halftruth import losses
from halftruth.losses._engine.one_pass import walk
from losses import EPOCH, EPOCHS, cases, parse

# Alternating turns of our form and the published one.
TURNS = 30
COLUMNS = {
    "method": "method", "ms": "step, ms", "graph ms": "device, ms", "Python ms": "Python, ms",
    "floors": "floors", "published ms": "published, ms", "times faster": "times faster",
    "direct ms": "value_and_grad, ms", "direct faster": "value_and_grad, times faster",
    "copies": "copies", "published copies": "published copies", "gradient error": "gradient error",
}  # fmt: skip


@triton.jit
def floor_kernel(z_at, y_at, out_at, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    z = tl.load(z_at + at, mask=mask, other=0)
    y = tl.load(y_at + at, mask=mask, other=0)
    tl.store(out_at + at, z * y.to(tl.float32), mask=mask)


def sampled_ms(step: Callable[[int], None], count: int) -> list[float]:
    """Milliseconds of some steps."""
    times = []
    for i in range(count):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        step(i)
        end.record()
        times.append((start, end))
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in times]


def turns_ms(*steps: Callable[[int], None], budget_ms: float = 300) -> list[list[float]]:
    """The medians of each turn of some steps; the first steps of all are not counted."""
    counts = []
    for step in steps:
        sampled_ms(step, 5)
        expected = statistics.median(sampled_ms(step, 5))
        counts.append(max(int(budget_ms / TURNS / expected), 4))
    turns = [[sampled_ms(*pair) for pair in zip(steps, counts, strict=True)] for _ in range(TURNS)]
    return [[statistics.median(turn[i]) for turn in turns] for i in range(len(steps))]


def python_ms(step: Callable[[int], None], steps: int = 50) -> float:
    """CPU time of a step; so few steps that the queue of the device never fills up."""
    found = []
    for _ in range(10):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for i in range(steps):
            step(i)
        found.append((time.perf_counter() - started) / steps * 1e3)
    torch.cuda.synchronize()
    return statistics.median(found)


def graph_ms(steps: list[Callable[[], Any]]) -> float:
    """Median time of a step as a CUDA graph, one graph per set of inputs."""
    graphs = []
    for step in steps:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        graphs.append(graph)
    return statistics.median(turns_ms(lambda i: graphs[i % len(graphs)].replay())[0])


def peak_copies(step: Callable[[int], None], entries: int) -> float:
    """Peak memory above the inputs, in float32 copies of the logits."""
    step(0)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step(0)
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / (4 * entries)


def compare(loss: losses.Loss, z: Tensor, y: Tensor) -> float:
    """The largest difference of a gradient between kernel and definition, of the sum."""
    z = z.detach().clone().requires_grad_()
    value = loss(z, y)
    value.backward()
    scale = loss._scale(y)[0]
    total, slopes = walk(loss, z.detach(), y, loss.prepare(z.detach(), y, None), "all", True)
    assert z.grad is not None
    assert slopes is not None
    torch.testing.assert_close(value.double(), total * scale, rtol=1e-5, atol=1e-7)
    p = torch.sigmoid(z.detach())
    clear = ((p - 0.6).abs() > 1e-6) & ((p - 0.9).abs() > 1e-6)
    return float(((z.grad / scale - slopes) * clear).abs().max())


def measure(shape: tuple[int, int]) -> list[dict[str, Any]]:
    rows, columns = shape
    entries = rows * columns
    sets = 4 if entries > 1e6 else 1
    draw = torch.Generator("cuda").manual_seed(0)
    zs = [torch.randn(shape, generator=draw, device="cuda") * 2 - 3 for _ in range(sets)]
    ys = [(torch.rand(shape, generator=draw, device="cuda") < 0.03).to(torch.int8) for _ in zs]
    targets = [y.float() for y in ys]
    out = torch.empty_like(zs[0])

    def floor(i: int) -> None:
        grid = (triton.cdiv(entries, 2048),)
        floor_kernel[grid](zs[i % sets], ys[i % sets], out, entries, BLOCK=2048)

    floor_ms = graph_ms([partial(floor, i) for i in range(sets)])
    found: list[dict[str, Any]] = [{"method": "floor", "graph ms": floor_ms}]
    print(f"\n{rows} x {columns}:\n\n| " + " | ".join(COLUMNS.values()) + " |")
    print("|---|" + "---:|" * (len(COLUMNS) - 1))
    show(found[0])
    for name, case in cases(columns).items():
        loss = losses.create(case.name, **case.options)
        loss.start_epoch(EPOCH, EPOCHS)
        error = compare(loss, zs[0], ys[0])

        def backward(function: Any, labels: list[Tensor], i: int) -> None:
            z = zs[i % sets].detach().requires_grad_()
            function(z, labels[i % sets]).backward()

        def ours(i: int, loss: Any = loss) -> None:
            backward(loss, ys, i)

        def direct(i: int, loss: Any = loss) -> None:
            loss.value_and_grad(zs[i % sets], ys[i % sets])

        def peer(i: int, case: Any = case) -> None:
            backward(case.peer, targets, i)

        row = {"method": name, "gradient error": error, "Python ms": python_ms(ours)}
        own, plain, others = turns_ms(ours, direct, peer)
        row["published ms"] = statistics.median(others)
        for key, faster, taken in (
            ("ms", "times faster", own),
            ("direct ms", "direct faster", plain),
        ):
            row[key] = statistics.median(taken)
            row[faster] = statistics.median(b / a for a, b in zip(taken, others, strict=True))
        row["graph ms"] = graph_ms([partial(ours, i) for i in range(sets)])
        row["floors"] = row["graph ms"] / floor_ms
        if entries > 1e6:
            row["copies"] = peak_copies(ours, entries)
            row["published copies"] = peak_copies(peer, entries)
        found.append(row)
        show(row)
    return [{"shape": f"{rows}x{columns}", **row} for row in found]


def show(row: dict[str, Any]) -> None:
    """One line of the table."""
    cells = [row.get(key, "") for key in COLUMNS]
    shown = [f"{cell:.3g}" if isinstance(cell, float) else cell for cell in cells]
    print("| " + " | ".join(shown) + " |", flush=True)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", default=["4096x10000", "16x80", "256x567"])
    parser.add_argument("--out", help="JSON file for the results")
    options = parser.parse_args(argv)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Triton {triton.__version__}")
    results = [row for shape in map(parse, options.shapes) for row in measure(shape)]
    if options.out:
        with open(options.out, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    start(main, "--shapes 16x80")
