"""Seconds to check and hide the labels of 1,000,000 x 80: python benchmarks/hiding.py"""

import argparse
import time
from collections.abc import Callable

import numpy as np

from common import start
from halftruth import labels
from halftruth.labels import hiding

CLASSES, SHARE_PRESENT = 80, 0.036  # COCO's 2.9 present labels per row


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rng = np.random.default_rng(0)
    complete = np.full((parser.parse_args(argv).rows, CLASSES), labels.ABSENT, dtype=np.int8)
    for rows in np.array_split(complete, 20):
        rows[rng.random(rows.shape, dtype=np.float32) < SHARE_PRESENT] = labels.PRESENT
    zero_one = (complete == labels.PRESENT).astype(np.float32)
    frequency = labels.frequency_weights(complete)
    names = [f"class {k}" for k in range(CLASSES)]
    tasks: dict[str, Callable[[], object]] = {
        "check (int8)": lambda: labels.check(complete),
        "check (float32)": lambda: labels.check(zero_one),
        "from_zero_absent (float32)": lambda: labels.from_zero_absent(zero_one),
        "single_positive": lambda: hiding.single_positive(complete),
        "single_positive_published": lambda: hiding.single_positive_published(complete),
        "drop_positives r=0.5": lambda: hiding.drop_positives(complete, 0.5),
        "keep_known 10 %": lambda: hiding.keep_known(complete, 0.1),
        "keep_by_weight": lambda: labels.keep_by_weight(complete, frequency),
        "keep_by_weight 40 %": lambda: labels.keep_by_weight(complete, frequency, 0.4),
        "subsample_negatives 1:0.05": lambda: hiding.subsample_negatives(complete, 0.05),
        "class_filter": lambda: labels.class_filter(complete, names, keep=names[::2]),
        "co_occurrence": lambda: labels.co_occurrence(complete),
    }
    for name, task in tasks.items():
        start = time.perf_counter()
        task()
        print(f"{name:28s} {time.perf_counter() - start:6.2f} s")


if __name__ == "__main__":
    start(main, "--rows 5000")
