"""Rows labelled completely tell what is present, and nothing of how other rows were labelled."""

import numpy as np
import pytest

from halftruth.labels import single_positive
from halftruth.presence.estimated_scores import infer_range
from halftruth.presence.labelling_model import choose_selection, fit_presence
from halftruth.presence.probabilities import fit_probabilities


@pytest.fixture
def example():
    random = np.random.default_rng(2)
    score = random.normal(size=(3000, 6))
    p = 1 / (1 + np.exp(-(2.5 * score - 1.0)))
    truth = np.where(random.random(p.shape) < p, 1, -1).astype(np.int8)
    truth = np.where((truth == 1).any(axis=1, keepdims=True), truth, np.sign(p - 0.01))
    return truth.astype(np.int8), p


def test_complete_rows_do_not_hide_that_the_others_show_one_label(example):
    truth, _ = example
    shown = single_positive(truth)
    assert choose_selection(shown) == "single_positive"
    shown[:40] = truth[:40]
    assert choose_selection(shown) == "single_positive"
    assert choose_selection(truth) == "missing_at_random"


def test_complete_rows_do_not_count_in_the_share_of_labels_that_are_shown(example):
    truth, p = example
    random = np.random.default_rng(0)
    shown = np.where((truth == 1) & (random.random(p.shape) < 0.4), 1, 0).astype(np.int8)
    mixed = shown.copy()
    mixed[:1500] = truth[:1500]
    found = fit_presence(mixed, p, selection="missing_at_random")
    # Counting the complete rows, the share would be about 0.7, and some negatives would be shown.
    assert np.abs(found.label_frequency - 0.4).max() < 0.06
    assert np.max(found.absent_frequency) == 0


def test_complete_rows_narrow_the_number_of_present_labels(example):
    truth, p = example
    shown = single_positive(truth)
    mixed = shown.copy()
    mixed[:1000] = truth[:1000]
    rest = slice(1000, None)
    alone = infer_range(shown[rest], p[rest])
    better = infer_range(mixed, p)
    present = (truth[rest] == 1).sum()
    assert better.selection == "single_positive"
    off = [abs(np.sum(one) - present) for one in (alone.middle, better.middle[rest])]
    assert off[1] < off[0]


def test_labels_per_row_are_closer_with_complete_rows(example):
    truth, p = example
    logits = np.log(p / (1 - p)) * 0.7 + 0.5
    shown = single_positive(truth)
    mixed = shown.copy()
    mixed[:600] = truth[:600]
    wanted = (truth == 1).sum(axis=1).mean()
    alone, better = (fit_probabilities(one, logits).labels_per_row for one in (shown, mixed))
    assert abs(better.value - wanted) < max(abs(alone.value - wanted), 0.1)
    assert better.low < wanted < better.high
