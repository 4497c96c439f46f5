"""Memory and time of methods with per-sample memory, above plain cross-entropy, at any size.

    python benchmarks/memory.py                                            # PASCAL VOC
    python benchmarks/memory.py --samples 1742125 --classes 567 --batch 256 --device cuda
    ... --place host             # per-sample memory in host memory
    ... --places                 # the bare table in both places, instead of methods

One table per run: bytes kept, also as a share of a float32 table (N, K), the usual way to store a
number per label; peak memory (on a GPU), milliseconds per step (loss
and gradient; the smallest of several rounds, taken in turn) and seconds of the work between two
epochs without the pass over the training set. The labels themselves are not counted.
Of the bare table: bytes on the device, rows read and written per second (the best of several
rounds, taken in turn), and whether both places hold the same in the end.
"""

import argparse
import gc
import time
import warnings
from typing import Any

import torch
from torch import Tensor

from common import start
from halftruth import losses
from halftruth.losses.memory import Memory

METHODS: dict[str, dict[str, Any]] = {
    "bce": {},
    "epr": {"expected_positives": 1.5},
    "splc": {"start": 0},
    "lasd": {"expected_positives": 1.5},
    "consistency": {"base": "bce"},
    "ll-r": {},
    "ll-ct": {},
    "em-apl": {"warmup": 1},
    "ll-cp": {"delta": 0.001},
    "en": {"expected_positives": 1.5},
    "smile": {},
    "mime": {"warmup": 1},
    "pseudo-label": {"tau": 0.5},
    "role, light": {"expected_positives": 1.5, "light": True, "rate": 1e-3},
    "role": {"expected_positives": 1.5},
}
TOO_LARGE = 2e9


def start_counting(device: torch.device) -> int:
    """Reset the peak of a GPU; return the bytes in use."""
    gc.collect()
    if device.type != "cuda":
        return 0
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def now(device: torch.device) -> float:
    """The time after all work so far is done."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


class Trial:
    """One method on one training set."""

    def __init__(self, name: str, labels: Tensor, place: str) -> None:
        self.labels, self.device = labels, labels.device
        self.rounds: list[float] = []
        self.between = 0.0
        before = start_counting(self.device)
        self.loss = losses.create(name.split(",")[0], **METHODS[name]).to(self.device)
        self.loss.place_memory(place)
        self.loss.begin(labels)
        self.optimizer = None
        if groups := self.loss.parameter_groups(1e-4):
            self.optimizer = torch.optim.Adam(groups, fused=True)
        self.loss.start_epoch(1, 4)
        self.kept = sum(t.nbytes for t in (*self.loss.buffers(), *self.loss.parameters()))
        self.round(5, 16)
        self.rounds.clear()
        self.end_epoch()
        if self.optimizer is not None:
            self.kept *= 4
        gpu = self.device.type == "cuda"
        self.most = torch.cuda.max_memory_allocated() - before if gpu else None

    def round(self, steps: int, batch: int) -> None:
        """Time some steps over batches without repeated samples."""
        rows = torch.randint(len(self.labels), (steps, batch), device=self.device)
        rows = (rows[:, :1] + torch.arange(batch, device=self.device)) % len(self.labels)
        batches = [(index, self.labels[index]) for index in rows]
        shape = (self.loss.views, batch, self.labels.shape[1])
        shape = shape if self.loss.views > 1 else shape[1:]
        logits = torch.randn(shape, device=self.device, requires_grad=True)
        started = now(self.device)
        for index, labels in batches:
            self.loss(logits, labels, index=index).backward()
            if self.optimizer is not None:
                self.optimizer.step()
                self.optimizer.zero_grad()
        self.rounds.append((now(self.device) - started) / steps * 1e3)

    def end_epoch(self) -> None:
        """Give the scores to methods that need them, then time `end_epoch`."""
        if self.loss.needs_scores:
            for index in torch.arange(len(self.labels), device=self.device).split(4096):
                logits = torch.randn(len(index), self.labels.shape[1], device=self.device)
                self.loss.observe(logits, index)
        started = now(self.device)
        self.loss.end_epoch()
        self.between = now(self.device) - started


class Bare:
    """A table without a method, in one place."""

    def __init__(self, dtype: str, place: str, shape: tuple[int, int], device: torch.device):
        self.device, self.read, self.written = device, 0.0, 0.0
        before = start_counting(device)
        self.memory = Memory(dtype, place=place).to(device)
        self.memory.allocate(*shape)
        used = torch.cuda.memory_allocated() - before if device.type == "cuda" else 0
        self.on_device = used or self.memory.nbytes * (not self.memory.in_host)

    def round(self, batches: list[tuple[Tensor, Tensor]]) -> None:
        """Read, then write, all batches."""
        count = sum(len(index) for index, _ in batches)
        started = now(self.device)
        for index, _ in batches:
            self.memory.read(index)
        self.read = max(self.read, count / (now(self.device) - started))
        started = now(self.device)
        for index, rows in batches:
            self.memory.write(index, rows)
        self.written = max(self.written, count / (now(self.device) - started))


def compare_places(shape: tuple[int, int], batch: int, device: torch.device, rounds: int) -> None:
    """Print the bare table in both places."""
    print("| type | place | on the device | total | rows read/s | rows written/s | same |")
    print("|---|---|---|---|---|---|---|")
    for dtype in ("float16", "bool"):
        tables = {place: Bare(dtype, place, shape, device) for place in ("device", "host")}
        for _ in range(rounds):
            order = torch.randperm(shape[0], device=device)[: 100 * batch].split(batch)
            batches = [(at, torch.rand(len(at), shape[1], device=device) > 0.5) for at in order]
            for table in tables.values():
                table.round(batches)
        same = all(
            torch.equal(*(table.memory.values[rows] for table in tables.values()))
            for rows in tables["host"].memory.row_blocks()
        )
        for place, table in tables.items():
            print(
                f"| {dtype} | {place} | {table.on_device / 1e6:,.1f} MB | "
                f"{table.memory.nbytes / 1e6:,.1f} MB | {table.read:,.0f} | {table.written:,.0f} | "
                f"{same} |"
            )


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=4574)
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--place", choices=["auto", "device", "host"], default="auto")
    parser.add_argument("--places", action="store_true")
    chosen = parser.parse_args(argv)
    # Warnings of a short schedule, and of the size of the tables of role.
    warnings.filterwarnings("ignore", message="em-apl|role|epoch")
    samples, classes = chosen.samples, chosen.classes
    print(f"{samples:,} x {classes}, batch {chosen.batch}, {chosen.device}, ", end="")
    print(f"torch {torch.__version__}\n")
    if chosen.places:
        device = torch.device(chosen.device)
        return compare_places((samples, classes), chosen.batch, device, chosen.rounds)
    labels = torch.zeros(samples, classes, dtype=torch.int8, device=chosen.device)
    rows = torch.arange(samples, device=chosen.device)
    labels[rows, torch.randint(classes, (samples,), device=chosen.device)] = 1
    trials = {
        name: Trial(name, labels, chosen.place)
        for name in dict.fromkeys(["bce", *chosen.methods])
        if name != "role" or 16 * labels.numel() < TOO_LARGE
    }
    for _ in range(chosen.rounds):
        for trial in trials.values():
            trial.round(chosen.steps, chosen.batch)
    print("| method | kept | of float32 | peak | per step | more than bce | between epochs |")
    print("|---|---|---|---|---|---|---|")
    plain = min(trials["bce"].rounds)
    for name, trial in trials.items():
        step = min(trial.rounds)
        most = "" if trial.most is None else f"{trial.most / 1e6:,.1f} MB"
        print(
            f"| {name} | {trial.kept / 1e6:,.2f} MB | {trial.kept / (4 * labels.numel()):.2f} | "
            f"{most} | {step:.2f} ms | "
            f"{step - plain:.2f} ms | {trial.between:.2f} s |"
        )


if __name__ == "__main__":
    size = "--samples 50 --classes 4 --batch 8 --rounds 1"
    start(main, f"{size} --steps 2", f"{size} --places")
