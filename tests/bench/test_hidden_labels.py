"""No method sees a hidden label: inverting all hidden labels changes no weight."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch
from tiny_grid import tiny_grid

from halftruth import losses
from halftruth.bench import run_data as sources
from halftruth.bench.run_data import Place
from halftruth.bench.training import Bench, with_numbers
from halftruth.train.trainer import Trainer

# Long enough for every schedule: pseudo-labels are assigned, corrections start.
GRID = tiny_grid(
    methods={"all": None, "em-apl": {"options": {"warmup": 2}}},
    training={"epochs": 4, "batch_size": 16, "head_lr": 0.05},
)
CELLS = {cell.method: cell for cell in GRID.cells() if cell.labels == "single"}
SETTINGS = ("single", "known-0.5")
WITH_MEMORY = sorted(
    name for name, cell in CELLS.items() if losses.registry.get(cell.loss).needs_index
)


def invert_hidden(read, also_shown: bool = False):
    """The data set with inverted hidden training labels (and optionally one inverted shown row)."""
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
        read, truth=truth, observed=dataclasses.replace(read.observed, stored=shown)
    )


def outcome(cell, labels, root, tmp_path, monkeypatch, change=None):
    """Metrics and final weights of one run, with the data set changed after it was read."""
    weights, run = [], Trainer.run
    original = sources.load_benchmark

    def load(*given):
        read = original(*given)
        return read if change is None else change(read)

    def record_weights(stage):
        done = run(stage)
        weights.extend(value.clone() for value in stage.model.state_dict().values())
        return done

    monkeypatch.setattr(sources, "load_benchmark", load)
    monkeypatch.setattr(Trainer, "run", record_weights)
    job = dataclasses.replace(cell.job(0), labels=labels)
    found = Bench(Place(root, tmp_path, "cpu")).do("run", job)
    monkeypatch.undo()
    del found["seconds"]
    return found, weights


CASES = [(method, "single") for method in sorted(CELLS)]
# With verified absent labels, methods with memory take other code paths.
CASES += [(method, "known-0.5") for method in WITH_MEMORY]


@pytest.mark.parametrize(("method", "labels"), CASES)
def test_hidden_labels_change_nothing(method, labels, root, tmp_path, monkeypatch):
    given = (CELLS[method], labels, root, tmp_path, monkeypatch)
    clean, weights = outcome(*given)
    dirty, same = outcome(*given, change=invert_hidden)
    assert clean == dirty
    assert len(weights) == len(same) > 0
    assert all(torch.equal(a, b) for a, b in zip(weights, same, strict=True))


def test_a_label_that_is_shown_changes_something(root, tmp_path, monkeypatch):
    """The test above can fail."""
    given = (CELLS["bce"], "single", root, tmp_path, monkeypatch)
    _, weights = outcome(*given)
    _, other = outcome(*given, change=lambda read: invert_hidden(read, also_shown=True))
    assert not all(torch.equal(a, b) for a, b in zip(weights, other, strict=True))


def test_only_methods_that_need_images_are_left_out():
    """The files that those methods read are tested below."""
    assert set(losses.names()) - CELLS.keys() == {
        "consistency",
        "em-teacher",
        "lagc",
        "scl",
    }


@pytest.mark.parametrize("labels", SETTINGS)
def test_files_for_training_on_images_hold_no_hidden_label(labels, root, tmp_path):
    """The files of methods that are trained end to end."""
    job = dataclasses.replace(CELLS["em"].job(0), labels=labels)
    read = sources.load_benchmark(job.source, labels, job.label_seed, root)
    files = sources.write_files(read, tmp_path)
    for name in ("labels", "truth"):
        table = pd.read_csv(files[name])
        codes = table[list(read.classes)].to_numpy()[read.splits.train]
        assert (codes == read.observed.values[read.splits.train]).all()
        assert (codes == 0).any()


def test_positives_per_row_are_counted_on_validation_rows(root):
    job = CELLS["epr"].job(0)
    read = sources.load_benchmark(job.source, "single", 1200, root)
    expected = (read.truth[read.splits.val] == 1).sum(axis=1).mean()
    assert (
        sources.prior_of(read) == sources.prior_of(invert_hidden(read)) == pytest.approx(expected)
    )
    assert with_numbers(job.options, 1.25)["expected_positives"] == 1.25
