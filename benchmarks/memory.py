"""Memory and time of methods with per-sample memory, beside plain cross-entropy, at any size.

    python benchmarks/memory.py                                            # PASCAL VOC
    python benchmarks/memory.py --samples 1742125 --classes 567 --batch 256 --device cuda
    ... --place host             # per-sample memory in host memory

Bytes kept between steps, also as a share of a float32 table (N, K), the usual way to store a number
per label; peak memory (on a GPU), milliseconds per step (loss and gradient; the smallest of several
rounds, taken in turn) and seconds of the work between two epochs without the pass over the training
set. The labels themselves are not counted.
"""

import argparse
import gc
import time
import warnings
from typing import Any

import torch
from torch import Tensor

from common import print_header, print_row, start
from halftruth import losses

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


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=4574)
    parser.add_argument("--classes", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--place", choices=["auto", "device", "host"], default="auto")
    chosen = parser.parse_args(argv)
    # Warnings of a short schedule, and of the size of the tables of role.
    warnings.filterwarnings("ignore", message="em-apl|role|epoch")
    samples, classes = chosen.samples, chosen.classes
    print(f"{samples:,} x {classes}, batch {chosen.batch}, {chosen.device}\n")
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
    print_header("method", "kept", "of float32", "peak", "per step", "between epochs")
    for name, trial in trials.items():
        most = "" if trial.most is None else f"{trial.most / 1e6:,.1f} MB"
        share = f"{trial.kept / (4 * labels.numel()):.2f}"
        times = f"{min(trial.rounds):.2f} ms", f"{trial.between:.2f} s"
        print_row(name, f"{trial.kept / 1e6:,.2f} MB", share, most, *times)


if __name__ == "__main__":
    start(main, "--samples 50 --classes 4 --batch 8 --rounds 1 --steps 2")
