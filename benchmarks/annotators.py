"""Soft labels from the votes of three simulated annotators, beside the majority vote.

    python benchmarks/annotators.py yeast.npz scene.npz emotions.npz voc.npz --out votes.jsonl

A file holds X_train, Y_train, X_test, Y_test with complete labels. Three annotators label the
training rows: they find a part of the present labels and add wrong ones (`SETTINGS`). `soft`: the
share of the votes (`--duplicates vote --zero absent`). `vote`: present where most of the votes say
so. `any`: present where one of them does. `complete`: without errors. All with default settings;
mAP, CF1 and OF1 on the test rows with complete labels, in percent.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from common import add_task_options, key_of, load_split, read_lines, run_tasks, start
from halftruth.metrics import class_and_overall, count, mean_average_precision
from joined_files import train_and_predict, write_features, write_labels

# Per annotator: the share of present labels that are found, the share of absent ones that are
# called present, and the share of the rows that are labelled.
SETTINGS = {
    "good": ((0.9, 0.8, 0.7), (0.01, 0.02, 0.04), 1.0),
    "poor": ((0.7, 0.6, 0.5), (0.01, 0.02, 0.04), 1.0),
    "mixed": ((0.95, 0.6, 0.5), (0.01, 0.05, 0.1), 1.0),
    "some rows": ((0.7, 0.6, 0.5), (0.01, 0.02, 0.04), 0.7),
}
CASES = ("soft", "vote", "any", "complete")


def draw_votes(y, setting, seed):
    """Return votes (3, N, K), 1 or 0, and which rows each annotator has labelled (3, N)."""
    rng = np.random.default_rng(seed)
    found, wrong, share = SETTINGS[setting]
    chance = [np.where(y > 0, f, w) for f, w in zip(found, wrong, strict=True)]
    votes = np.stack([rng.random(y.shape) < one for one in chance]).astype(int)
    labelled = rng.random((3, len(y))) < share
    # Somebody has labelled each row.
    labelled[0] |= ~labelled.any(axis=0)
    return votes, labelled


def measure(path, setting, seed, case, method):
    """Return a line with the scores of one run."""
    torch.set_num_threads(1)
    started = time.monotonic()
    x, y, test, truth = load_split(path)
    votes, labelled = draw_votes(y, setting, seed)
    every = np.arange(y.shape[1])
    options = {"zero": "absent", "seed": seed, "method": method}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        items, columns = write_features(folder, x)
        labels = folder / "labels.csv"
        if case == "soft":
            parts = []
            for number in range(3):
                write_labels(
                    labels, items[labelled[number]], votes[number][labelled[number]], every
                )
                parts.append(pd.read_csv(labels))
            pd.concat(parts).to_csv(labels, index=False)
            options["duplicates"] = "vote"
        else:
            total, most = (votes * labelled[..., None]).sum(axis=0), labelled.sum(axis=0)[:, None]
            # A tie is no majority.
            hard = {"vote": 2 * total > most, "any": total > 0, "complete": y > 0}[case]
            write_labels(labels, items, hard.astype(int), every)
        scores, decided = train_and_predict(folder, labels, test, columns, **options)
    found = class_and_overall(count(decided.astype(float), truth, 0.5))
    return {
        "set": Path(path).stem, "setting": setting, "seed": seed, "row": f"{case} {method}",
        "mAP": 100 * mean_average_precision(scores, truth), "CF1": 100 * found["CF1"],
        "OF1": 100 * found["OF1"], "seconds": round(time.monotonic() - started),
    }  # fmt: skip


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--method", default="auto")
    add_task_options(parser)
    given = parser.parse_args(argv)
    done = {key_of(line) for line in read_lines(given.out)}
    tasks = [
        (str(path), setting, seed, case, given.method)
        for seed in map(int, given.seeds.split(","))
        for setting in given.settings.split(",")
        for path in given.data
        for case in given.cases.split(",")
        if (path.stem, setting, seed, f"{case} {given.method}") not in done
    ]
    names = ("mAP", "CF1", "OF1")
    run_tasks(measure, tasks, given, lambda line: ", ".join(f"{n} {line[n]:.2f}" for n in names))


if __name__ == "__main__":
    start(main, "DATA/tabular/yeast.npz --settings poor --cases soft,vote --method em --seeds 0")
