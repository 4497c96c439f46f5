"""With many classes, too, an unknown label does not count as absent in probabilities."""

import numpy as np
import pytest

from halftruth.labels import SparseLabels
from halftruth.train.many_classes.fit_many import fit_many_classes, score_blocks
from halftruth.train.many_classes.level import (
    estimate_labels_per_row,
    fit_level,
    score_held_out,
)

ROWS, CLASSES = 1200, 30


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, 20)).astype(np.float32)
    present = x @ random.normal(size=(20, CLASSES)) / np.sqrt(20) > 1.2
    return x, present, present & (random.random(present.shape) < 0.4)


HELD = np.arange(400)


def fit(x, labels):
    """The head, and its scores of the held-out rows."""
    labels = SparseLabels.from_dense(labels)
    head = fit_many_classes(x, labels, np.arange(400, ROWS), HELD).head
    return head, score_held_out(head, x, labels, HELD), labels


def count_labels(head, x, curves):
    """Labels per row of the held-out rows, by probabilities."""
    blocks = [z.numpy() for _, z in score_blocks(head, x, HELD)]
    return curves(np.concatenate(blocks)).sum(axis=1).mean()


def test_frequent_classes_tell_how_many_labels_are_missing(data):
    x, present, shown = data
    head, held, labels = fit(x, shown.astype(np.int8))
    truth, before, said = present[HELD].sum(axis=1).mean(), shown[HELD].sum(axis=1).mean(), []
    found = estimate_labels_per_row(held)
    assert found.low < truth < found.high
    curves = fit_level(held, labels, None, said.append)
    assert curves.labels_per_row == found
    assert count_labels(head, x, curves) == pytest.approx(found.value, rel=0.01)
    assert abs(count_labels(head, x, curves) - truth) < 0.5 * abs(before - truth)
    assert "are estimated to be present, by the frequent classes" in said[0]


def test_one_label_per_row_tells_nothing(data):
    x, present, _ = data
    first = np.zeros(present.shape, np.int8)
    first[np.arange(ROWS), present.argmax(axis=1)] = 1
    (head, held, labels), said = fit(x, first), []
    curves = fit_level(held, labels, None, said.append)
    assert "labels per row are not estimated, since no row shows more than one" in said[0]
    assert count_labels(head, x, curves) == pytest.approx(1, rel=0.01)
    assert curves.labels_per_row.low == pytest.approx(1)
    assert curves.labels_per_row.high == CLASSES, "labels leave open how many there are"


@pytest.mark.parametrize("known", [None, 9.0])
def test_complete_labels_and_known_levels_stay(data, known):
    x, present, _ = data
    complete = np.where(present, 1, -1).astype(np.int8)
    head, held, labels = fit(x, complete)
    curves, said = fit_level(held, labels, known, print), known or present[HELD].sum(axis=1).mean()
    assert count_labels(head, x, curves) == pytest.approx(said, rel=0.01)


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
    held, labels = np.arange(rows // 10), SparseLabels.from_lists(lists, classes)
    head = fit_many_classes(x, labels, np.arange(len(held), rows), held, seed=seed).head
    scored = score_held_out(head, x, labels, held)
    p = fit_level(scored, labels)(scored.logits)
    assert p.sum(axis=1).mean() == pytest.approx(per_row, rel=0.02)
    # The scores do not rank, so all probabilities are close to the share of present labels.
    assert 0.2 * per_row / classes < np.median(p) < 5 * per_row / classes
