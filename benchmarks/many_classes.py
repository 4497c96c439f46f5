"""Thousands of classes: memory and rows per second, and precision beside simple baselines.

    python benchmarks/many_classes.py sizes                  # 1x, 4x, 16x rows and classes
    python benchmarks/many_classes.py sizes --only 200000x30000
    python benchmarks/many_classes.py growth                 # CPU time of one epoch, one thread
    python benchmarks/many_classes.py quality                # beside what a user would write

Data are simulated: classes belong to topics and have Zipf frequencies, a row has about 9 labels of
two topics, features are noisy sums of class vectors (256), and labels are shown by the propensities
of Jain, Prabhu and Varma (rare classes less often): about 5 per row. `sizes` runs `halftruth train`
on files, in a process of its own each, with two threads. `quality` measures on 4,000 rows with
complete labels.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from scipy import sparse
from torch.nn import functional as F

from common import start
from halftruth.labels import SparseLabels
from halftruth.metrics import precision_at_k, propensities, propensity_scored_precision_at_k
from halftruth.train.many_classes import fit_many
from halftruth.train.many_classes.fit_many import fit_many_classes

DIM = 256
# Rows at 30,000 classes, and classes at 50,000 rows.
SIZES = [(200_000, 30_000), (12_500, 30_000), (50_000, 30_000), (50_000, 6_250), (50_000, 100_000)]


def simulate(rows, classes, seed=0, drawn=13):
    """Features (rows, 256), shown labels and complete labels as CSR matrices."""
    rng = np.random.default_rng(seed)
    topics = max(classes // 50, 4)
    topic = rng.integers(0, topics, classes)
    frequency = 1 / (1 + rng.permutation(classes)) ** 0.8
    order = np.argsort(topic, kind="stable")
    start = np.searchsorted(topic[order], np.arange(topics + 1))
    total = np.concatenate([[0], np.cumsum(frequency[order])])
    mass = total[start[1:]] - total[start[:-1]]
    both = rng.choice(topics, size=(rows, 2), p=mass / mass.sum())
    pick = both[np.arange(rows)[:, None], rng.integers(0, 2, (rows, drawn))]
    low, high = total[start[pick]], total[start[pick + 1]]
    at = np.searchsorted(total[1:], low + (high - low) * rng.random((rows, drawn)) * 0.999999)
    label = order[np.minimum(at, classes - 1)]
    where = np.repeat(np.arange(rows), drawn), label.ravel()
    complete = sparse.csr_matrix((np.ones(rows * drawn, np.int8), where), (rows, classes))
    complete.data[:] = 1
    vectors = rng.normal(size=(topics, DIM))[topic] + rng.normal(size=(classes, DIM))
    x = (complete.astype(np.float32) @ vectors.astype(np.float32)) / np.sqrt(5)
    x += x.std() * rng.normal(size=x.shape).astype(np.float32)
    x = np.tanh(x / x.std()).astype(np.float32)
    chance = propensities(np.asarray(complete.sum(axis=0)).ravel(), rows)
    shown = complete.copy()
    shown.data = (rng.random(complete.nnz) < np.maximum(chance[complete.indices], 0.5)).astype("i1")
    shown.eliminate_zeros()
    return x, shown, complete


# ---------------------------------------------------------------------- sizes


def write_files(folder, rows, classes):
    x, shown, _ = simulate(rows, classes)
    np.save(folder / "features.npy", x)
    with (folder / "tags.csv").open("w") as file:
        file.write("id,tags\n")
        for row in range(rows):
            some = shown.indices[shown.indptr[row] : shown.indptr[row + 1]]
            file.write(f"r{row},{'|'.join(f'tag{k:06d}' for k in some)}\n")
    return shown.nnz / rows


def measure_sizes(only, out):
    print("rows x classes, labels per row, seconds, peak GB, then what the run said", flush=True)
    asked = [tuple(map(int, text.split("x"))) for text in only or ()]
    for rows, classes in asked or SIZES:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            per_row = write_files(folder, rows, classes)
            command = [
                sys.executable, "-m", "halftruth", "train", str(folder / "tags.csv"), "--features",
                str(folder / "features.npy"), "--out", str(folder / "run"),
            ]  # fmt: skip
            child = (
                "import resource, subprocess, sys; done = subprocess.run(sys.argv[1:]).returncode; "
                "used = resource.getrusage(resource.RUSAGE_CHILDREN); "
                "print('PEAK', used.ru_maxrss, round(used.ru_utime + used.ru_stime)); "
                "sys.exit(done)"
            )
            started = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", child, *command], capture_output=True, text=True,
                check=False, env={**os.environ, "OMP_NUM_THREADS": "2"},
            )  # fmt: skip
            seconds = time.perf_counter() - started
            if done.returncode:
                print(done.stdout, done.stderr, sep="\n")
                sys.exit(1)
            lines = [*done.stderr.splitlines(), *done.stdout.splitlines()]
            peak, cpu = next(line.split()[1:] for line in lines if line.startswith("PEAK"))
            print(
                f"{rows:,} x {classes:,}: {per_row:.1f}, {seconds:.0f} s ({cpu} s of CPU), "
                f"{int(peak) / 1e6:.1f} GB"
            )
            said = [
                line for line in lines if line.startswith(("many classes", "validation", "memory"))
            ]
            print(*("    " + line for line in said), sep="\n", flush=True)
            if out:
                found = {"rows": rows, "classes": classes, "labels": per_row, "seconds": seconds,
                         "cpu": int(cpu), "GB": int(peak) / 1e6, "said": said}  # fmt: skip
                with out.open("a") as file:
                    file.write(json.dumps(found) + "\n")


def measure_growth(only):
    """CPU time of one epoch of the linear layer at 1x, 4x and 16x rows and classes, one thread."""
    torch.set_num_threads(1)
    print("rows x classes: CPU seconds per epoch, rows per CPU second", flush=True)
    sizes = [(4_000, 16_000), (16_000, 16_000), (64_000, 16_000)]
    asked = [tuple(map(int, text.split("x"))) for text in only or ()]
    for rows, classes in asked or [*sizes, (16_000, 4_000), (16_000, 64_000)]:
        x, shown, _ = simulate(rows, classes)
        labels, train = SparseLabels.from_scipy(shown), np.arange(rows)
        prepare = fit_many._fit_preparation(x, train, 0, None)
        started = time.process_time()
        with patch.multiple(fit_many, _LEAST_EPOCHS=1, _MOST_EPOCHS=1):
            fit_many.fit_sampled_linear(x, labels, train, prepare, 0)
        seconds = time.process_time() - started
        print(f"{rows:,} x {classes:,}: {seconds:.1f} s, {rows / seconds:,.0f}", flush=True)


# ---------------------------------------------------------------------- quality


def train_bce(x, shown, classes, epochs=5, size=256):
    """A plain linear layer on all classes: cross-entropy, unknown is absent, Adam."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(DIM, classes)
    share = np.asarray(shown.mean(axis=0)).ravel()
    torch.nn.init.zeros_(layer.weight)
    layer.bias.data = torch.logit(torch.from_numpy(share).float(), eps=1e-5)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    steps = epochs * (len(x) // size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, steps, pct_start=0.2)
    rng = np.random.default_rng(0)
    for _ in range(epochs):
        order = rng.permutation(len(x))
        for at in range(0, len(x) - size + 1, size):
            rows = order[at : at + size]
            target = torch.from_numpy(shown[rows].toarray()).float()
            loss = F.binary_cross_entropy_with_logits(layer(x[rows]), target, reduction="sum")
            optimizer.zero_grad()
            (loss / size).backward()
            optimizer.step()
            schedule.step()
    return layer


def measure_quality(rows, classes, seeds, out):
    print(f"{rows:,} x {classes:,}: P@1, 3, 5 on complete labels; PSP@1, 3, 5 on shown ones")
    for seed in seeds:
        x, shown, complete = simulate(rows + 5_000, classes, seed)
        mean, std = x[:rows].mean(axis=0), x[:rows].std(axis=0)
        scaled = torch.from_numpy((x - mean) / std)
        test = np.arange(rows + 1_000, rows + 5_000)
        truth, seen = (torch.from_numpy(m[test].toarray()) for m in (complete, shown))
        chance = propensities(np.asarray(shown[:rows].sum(axis=0)).ravel(), rows)

        def report(name, scores, seconds, seed=seed, truth=truth, seen=seen, chance=chance):
            found = [100 * precision_at_k(scores, truth, k) for k in (1, 3, 5)]
            found += [
                100 * propensity_scored_precision_at_k(scores, seen, k, chance) for k in (1, 3, 5)
            ]
            shown_values = " ".join(f"{value:.1f}" for value in found)
            print(f"  seed {seed} {name:<28} {shown_values}  {seconds:.0f} s", flush=True)
            if out:
                line = {"rows": rows, "classes": classes, "seed": seed, "name": name,
                        "found": found, "seconds": seconds}  # fmt: skip
                with out.open("a") as file:
                    file.write(json.dumps(line) + "\n")

        started = time.perf_counter()
        near = F.normalize(scaled[:rows])
        blocks = []
        for some in F.normalize(scaled[test]).split(1024):
            nearest, index = (some @ near.T).topk(40, dim=1)
            where = np.repeat(np.arange(len(some)), 40), index.numpy().ravel()
            votes = sparse.csr_matrix((nearest.numpy().ravel(), where), (len(some), rows))
            blocks.append(torch.from_numpy((votes @ shown[:rows].astype(np.float32)).toarray()))
        report("labels of 40 nearest rows", torch.cat(blocks), time.perf_counter() - started)
        started = time.perf_counter()
        layer = train_bce(scaled[:rows], shown[:rows], classes)
        seconds = time.perf_counter() - started
        with torch.no_grad():
            report("linear layer, all classes", layer(scaled[test]), seconds)
        started = time.perf_counter()
        labels = SparseLabels.from_scipy(shown)
        held = np.arange(rows, rows + 1_000)
        fitted = fit_many_classes(x, labels, np.arange(rows), held, seed=seed)
        seconds = time.perf_counter() - started
        report("halftruth, many classes", fitted.model(torch.from_numpy(x[test])), seconds)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["sizes", "growth", "quality"])
    parser.add_argument("--only", action="append", help="rows x classes, such as 200000x30000")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--classes", type=int, default=3_000)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--out", type=Path, help="append each result to this .jsonl file")
    given = parser.parse_args(argv)
    if given.what == "sizes":
        measure_sizes(given.only, given.out)
    elif given.what == "growth":
        measure_growth(given.only)
    else:
        seeds = [int(seed) for seed in given.seeds.split(",")]
        measure_quality(given.rows, given.classes, seeds, given.out)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"peak of this process: {peak:.1f} GB")


if __name__ == "__main__":
    start(main, "growth --only 200x100", "quality --rows 1100 --classes 40 --seeds 0")
