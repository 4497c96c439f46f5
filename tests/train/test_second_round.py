"""Estimates of unknown labels for a second fit, and links between classes."""

import numpy as np
import pytest
import torch

from halftruth.labels import single_positive
from halftruth.metrics import mean_average_precision, mean_roc_auc
from halftruth.presence.probabilities import fit_probabilities
from halftruth.train.ensemble import self_training
from halftruth.train.ensemble.fit_ensemble import fit_ensemble
from halftruth.train.ensemble.label_dependence import fit_links, hold_out_links
from halftruth.train.ensemble.member_fits import MemberFits
from halftruth.train.ensemble.self_training import PART, impute_unknown_labels


def make_labels(rows=600, seed=0):
    """Complete labels of four classes, logits that predict them, and half of the labels."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=(rows, 4)) * 2 - 1
    truth = random.random(logits.shape) < 1 / (1 + np.exp(-logits))
    shown = (truth & (random.random(truth.shape) < 0.5)).astype(np.int8)
    return truth, logits, shown


def test_an_unknown_label_gets_part_of_its_probability():
    truth, logits, shown = make_labels()
    soft = impute_unknown_labels(shown, logits)
    unknown = shown == 0
    assert (soft[~unknown] == 1).all()
    assert soft[unknown].max() <= PART
    assert soft[truth & unknown].mean() > 2 * soft[~truth].mean()


@pytest.mark.parametrize("kind", ["complete", "one per row", "nothing shown"])
def test_nothing_is_estimated_where_labels_do_not_tell_how_many_are_missing(kind, monkeypatch):
    # Nor is the model of labelling fitted: the run fits it later, once.
    monkeypatch.setattr(self_training, "fit_probabilities", None)
    truth, logits, _ = make_labels()
    complete = np.where(truth, 1, -1).astype(np.int8)
    labels = {
        "complete": complete,
        "one per row": single_positive(complete),
        "nothing shown": np.zeros_like(complete),
    }[kind]
    assert impute_unknown_labels(labels, logits) is None


def test_forest_and_neighbours_are_fitted_again_where_labels_are_missing_at_random():
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 6)).astype(np.float32)
    truth = x[:, :4] + 0.3 * random.normal(size=(300, 4)) > 0.4
    shown = (truth & (random.random(truth.shape) < 0.4)).astype(np.int8)
    parts = fit_ensemble(x, shown, members=["linear", "neighbours"]).model.head.parts
    assert parts["neighbours"].layout["soft"]
    stored = parts["neighbours"].labels.float() / parts["neighbours"].steps
    assert stored[truth & (shown == 0)].mean() > 2 * stored[~truth].mean()


def make_linked(rows=2000, seed=0):
    """Class 1 is present where class 0 is; its own score says nothing."""
    random = np.random.default_rng(seed)
    scores = torch.from_numpy(random.normal(size=(rows, 3))).float()
    truth = torch.from_numpy(random.random((rows, 3))) < torch.sigmoid(2 * scores[:, [0, 0, 2]])
    logits = scores * torch.tensor([2.0, 0.0, 2.0])
    return scores, logits, torch.where(truth, 1, -1).to(torch.int8)


def test_links_say_what_a_class_learns_from_another():
    scores, logits, labels = make_linked()
    links = fit_links(scores, logits, labels)
    assert links[0, 1] > 0.5
    links[0, 1] = 0
    assert links.abs().max() < 0.2


@pytest.mark.parametrize("folds", [4, 1])
def test_links_of_held_out_rows_help_and_are_not_those_of_the_rows_themselves(folds):
    scores, logits, labels = make_linked()
    fold = np.arange(len(labels)) % folds
    held = hold_out_links(scores, logits, labels, fold)
    before, after = (mean_average_precision(z, labels) for z in (logits, held))
    assert after > before + 0.05
    # Rows of one fold are halved.
    first = np.arange(len(labels)) % max(folds, 2) == 0
    other = labels.clone()
    other[first] = -1
    again = hold_out_links(scores, logits, other, fold)
    torch.testing.assert_close(again[first], held[first])
    assert not torch.allclose(again[~first], held[~first], atol=0.1)


def test_without_labels_to_speak_for_them_links_are_small():
    scores, logits, labels = make_linked(rows=40)
    assert fit_links(scores, logits, labels).abs().max() < 0.15


def test_very_many_classes_have_no_links():
    z = torch.zeros(5, 501)
    assert fit_links(z, z, torch.zeros(5, 501, dtype=torch.int8)) is None


def test_out_of_bag_scores_of_a_forest_do_not_know_the_label_of_their_own_row():
    random = np.random.default_rng(0)
    x = torch.from_numpy(random.normal(size=(300, 5))).float()
    labels = torch.zeros(300, 8, dtype=torch.int8)
    labels[torch.arange(40), torch.arange(40) % 8] = 1
    fits = MemberFits(x, labels, np.arange(300) % 4, 0, out_of_bag=True)
    scores = fits.fit("forest", lambda text: None)[0].scores
    # Features say nothing, so that rows with a label score as the others do; they were lower.
    assert 0.4 < mean_roc_auc(scores, labels) < 0.6


def test_estimates_are_half_of_what_the_model_of_labelling_says():
    _, logits, shown = make_labels()
    shown[::9] *= -1
    p = fit_probabilities(shown, logits).infer(shown, logits).middle
    expected = np.where(shown == 0, 0.5 * p, shown == 1)
    np.testing.assert_allclose(impute_unknown_labels(shown, logits), expected, rtol=1e-6)
