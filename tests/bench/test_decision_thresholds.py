"""Thresholds of predictions in a grid: fitted, fixed, by the offset of ROLE, and per method."""

import numpy as np
import pytest
from tiny_grid import tiny_grid

from halftruth.bench.run_data import BenchRows
from halftruth.bench.training import Trained, choose_threshold, score_cell
from halftruth.data import Splits
from halftruth.train.config import ConfigError

SCORES = np.array([[0.3, 0.9], [0.5, 0.4], [0.35, 0.8]])
TRUTH = np.array([[-1, 1], [1, -1], [-1, 1]])


def test_the_offset_is_half_way_from_the_lowest_prediction_to_one():
    """Zhang et al. 2021, appendix B: (1 + p_l)/2, since ROLE's predictions do not start at 0."""
    assert choose_threshold("offset", SCORES, TRUTH) == pytest.approx(0.65)
    assert choose_threshold(0.75, SCORES, TRUTH) == 0.75
    assert choose_threshold("fit", SCORES, TRUTH).shape == (2,)


def test_a_method_may_have_its_own_threshold():
    """Paper 001, Table 7: 0.5 for cross-entropy and 0.75 for EM in one table."""
    grid = tiny_grid(methods={"bce": None, "em": {"threshold": 0.75}}, threshold=0.5)
    assert {cell.method: cell.threshold for cell in grid.cells()} == {"bce": 0.5, "em": 0.75}


@pytest.mark.parametrize("wrong", [1.5, "best", None])
def test_wrong_thresholds_are_refused(wrong):
    with pytest.raises(ConfigError, match=r'methods: em: threshold: expected "fit"'):
        tiny_grid(methods={"em": {"threshold": wrong}})


def test_without_a_test_part_results_are_those_of_the_validation_part():
    """As for Sewer-ML, whose test labels are not public."""
    labels = np.array([[1, -1], [-1, 1], [1, -1], [-1, 1]], dtype=np.int8)
    splits = Splits(np.arange(2), np.arange(2, 4), np.arange(0))
    job = next(iter(tiny_grid(threshold=0.5).cells())).job(0)
    scores = np.random.default_rng(0).random((4, 2))
    found = score_cell(job, Trained({}, lambda rows: scores[rows]), BenchRows(labels, splits, 1.0))
    assert found["test"] == found["val"]
    assert 0 <= found["test"]["mAP"] <= 1
