"""Sparse labels are the same as the dense matrix, row by row and class by class."""

import numpy as np
import pytest
from scipy import sparse

from halftruth.labels import LabelMatrix, SparseLabels, matrix


@pytest.fixture(params=["unknown", "absent"])
def dense(request):
    values = np.random.default_rng(0).integers(-1, 2, (30, 9)).astype(np.int8)
    values[3] = -1 if request.param == "absent" else 0
    return values if request.param == "unknown" else np.where(values == 0, -1, values)


def test_rows_and_classes(dense):
    labels = SparseLabels.from_dense(dense)
    rows = np.array([5, 3, 5])
    assert (labels.to_dense() == dense).all()
    assert (labels.to_dense(rows, slice(2, 6)) == dense[rows, 2:6]).all()
    assert (labels.select(dense[:, 0] > 0).to_dense() == dense[dense[:, 0] > 0]).all()
    assert (labels.select_classes([7, 0]).to_dense() == dense[:, [7, 0]]).all()
    without = labels.select_classes([7, -1]).to_dense()
    assert (without == np.stack([dense[:, 7], np.full(30, labels.rest)], axis=1)).all()


def test_counts(dense):
    labels = SparseLabels.from_dense(dense)
    for code in (1, 0, -1):
        assert (labels.count_per_class(code) == (dense == code).sum(axis=0)).all()
    assert (labels.count_per_row() == (dense == 1).sum(axis=1)).all()


def test_scipy_matrix_with_entries_of_zero_and_repeats():
    matrix = sparse.coo_matrix(([1, -1, 0], ([0, 1, 1], [2, 0, 1])), (2, 3))
    assert SparseLabels.from_scipy(matrix).to_dense().tolist() == [[0, 0, 1], [-1, 0, 0]]
    listed = SparseLabels.from_lists([[1, 1], []], classes=2)
    assert listed.to_dense().tolist() == [[0, 1], [0, 0]]


def test_other_numbers_are_refused():
    with pytest.raises(ValueError, match=r"labels\[0, 1\] is 2.*1 such"):
        SparseLabels.from_scipy(sparse.csr_matrix([[0, 2]]))


def test_a_matrix_is_the_same_with_both_storages(dense, monkeypatch):
    names, items = tuple("abcdefghi"), [f"r{k}" for k in range(30)]
    one = LabelMatrix(dense, names, items=items)
    same = LabelMatrix(SparseLabels.from_dense(dense), names, items=items)
    assert (one.is_sparse, same.is_sparse) == (False, True)
    for ours, theirs in ((one, same), (one.select([4, 2]), same.select([4, 2]))):
        assert ours.describe() == theirs.describe()
        assert ours.shape == theirs.shape
        assert ours.items.tolist() == theirs.items.tolist()
        for method in ("positives_per_class", "positives_per_row", "empty_rows"):
            assert (getattr(ours, method)() == getattr(theirs, method)()).all()
        assert (ours.take([1, 0]) == theirs.take([1, 0])).all()
        assert (ours.values == theirs.values).all()
        assert (ours.sparse.to_dense() == theirs.sparse.to_dense()).all()
    monkeypatch.setattr(matrix, "_MOST_DENSE", 100)
    with pytest.raises(ValueError, match="all 30 rows x 9 classes at once"):
        _ = LabelMatrix(SparseLabels.from_dense(dense), names).values


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": ("a",)}, "1 class names for labels of 2"),
        ({"items": ["a"]}, "one entry for each of 2 rows"),
        ({"weights": np.ones((2, 2))}, "one number per row"),
    ],
)
def test_bad_matrix(options, message):
    given = {"classes": ("a", "b"), **options}
    with pytest.raises(ValueError, match=message):
        LabelMatrix(SparseLabels.from_lists([[0], [1]], 2), **given)
