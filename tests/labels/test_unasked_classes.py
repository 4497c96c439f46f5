"""Classes that nobody was asked about in some rows are found by the labels alone."""

import numpy as np
import pytest

from halftruth.labels import find_unannotated, keep_known, single_positive

TRUTH = np.where(np.random.default_rng(0).random((400, 12)) < 0.2, 1, -1).astype(np.int8)


def join_halves(labels):
    joined = labels.copy()
    joined[:200, 6:] = joined[200:, :6] = 0
    return joined


def test_classes_of_other_sources_are_found():
    found = find_unannotated(join_halves(TRUTH))
    assert (found == (join_halves(TRUTH) == 0)).all()


def test_a_class_without_a_present_label_is_still_a_class_that_was_asked():
    labels = TRUTH.copy()
    labels[:200, 0] = -1
    assert (find_unannotated(join_halves(labels)) == (join_halves(TRUTH) == 0)).all()


def test_a_source_with_verified_labels_beside_rows_that_have_none():
    labels = single_positive(TRUTH, seed=0)
    labels[:200, :6], labels[:200, 6:] = TRUTH[:200, :6], 0
    expected = np.zeros(labels.shape, dtype=bool)
    expected[:200, 6:] = True
    assert (find_unannotated(labels) == expected).all()
    # Rows without any label are no source.
    blank = np.where(np.arange(400)[:, None] < 200, labels, 0)
    assert (find_unannotated(blank) == expected).all()
    # A source verifies each of its classes as absent in some rows, and most labels are absent.
    mostly_present = np.where(np.arange(400)[:, None] % 200 < 150, np.abs(labels), labels)
    labels[:200, 0] = 1
    assert find_unannotated(labels) is None
    assert find_unannotated(mostly_present) is None


def verify_some(labels):
    """Single positive labels, of which a review has verified some others as absent."""
    given, random = single_positive(labels, seed=0), np.random.default_rng(1)
    return np.where((labels == -1) & (random.random(labels.shape) < 0.1), -1, given)


def complete_some_rows(labels):
    given = single_positive(labels, seed=0)
    given[:100] = labels[:100]
    return given


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param(TRUTH, id="complete"),
        pytest.param(single_positive(TRUTH, seed=0), id="one positive per row"),
        pytest.param(keep_known(TRUTH, 0.5, seed=0), id="half of the labels, at random"),
        pytest.param(verify_some(TRUTH), id="verified in a review"),
        pytest.param(complete_some_rows(TRUTH), id="some complete rows"),
        pytest.param(np.where(join_halves(TRUTH) == -1, 0, join_halves(TRUTH)), id="no absent"),
        pytest.param(join_halves(TRUTH)[190:205], id="few rows"),
    ],
)
def test_other_unknown_labels_stay_weak_negatives(labels):
    assert find_unannotated(labels) is None
