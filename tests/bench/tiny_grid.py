"""A data set of sixty rows, and a grid that runs on it within a second."""

from pathlib import Path

import numpy as np

from halftruth.bench.grid import Grid, make_grid
from halftruth.bench.processes import Answer
from halftruth.bench.run_data import Place
from halftruth.bench.training import Bench
from halftruth.train import TrainingStopped

CLASSES = ("red", "green", "blue", "grey")


def make_data(folder: Path, rows: int = 60) -> Path:
    """Write toy.npz for the reader `tabular`; labels can be predicted from the features."""
    random = np.random.default_rng(0)
    labels = random.random((rows, len(CLASSES))) < 0.4
    labels[np.arange(rows), random.integers(len(CLASSES), size=rows)] = True
    features = labels @ random.normal(size=(len(CLASSES), 6)) + random.normal(0, 0.5, (rows, 6))
    first_test = 2 * rows // 3
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(
        folder / "toy.npz",
        X_train=features[:first_test].astype(np.float32),
        Y_train=labels[:first_test].astype(np.uint8),
        X_test=features[first_test:].astype(np.float32),
        Y_test=labels[first_test:].astype(np.uint8),
        label_names=np.array(CLASSES),
    )
    return folder


def tiny_grid(**changes) -> Grid:
    values = {
        "data": {"toy": {"reader": "tabular", "dataset": "toy", "root": "."}},
        "methods": ["complete", "bce", "em"],
        "seeds": [0, 1],
        "training": {"epochs": 2, "batch_size": 8, "head_lr": 0.01},
    }
    return make_grid({**values, **changes})


class HereOnly:
    """A pool that runs its jobs in this process, one at a time."""

    def __init__(self, jobs, devices, root, cache):
        self.bench, self.task = Bench(Place(root, cache, "cpu")), None

    @property
    def free(self):
        return [0] if self.task is None else []

    def give(self, what, job):
        self.task = (what, job)

    def answers(self):
        (what, job), self.task = self.task, None
        try:
            return [Answer(job, self.bench.do(what, job))]
        except TrainingStopped as error:
            return [Answer(job, error=str(error), final=True)]
        except (ValueError, MemoryError) as error:
            return [Answer(job, error=str(error))]

    def stop(self):
        pass
