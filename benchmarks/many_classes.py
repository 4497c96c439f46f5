"""Thousands of classes: precision beside what a user would write; time and memory: scaling.py.

    python benchmarks/many_classes.py --rows 20000 --classes 3000 --seeds 0 1 2

Data are simulated: classes belong to topics and have Zipf frequencies, a row has about 9 labels of
two topics, features are noisy sums of class vectors (256), and labels are shown by the propensities
of Jain, Prabhu and Varma (rare classes less often): about 5 per row. P@k is measured on 4,000 rows
with complete labels, PSP@k on the shown ones.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from scipy import sparse
from torch.nn import functional as F

import halftruth
from common import print_header, print_row, start
from halftruth.metrics import precision_at_k, propensities, propensity_scored_precision_at_k

DIM, TEST, KS = 256, 4000, (1, 3, 5)


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


def write_tags(path, shown):
    """Write a label file with a list of class names per row."""
    with path.open("w") as file:
        file.write("id\ttags\n")
        for row, (low, high) in enumerate(zip(shown.indptr, shown.indptr[1:], strict=False)):
            file.write(f"r{row}\t{'|'.join(f'{k:06d}' for k in shown.indices[low:high])}\n")


def train_halftruth(x, shown, test, seed):
    """`halftruth train tags.tsv --features x.npy`; scores of the most probable classes."""
    scores = np.zeros((len(test), shown.shape[1]))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_tags(folder / "tags.tsv", shown)
        np.save(folder / "x.npy", x)
        halftruth.fit(
            folder / "tags.tsv", features=folder / "x.npy", out=folder / "run", seed=seed,
            device="cpu", quiet=True, report=False,
        )  # fmt: skip
        run = halftruth.load(folder / "run", device="cpu")
        table = run.predict(test, top=10)
    for row, (names, shares) in enumerate(zip(table["top"], table["scores"], strict=True)):
        scores[row, list(map(int, names.split("|")))] = list(map(float, shares.split("|")))
    return torch.from_numpy(scores)


def train_plain(x, shown, test, seed, epochs=5, size=256):
    """A plain linear layer on all classes: cross-entropy, unknown is absent, Adam."""
    torch.manual_seed(seed)
    mean, std = x.mean(axis=0), x.std(axis=0)
    inputs, other = (torch.from_numpy((part - mean) / std) for part in (x, test))
    layer = torch.nn.Linear(DIM, shown.shape[1])
    torch.nn.init.zeros_(layer.weight)
    share = np.asarray(shown.mean(axis=0)).ravel()
    layer.bias.data = torch.logit(torch.from_numpy(share).float(), eps=1e-5)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    steps = epochs * (len(x) // size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, steps, pct_start=0.2)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(size)[: len(x) // size]:
            target = torch.from_numpy(shown[rows.numpy()].toarray()).float()
            loss = F.binary_cross_entropy_with_logits(layer(inputs[rows]), target, reduction="sum")
            optimizer.zero_grad()
            (loss / size).backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        return layer(other)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--classes", type=int, default=3_000)
    parser.add_argument("--test", type=int, default=TEST)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args(argv)
    print_header("seed", "model", *(f"P@{k}" for k in KS), *(f"PSP@{k}" for k in KS), "seconds")
    for seed in given.seeds:
        x, shown, complete = simulate(given.rows + given.test, given.classes, seed)
        truth, seen = (torch.from_numpy(m[given.rows :].toarray()) for m in (complete, shown))
        x, test, shown = x[: given.rows], x[given.rows :], shown[: given.rows]
        chance = propensities(np.asarray(shown.sum(axis=0)).ravel(), given.rows)
        for name, train in (("halftruth", train_halftruth), ("linear layer", train_plain)):
            started = time.perf_counter()
            scores = train(x, shown, test, seed)
            seconds = time.perf_counter() - started
            found = [precision_at_k(scores, truth, k) for k in KS]
            found += [propensity_scored_precision_at_k(scores, seen, k, chance) for k in KS]
            print_row(seed, name, *(f"{100 * value:.1f}" for value in found), f"{seconds:.0f}")


if __name__ == "__main__":
    start(main, "--rows 600 --classes 40 --test 100 --seeds 0")
