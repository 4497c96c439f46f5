"""No method sees a hidden label: turned into their opposite, they change no weight."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch
from tiny_grid import tiny_grid

from halftruth import losses
from halftruth.bench import run_data as sources
from halftruth.bench import runs as run_module
from halftruth.bench.runs import with_numbers
from halftruth.bench.workers import Bench, Place, Train
from halftruth.train.trainer import Stage

# Long enough for every schedule: pseudo-labels are given, corrections begin.
GRID = tiny_grid(
    methods={"all": None, "em-apl": {"options": {"warmup": 2}}},
    training={"epochs": 4, "batch_size": 16, "head_lr": 0.05},
)
CELLS = {cell.method: cell for cell in GRID.cells() if cell.labels == "single"}
SETTINGS = ("single", "known-0.5")
REMEMBERING = sorted(
    name for name, cell in CELLS.items() if losses.registry.get(cell.loss).needs_index
)


def poisoned(read, also_shown: bool = False):
    """The data set with its hidden training labels turned over (and a shown row, if asked)."""
    truth, shown = read.truth.copy(), read.observed.values.copy()
    train = np.zeros(len(truth), bool)
    train[read.splits.train] = True
    hidden = train[:, None] & (shown == 0)
    assert hidden.any()
    truth[hidden] *= -1
    if also_shown:
        row = read.splits.train[0]
        shown[row] = -shown[row]
    return dataclasses.replace(
        read, truth=truth, observed=dataclasses.replace(read.observed, values=shown)
    )


def outcome(cell, labels, root, tmp_path, monkeypatch, change=None):
    """Metrics and final weights of one run, with the data set changed after it was read."""
    weights, run = [], Stage.run
    original = sources.load_benchmark

    def load(*given):
        read = original(*given)
        return read if change is None else change(read)

    def noted(stage):
        done = run(stage)
        weights.extend(value.clone() for value in stage.model.state_dict().values())
        return done

    monkeypatch.setattr(sources, "load_benchmark", load)
    monkeypatch.setattr(Stage, "run", noted)
    job = dataclasses.replace(cell.job(0), labels=labels)
    found = Bench(Place(root, tmp_path, "cpu")).do(Train(job, True))
    monkeypatch.undo()
    del found["seconds"]
    return found, weights


CASES = [(method, "single") for method in sorted(CELLS)]
# Where some labels are known to be absent, those that remember samples take other ways.
CASES += [(method, "known-0.5") for method in REMEMBERING]


@pytest.mark.parametrize(("method", "labels"), CASES)
def test_hidden_labels_change_nothing(method, labels, root, tmp_path, monkeypatch):
    given = (CELLS[method], labels, root, tmp_path, monkeypatch)
    clean, weights = outcome(*given)
    dirty, same = outcome(*given, change=poisoned)
    assert clean == dirty
    assert len(weights) == len(same) > 0
    assert all(torch.equal(a, b) for a, b in zip(weights, same, strict=True))


def test_a_label_that_is_shown_changes_something(root, tmp_path, monkeypatch):
    """The test above would notice."""
    given = (CELLS["bce"], "single", root, tmp_path, monkeypatch)
    _, weights = outcome(*given)
    _, other = outcome(*given, change=lambda read: poisoned(read, also_shown=True))
    assert not all(torch.equal(a, b) for a, b in zip(weights, other, strict=True))


def test_only_methods_that_need_images_are_left_out():
    """What they can read is tested below."""
    assert set(losses.names()) - CELLS.keys() == {"consistency", "scl"}


@pytest.mark.parametrize("labels", SETTINGS)
def test_files_for_training_on_images_hold_no_hidden_label(labels, root, tmp_path):
    """What `consistency`, and any method trained end to end, could read."""
    job = dataclasses.replace(CELLS["em"].job(0), labels=labels)
    files = run_module.label_files(job, root, tmp_path)
    read = sources.load_benchmark(job.source, labels, job.label_seed, root)
    for name in ("observed", "truth"):
        table = pd.read_csv(files[name])
        codes = table[list(read.classes)].to_numpy()[read.splits.train]
        assert (codes == read.observed.values[read.splits.train]).all()
        assert (codes == 0).any()


def test_positives_a_row_are_counted_on_validation(root):
    job = CELLS["epr"].job(0)
    read = sources.load_benchmark(job.source, "single", 1200, root)
    expected = (read.truth[read.splits.val] == 1).sum(axis=1).mean()
    assert sources.prior_of(read) == sources.prior_of(poisoned(read)) == pytest.approx(expected)
    assert with_numbers(job.options, 1.25)["expected_positives"] == 1.25
