"""The ensemble of auto on features: members, weights, out-of-sample scores, sizes of data."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import halftruth
from halftruth import losses
from halftruth.labels import single_positive
from halftruth.metrics import mean_average_precision
from halftruth.models.ensemble import MEMBERS, build_ensemble
from halftruth.train.ensemble import label_dependence, members
from halftruth.train.ensemble import member_fits as module
from halftruth.train.ensemble.fit_ensemble import fit_ensemble
from halftruth.train.ensemble.member_weights import find_weights
from halftruth.train.ensemble.members import fit_linear_path
from halftruth.train.run_folder import load_checkpoint


def make_data(rows=400, seed=0):
    """Five classes that are nearly linear in 12 features, and their complete labels."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 12)).astype(np.float32)
    truth = (x[:, :5] + 0.5 * random.normal(size=(rows, 5)) > 0.7).astype(np.int8)
    truth[np.arange(rows), random.integers(0, 5, rows)] |= (truth.sum(axis=1) == 0).astype(np.int8)
    return x, truth


@pytest.fixture(scope="module")
def fitted():
    x, truth = make_data()
    return fit_ensemble(x, single_positive(truth, seed=0), seed=0)


def test_members_are_listed_with_scores_and_weights(fitted):
    assert [one.name for one in fitted.table] == ["linear", "forest", "neighbours"]
    assert sum(one.weight for one in fitted.table) == pytest.approx(1)
    first = [line.split()[0] for line in fitted.describe()]
    assert first[:5] == ["member", "linear", "forest", "neighbours", "all"]


def test_the_ensemble_ranks_new_rows_nearly_as_well_as_complete_labels(fitted):
    x, truth = make_data(1000, seed=1)
    whole = fit_ensemble(*make_data(), seed=0)
    rows = torch.from_numpy(x)
    scores = [mean_average_precision(one.model(rows), truth) for one in (fitted, whole)]
    assert scores[0] > 0.9 * scores[1]


def test_out_of_sample_logits_have_the_level_of_the_model_on_new_rows(fitted):
    new = fitted.model(torch.from_numpy(make_data(1000, seed=1)[0])).numpy()
    np.testing.assert_allclose(fitted.logits.mean(axis=0), new.mean(axis=0), atol=0.35)
    np.testing.assert_allclose(fitted.logits.std(axis=0), new.std(axis=0), rtol=0.35)


def test_results_repeat(fitted):
    x, truth = make_data()
    again = fit_ensemble(x, single_positive(truth, seed=0), seed=0)
    np.testing.assert_array_equal(again.logits, fitted.logits)


def test_the_model_is_made_again_from_its_layout(fitted):
    x = torch.from_numpy(make_data(50, seed=2)[0])
    again = build_ensemble(12, 5, fitted.layout)
    again.load_state_dict(fitted.model.state_dict())
    torch.testing.assert_close(again.eval()(x), fitted.model(x))


def test_the_linear_member_is_logistic_regression_where_labels_are_complete():
    x, truth = make_data()
    ridge = 2.0
    layer = fit_linear_path(torch.from_numpy(x), torch.from_numpy(2 * truth - 1))[ridge]
    # One row without features is half present and half absent, as a prior of the bias.
    rows = np.concatenate([x, np.zeros((2, x.shape[1]), x.dtype)])
    weights = np.append(np.ones(len(x)), [0.5, 0.5])
    # The penalty is dim / (2 ridge) per squared weight, that of scikit-learn 1 / (2 C).
    for k in range(5):
        known = np.append(truth[:, k], [0, 1])
        reference = LogisticRegression(C=ridge / x.shape[1], tol=1e-8).fit(rows, known, weights)
        np.testing.assert_allclose(layer.weight[k], reference.coef_[0], atol=1e-2)


def test_the_linear_member_ranks_a_class_that_no_row_shows_by_how_many_are_missing():
    x, truth = make_data()
    labels = single_positive(truth, seed=0)
    layer = fit_linear_path(torch.from_numpy(x), torch.from_numpy(labels * [0, 1, 1, 1, 1]))[2.0]
    scores = layer(torch.from_numpy(x))[:, 0]
    # An endless bias would round all differences away.
    assert len(scores.unique()) > len(x) / 2


def test_the_linear_member_has_no_gradient_in_the_loss_of_swan():
    x, truth = make_data()
    features, labels = torch.from_numpy(x), torch.from_numpy(single_positive(truth, seed=0))
    layer = fit_linear_path(features, labels, (2.0,))[2.0].requires_grad_(True)
    loss = losses.create("swan", reduction="sum")(layer(features), labels)
    (loss + x.shape[1] / 4 * layer.weight.square().sum()).backward()
    # The weights of rows were fixed in the last steps; they change the gradient a little.
    assert layer.weight.grad.abs().max() < 0.02 * len(x)


def test_a_useless_member_gets_little_weight():
    random = torch.Generator().manual_seed(0)
    labels = (torch.rand(2000, 4, generator=random) < 0.3).to(torch.int8)
    good = 2 * labels.float() + torch.randn(2000, 4, generator=random)
    useless = torch.randn(2000, 4, generator=random)
    weight = find_weights(torch.stack([good, useless]), labels)
    assert (weight[1] < 0.05).all()


def test_many_rows_are_fitted_once_and_the_model_scores_the_held_out_rows(monkeypatch):
    monkeypatch.setattr(module, "MANY_ROWS", 300)
    monkeypatch.setattr(module, "HELD_OUT", 80)
    # Without links between classes: links are fitted to halves of the held-out rows.
    monkeypatch.setattr(label_dependence, "_MOST_CLASSES", 4)
    x, truth = make_data()
    found = fit_ensemble(x, single_positive(truth, seed=0), seed=0, members=["linear", "forest"])
    assert len(found.rows) == len(found.logits) == 80
    own = found.model(torch.from_numpy(x[found.rows])).numpy()
    # The same model on the same rows; only the rounding of sums differs.
    np.testing.assert_allclose(own, found.logits, atol=1e-4)


def test_few_rows_use_the_linear_member_alone():
    x, truth = make_data(12)
    found = fit_ensemble(x, single_positive(truth, seed=0))
    assert [one.name for one in found.table] == ["linear"]


def test_rows_of_one_group_are_never_in_two_folds(monkeypatch):
    seen = []
    original = module.fold_of_rows
    monkeypatch.setattr(module, "fold_of_rows", lambda *a: seen.append(a[3]) or original(*a))
    x, truth = make_data(100)
    groups = np.repeat(np.arange(25), 4)
    fit_ensemble(x, single_positive(truth, seed=0), groups=groups, members=["linear"])
    np.testing.assert_array_equal(seen[0], groups)


def test_missing_values_take_the_mean_of_their_column():
    x, truth = make_data()
    x[::7, 3] = np.nan
    found = fit_ensemble(x, single_positive(truth, seed=0), members=["linear"])
    assert np.isfinite(found.logits).all()
    assert torch.isfinite(found.model(torch.from_numpy(x))).all()


@pytest.mark.parametrize("name", MEMBERS)
def test_every_member_can_be_fitted_alone(name, monkeypatch):
    monkeypatch.setattr("halftruth.train.ensemble.mlp._STEPS", 50)
    x, truth = make_data(80)
    found = fit_ensemble(x, single_positive(truth, seed=0), members=[name])
    assert found.table[0].weight == 1
    assert found.model(torch.from_numpy(x)).shape == (80, 5)


def test_a_member_far_behind_the_others_does_not_drag_the_ensemble_down():
    """Many columns, few rows, linear labels: trees and neighbours are far behind."""
    random = np.random.default_rng(2)
    factors = random.normal(size=(700, 8))
    x = factors @ random.normal(size=(8, 300)) + 3 * random.normal(size=(700, 300))
    truth = (factors @ random.normal(size=(8, 4)) > 2).astype(np.int8)
    x = x.astype(np.float32)
    labels = truth[:200] * (random.random((200, 4)) < 0.6).astype(np.int8)
    both = fit_ensemble(x[:200], labels, seed=0)
    alone = fit_ensemble(x[:200], labels, seed=0, members=["linear"])
    rows = torch.from_numpy(x[200:])
    scores = [mean_average_precision(one.model(rows), truth[200:]) for one in (both, alone)]
    assert scores[0] > scores[1] - 0.02


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_members_fitted_on_a_gpu_are_as_good_as_on_the_cpu():
    x, truth = make_data(1200)
    labels = single_positive(truth[:1100], seed=0)
    rows = torch.from_numpy(x[1100:])
    scores = {}
    for device in ("cpu", "cuda"):
        fitted = fit_ensemble(x[:1100], labels, seed=0, device=device)
        assert {one.device.type for one in fitted.model.state_dict().values()} == {"cpu"}
        scores[device] = mean_average_precision(fitted.model(rows), truth[1100:])
    assert scores["cuda"] == pytest.approx(scores["cpu"], abs=0.03)


def test_a_stopped_run_fits_only_the_members_that_are_missing(tmp_path, monkeypatch, capsys):
    """As after kill -9: members are in files, bound to the data and the settings."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(60, 3)), random.random((60, 2)) < 0.4
    np.save(tmp_path / "x.npy", x)
    rows = [f"{a:d},{b:d}" for a, b in y]
    (tmp_path / "l.csv").write_text("\n".join(["cat,dog", *rows]))
    (tmp_path / "m.csv").write_text("\n".join(["cat,dog", *rows[:-1], "1,1"]))

    def run(out, labels="l.csv", **more):
        halftruth.fit(
            tmp_path / labels, features=tmp_path / "x.npy", report=False, out=tmp_path / out, **more
        )
        return capsys.readouterr().err

    whole = run("whole")
    real = module.fit_neighbours
    monkeypatch.setattr(module, "fit_neighbours", lambda *given: 1 / 0)
    for out in ("half", "other"):
        with pytest.raises(ZeroDivisionError):
            run(out)
    capsys.readouterr()
    monkeypatch.setattr(module, "fit_neighbours", real)
    text = run("half", resume=True)
    assert whole.count(" fitted in ") == 3
    assert text.count("was fitted before the run stopped") == 2
    assert "starts from the beginning" not in text
    one, other = (load_checkpoint(tmp_path / out / "best.safetensors") for out in ("whole", "half"))
    assert one["model"].keys() == other["model"].keys()
    assert all(torch.equal(one["model"][name], other["model"][name]) for name in one["model"])
    assert not (tmp_path / "half" / "members").exists()
    assert "was fitted before" not in run("other", "m.csv", resume=True)


def test_what_members_without_weights_per_label_learn():
    labels, nan = torch.tensor([[1, 0, -1]]), float("nan")
    for soft, found in (
        (None, ([[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]])),
        (torch.tensor([[0.25, nan, 0.75]]), ([[0.25, 0.0, 0.75]], [[0.0, 1.0, 0.0]])),
    ):
        assert [one.tolist() for one in members.get_targets(labels, soft)] == [*found]
    weights = torch.tensor([[2.0, 0.0, 4.0], [0.0, 0.0, 0.0], [1.0, 1.0, 4.0], [5.0, 0.0, 0.0]])
    assert members.average_weights(weights).tolist() == [3.0, 0.0, 2.0, 5.0]


@pytest.mark.parametrize(("least", "has"), [(60, True), (61, False)])
def test_an_mlp_needs_enough_rows(least, has, monkeypatch):
    monkeypatch.setattr("halftruth.train.ensemble.fit_ensemble.MLP_ROWS", least)
    monkeypatch.setattr("halftruth.train.ensemble.mlp._STEPS", 5)
    x, truth = make_data(60)
    found = fit_ensemble(x, single_positive(truth, seed=0))
    assert ("mlp" in [one.name for one in found.table]) is has
    assert found.rows.tolist() == [*range(60)]
