"""A data set of sixty rows, and a grid that runs on it within a second."""

from pathlib import Path

import numpy as np

from halftruth.bench.grid import Grid, make_grid
from halftruth.bench.workers import Answer, Bench, Place
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
    """A pool that runs its tasks in this process, one at a time."""

    def __init__(self, jobs, devices, root, cache):
        self.place = Place(root, cache, "cpu")
        self.bench, self.task, self.done = Bench(self.place), None, []
        self.workers = [self]

    def free(self):
        return [self] if self.task is None else []

    def give(self, task):
        self.task = task

    def answers(self):
        task, self.task = self.task, None
        try:
            return [Answer(task, self.bench.do(task))]
        except TrainingStopped as error:
            return [Answer(task, error=str(error), final=True)]
        except (ValueError, MemoryError) as error:
            return [Answer(task, error=str(error))]

    def stop(self):
        pass
