"""What methods with a memory cost over plain cross-entropy, at any size of the training set.

    python benchmarks/memory.py                                            # PASCAL VOC
    python benchmarks/memory.py --samples 1742125 --classes 567 --batch 256 --device cuda

One table a run: bytes kept, the most that is in use at any time (on a GPU), milliseconds of a
step (loss and gradient; the smallest of several rounds, taken in turn) and seconds of the work
between two epochs without the pass over the training set. The labels themselves are not counted.
"""

import argparse
import gc
import time
import warnings
from typing import Any

import torch
from torch import Tensor

from halftruth import losses

METHODS: dict[str, dict[str, Any]] = {
    "bce": {},
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


class Trial:
    """One method on one training set."""

    def __init__(self, name: str, labels: Tensor) -> None:
        self.labels, self.device = labels, labels.device
        self.rounds: list[float] = []
        self.between = 0.0
        before = self._start_counting()
        self.loss = losses.create(name.split(",")[0], **METHODS[name]).to(self.device)
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

    def _start_counting(self) -> int:
        gc.collect()
        if self.device.type != "cuda":
            return 0
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def round(self, steps: int, batch: int) -> None:
        """Some steps over batches that hold no sample twice."""
        rows = torch.randint(len(self.labels), (steps, batch), device=self.device)
        rows = (rows[:, :1] + torch.arange(batch, device=self.device)) % len(self.labels)
        batches = [(index, self.labels[index]) for index in rows]
        logits = torch.randn(batch, self.labels.shape[1], device=self.device, requires_grad=True)
        started = self._now()
        for index, labels in batches:
            self.loss(logits, labels, index=index).backward()
            if self.optimizer is not None:
                self.optimizer.step()
                self.optimizer.zero_grad()
        self.rounds.append((self._now() - started) / steps * 1e3)

    def end_epoch(self) -> None:
        """Scores in pieces where they are asked for, then the work that is timed."""
        if self.loss.needs_scores:
            for index in torch.arange(len(self.labels), device=self.device).split(4096):
                logits = torch.randn(len(index), self.labels.shape[1], device=self.device)
                self.loss.observe(logits, index)
        started = self._now()
        self.loss.end_epoch()
        self.between = self._now() - started


def main() -> None:
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
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    samples, classes = chosen.samples, chosen.classes
    labels = torch.zeros(samples, classes, dtype=torch.int8, device=chosen.device)
    rows = torch.arange(samples, device=chosen.device)
    labels[rows, torch.randint(classes, (samples,), device=chosen.device)] = 1
    trials = {
        name: Trial(name, labels)
        for name in dict.fromkeys(["bce", *chosen.methods])
        if name != "role" or 16 * labels.numel() < TOO_LARGE
    }
    for _ in range(chosen.rounds):
        for trial in trials.values():
            trial.round(chosen.steps, chosen.batch)
    print(
        f"{samples:,} x {classes}, batch {chosen.batch}, {chosen.device}, torch {torch.__version__}"
    )
    print("| method | kept | at most | a step | more than bce | between epochs |")
    print("|---|---|---|---|---|---|")
    plain = min(trials["bce"].rounds)
    for name, trial in trials.items():
        step = min(trial.rounds)
        most = "" if trial.most is None else f"{trial.most / 1e6:,.1f} MB"
        print(
            f"| {name} | {trial.kept / 1e6:,.2f} MB | {most} | {step:.2f} ms | "
            f"{step - plain:.2f} ms | {trial.between:.2f} s |"
        )


if __name__ == "__main__":
    main()
