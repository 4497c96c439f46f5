"""With many classes, too, an unknown label does not count as absent in probabilities."""

import numpy as np
import pytest

from halftruth.labels import SparseLabels
from halftruth.train.many_classes.fit_many import fit_many_classes
from halftruth.train.many_classes.missing_labels import (
    estimate_labels_per_row,
    score_blocks,
    set_labels_per_row,
)

ROWS, CLASSES = 1200, 30


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, 20)).astype(np.float32)
    present = x @ random.normal(size=(20, CLASSES)) / np.sqrt(20) > 1.2
    return x, present, present & (random.random(present.shape) < 0.4)


def fit(x, labels):
    rows = np.arange(ROWS)
    return fit_many_classes(x, SparseLabels.from_dense(labels), rows[400:], rows[:400]).head


def count_labels(head, x):
    return np.mean([p.sum(dim=1).mean() for _, p in score_blocks(head, x, np.arange(400))])


def test_frequent_classes_tell_how_many_labels_are_missing(data):
    x, present, shown = data
    labels, head, said = SparseLabels.from_dense(shown.astype(np.int8)), None, []
    head = fit(x, shown.astype(np.int8))
    truth, before = present[:400].sum(axis=1).mean(), count_labels(head, x)
    found = estimate_labels_per_row(head, x, labels, np.arange(400))
    assert found.low < truth < found.high
    set_labels_per_row(head, x, labels, np.arange(400), None, said.append)
    assert abs(count_labels(head, x) - truth) < 0.5 * abs(before - truth)
    assert "are estimated to be present, by the frequent classes" in said[0]


def test_one_label_per_row_tells_nothing(data):
    x, present, _ = data
    first = np.zeros(present.shape, np.int8)
    first[np.arange(ROWS), present.argmax(axis=1)] = 1
    head, said = fit(x, first), []
    before = count_labels(head, x)
    set_labels_per_row(head, x, SparseLabels.from_dense(first), np.arange(400), None, said.append)
    assert "labels per row are not estimated, since no row shows more than one" in said[0]
    assert count_labels(head, x) == pytest.approx(before)


def test_complete_labels_stay(data):
    x, present, _ = data
    complete = np.where(present, 1, -1).astype(np.int8)
    head = fit(x, complete)
    labels = SparseLabels.from_dense(complete)
    before = count_labels(head, x)
    set_labels_per_row(head, x, labels, np.arange(400), None, print)
    assert count_labels(head, x) == pytest.approx(before)


@pytest.mark.parametrize(
    ("rows", "classes", "per_row", "dim"),
    [(200, 2614, 31, 4), (400, 1500, 30, 20), (200, 2614, 3, 4)],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_probabilities_of_noise_add_up_to_the_labels_that_are_shown(
    rows, classes, per_row, dim, seed
):
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, dim)).astype(np.float32)
    lists = [random.choice(classes, per_row, replace=False) for _ in range(rows)]
    held = np.arange(rows // 10)
    labels = SparseLabels.from_lists(lists, classes)
    head = fit_many_classes(x, labels, np.arange(len(held), rows), held, seed=seed).head
    p = np.concatenate([block.numpy() for _, block in score_blocks(head, x, held)])
    assert p.sum(axis=1).mean() == pytest.approx(per_row, rel=0.02)
    # The scores do not rank, so all probabilities are close to the share of present labels.
    assert 0.2 * per_row / classes < np.median(p) < 5 * per_row / classes
