"""Whole fits with and without the generated C loops of the losses (HALFTRUTH_NATIVE=1 and 0).

    python benchmarks/native_whole_run.py --repeats 3

Each fit is a process with one thread, in turn with and without; the first of each is a warm-up.
The table has the smallest CPU time (user and system) of `fit`, without imports and data. Batches
below 16,384 entries never use the C loops, so 20 and 80 classes at batch 32 are a control.
"""

import argparse
import os
import subprocess
import sys
import time

CASES = {
    "20 classes, em": (20, {"method": "em", "epochs": 8}),
    "80 classes, em": (80, {"method": "em", "epochs": 8}),
    "80 classes, em, batch 256": (80, {"method": "em", "epochs": 8, "batch_size": 256}),
    "567 classes, em": (567, {"method": "em", "epochs": 8}),
    "567 classes, em, batch 256": (567, {"method": "em", "epochs": 8, "batch_size": 256}),
    "567 classes, swan": (567, {"method": "swan", "epochs": 8}),
    "567 classes, hill": (567, {"method": "hill", "epochs": 8}),
    "20 classes, auto without trials": (20, {"method": "auto", "budget": 0}),
    "80 classes, auto without trials": (80, {"method": "auto", "budget": 0}),
    "567 classes, auto without trials": (567, {"method": "auto", "budget": 0}),
}


def time_fit(case: str, rows: int, features: int) -> float:
    """CPU seconds of one fit in this process."""
    import numpy as np
    import torch

    from halftruth import HalftruthClassifier

    torch.set_num_threads(1)
    classes, settings = CASES[case]
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(rows, features)).astype("float32")
    scores = inputs @ rng.normal(size=(features, classes)).astype("float32") / features**0.5
    labels = ((scores > 1.5) & (rng.random(scores.shape) < 0.5)).astype("int8")
    start = time.process_time()
    HalftruthClassifier(**settings).fit(inputs, labels)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--features", type=int, default=256)
    parser.add_argument("--case", choices=CASES, help="time one fit in this process")
    given = parser.parse_args()
    if given.case:
        print(time_fit(given.case, given.rows, given.features))
        return
    print("| fit | with C loops, s | without, s | slower without |\n|---|---|---|---|", flush=True)
    size = ["--rows", str(given.rows), "--features", str(given.features)]
    for case in CASES:
        times: dict[str, list[float]] = {"1": [], "0": []}
        for turn in range(given.repeats + 1):
            for switch in ("1", "0") if turn % 2 else ("0", "1"):
                env = {**os.environ, "HALFTRUTH_NATIVE": switch, "OMP_NUM_THREADS": "1"}
                command = [sys.executable, __file__, "--case", case, *size]
                done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
                if turn:
                    times[switch].append(float(done.stdout.split()[-1]))
        fast, slow = min(times["1"]), min(times["0"])
        print(f"| {case} | {fast:.2f} | {slow:.2f} | {slow / fast - 1:+.0%} |", flush=True)


if __name__ == "__main__":
    main()
