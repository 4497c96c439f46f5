"""The ensemble: the weighted sum of standardised members, and its way through a checkpoint."""

import numpy as np
import pytest
import torch

from halftruth.models.ensemble import MEMBERS, SignedLog, build_ensemble
from halftruth.train.ensemble.fit_ensemble import fit_ensemble
from halftruth.train.run_folder import load_checkpoint, save_checkpoint

ROWS, FEATURES, CLASSES = 120, 5, 3


@pytest.fixture(scope="module")
def fitted():
    """An ensemble of all members with fewer steps than usual."""
    random = np.random.default_rng(0)
    x = 40 + 3 * random.normal(size=(ROWS, FEATURES))
    labels = ((x[:, :CLASSES] > 40) & (random.random((ROWS, CLASSES)) < 0.6)).astype(np.int8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("halftruth.train.ensemble.mlp._STEPS", 20)
        patch.setattr("halftruth.train.ensemble.fit_ensemble.LEAST_WEIGHT", 0.0)
        return fit_ensemble(x, labels, members=MEMBERS), torch.from_numpy(x).float()


def test_logits_are_the_weighted_sum_of_standardised_members_and_of_linked_classes(fitted):
    ensemble, x = fitted
    head = ensemble.model.head
    prepared, total = head.prepare(x), torch.zeros_like(head.bias)
    assert list(head.parts) == list(MEMBERS)
    for number, name in enumerate(head.parts):
        z = head.parts[name](prepared)
        total = total + head.weight[number] * (z - head.mean[number]) / head.std[number]
    assert head.links.abs().max() > 0
    torch.testing.assert_close(ensemble.model(x), head.bias + total + total @ head.links)


def test_features_are_prepared_to_mean_0_and_deviation_1(fitted):
    ensemble, x = fitted
    prepared = ensemble.model.head.prepare(x)
    torch.testing.assert_close(prepared.mean(dim=0), torch.zeros(FEATURES), rtol=0, atol=1e-4)
    torch.testing.assert_close(
        prepared.std(dim=0, correction=0), torch.ones(FEATURES), rtol=1e-3, atol=0
    )


def test_an_ensemble_comes_back_from_a_checkpoint(fitted, tmp_path):
    ensemble, x = fitted
    path = tmp_path / "best.safetensors"
    save_checkpoint(path, {"layout": ensemble.layout, "model": ensemble.model.state_dict()})
    saved = load_checkpoint(path)
    again = build_ensemble(FEATURES, CLASSES, saved["layout"])
    again.load_state_dict(saved["model"])
    assert torch.equal(again.eval()(x), ensemble.model(x))
    assert again.head.layout == ensemble.layout


def test_one_row_and_many_rows_agree(fitted):
    ensemble, x = fitted
    one_by_one = torch.cat([ensemble.model(row[None]) for row in x[:20]])
    torch.testing.assert_close(one_by_one, ensemble.model(x[:20]), rtol=1e-4, atol=1e-4)


def test_missing_values_take_the_mean_and_tails_are_shortened():
    x = torch.tensor([[float("nan"), -1000.0, 0.1, 0.0]])
    found = SignedLog()(x)
    assert found[0, 0] == found[0, 3] == 0
    assert found[0, 1] == pytest.approx(-np.log(1001), rel=1e-5)
    assert found[0, 2] == pytest.approx(np.log(1.1), rel=1e-5)
