"""What a worker does with a task: prepare a data set, or carry out a run."""

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from halftruth.bench.feature_runs import run_on_features
from halftruth.bench.image_runs import label_files, run_on_images
from halftruth.bench.job import Job
from halftruth.bench.run_data import Matrix, describe_source, load_matrix, source_key
from halftruth.bench.workers import Place


@dataclass(frozen=True)
class Prepare:
    """Read a data set once before its runs: what can fail or must be computed once, now."""

    job: Job
    on_features: bool


@dataclass(frozen=True)
class Train:
    job: Job
    on_features: bool


class Bench:
    """Carries out tasks on one device, and keeps the last data sets it used."""

    def __init__(self, place: Place, kept: int = 3) -> None:
        self.place, self.kept = place, kept
        self.matrices: OrderedDict[str, Matrix] = OrderedDict()

    def do(self, task: Prepare | Train) -> Any:
        job, place = task.job, self.place
        if isinstance(task, Prepare):
            if task.on_features:
                self.matrix(job)
            else:
                label_files(job, place.root, place.cache)
            return describe_source(job.source, job.labels, place.root)
        started = time.perf_counter()
        if task.on_features:
            found = run_on_features(job, self.matrix(job))
        else:
            found = run_on_images(job, place.root, place.cache, place.device)
        return {**found, "seconds": round(time.perf_counter() - started, 2)}

    def matrix(self, job: Job) -> Matrix:
        key = source_key(job.source, job.labels, job.label_seed)
        if key not in self.matrices:
            place = self.place
            self.matrices[key] = load_matrix(
                job.source, job.labels, job.label_seed, place.root, place.cache, place.device
            )
        self.matrices.move_to_end(key)
        while len(self.matrices) > self.kept:
            self.matrices.popitem(last=False)
        return self.matrices[key]
