"""Hints: useful ones help, others do no harm, and predictions need none."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from tiny_data import CLASSES, IMAGES, command, with_tune

import halftruth
from halftruth.data import DataError
from halftruth.estimator import HalftruthClassifier
from halftruth.metrics import mean_average_precision
from halftruth.train.ensemble.hints import HintWeights, fit_hints
from halftruth.train.results.evaluate import evaluate


def make_scores(rows=3000, classes=6, shown=0.5, seed=0):
    """Logits of a model, a hint that is as good, incomplete labels and complete ones."""
    random = np.random.default_rng(seed)
    truth = random.random((rows, classes)) < 0.2
    logits = 2 * truth + random.normal(size=truth.shape) - 2
    hint = 2 * truth + random.normal(size=truth.shape)
    labels = (truth & (random.random(truth.shape) < shown)).astype(np.int8)
    return logits, hint, labels, np.where(truth, 1, -1)


def test_a_useful_hint_helps_and_an_inverted_one_changes_nothing():
    logits, hint, labels, truth = make_scores()
    alone = mean_average_precision(logits, truth)
    both = fit_hints(logits, labels, [hint])(logits, [hint])
    assert mean_average_precision(both, truth) > alone + 0.1
    np.testing.assert_array_equal(fit_hints(logits, labels, [-hint])(logits, [-hint]), logits)


def test_a_random_hint_costs_almost_nothing():
    random = np.random.default_rng(3)
    for seed in range(3):
        logits, _, labels, truth = make_scores(300, shown=0.3, seed=seed)
        noise = random.normal(size=logits.shape)
        both = fit_hints(logits, labels, [noise])(logits, [noise])
        loss = mean_average_precision(logits, truth) - mean_average_precision(both, truth)
        assert loss < 0.01


def test_each_class_has_its_own_weight():
    logits, hint, labels, _ = make_scores()
    mixed = hint * np.array([1, -1, 1, -1, 1, -1])
    weights = fit_hints(logits, labels, [mixed])
    assert (weights.weight[0, ::2] > 0.3).all()
    assert not weights.weight[0, 1::2].any()


def test_scores_without_a_hint_stay_and_keep_their_scale():
    logits, hint, labels, truth = make_scores()
    hint[::2] = np.nan
    weights = fit_hints(logits, labels, [hint])
    both = weights(logits, [hint])
    np.testing.assert_array_equal(both[::2], logits[::2])
    assert mean_average_precision(both, truth) > mean_average_precision(logits, truth) + 0.03


@pytest.mark.parametrize("change", [lambda h: 1 / (1 + np.exp(-h)), lambda h: 1e6 * h - 5e6])
def test_the_scale_of_a_hint_does_not_matter(change):
    logits, hint, labels, truth = make_scores()
    plain = mean_average_precision(fit_hints(logits, labels, [hint])(logits, [hint]), truth)
    other = change(hint)
    found = mean_average_precision(fit_hints(logits, labels, [other])(logits, [other]), truth)
    assert found == pytest.approx(plain, abs=0.005)


def test_two_hints_are_better_than_one_and_a_constant_one_gets_no_weight():
    logits, hint, labels, truth = make_scores()
    second = (truth > 0) * 2 + np.random.default_rng(9).normal(size=truth.shape)
    one = fit_hints(logits, labels, [hint])(logits, [hint])
    weights = fit_hints(logits, labels, [hint, second, np.ones_like(hint)])
    three = weights(logits, [hint, second, np.ones_like(hint)])
    assert mean_average_precision(three, truth) > mean_average_precision(one, truth) + 0.02
    assert not weights.weight[2].any()


def test_weights_survive_json_and_new_rows_beyond_the_training_range():
    logits, hint, labels, _ = make_scores(400)
    weights = fit_hints(logits, labels, [hint])
    again = HintWeights.from_dict(weights.to_dict())
    np.testing.assert_allclose(again(logits, [hint]), weights(logits, [hint]))
    assert np.isfinite(again(logits, [hint * 1e12])).all()


# ---------------------------------------------------------------------- estimator and runs


def make_data(rows=240, seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 4)).astype(np.float32)
    truth = x @ random.normal(size=(4, 3)) + 2 * random.normal(size=(rows, 3)) > 1
    labels = (truth & (random.random(truth.shape) < 0.6)).astype(int)
    return x, labels, np.where(truth, 1, -1), truth + 0.5 * random.normal(size=truth.shape)


def test_estimator_learns_from_hints_and_predicts_without_them():
    x, labels, truth, hint = make_data()
    model = HalftruthClassifier(members=["linear"]).fit(x[:160], labels[:160], hints=hint[:160])
    with_hints = model.score(x[160:], truth[160:], hints=hint[160:])
    assert with_hints > model.score(x[160:], truth[160:]) + 0.1
    plain = HalftruthClassifier(members=["linear"]).fit(x[:160], labels[:160])
    np.testing.assert_array_equal(
        plain.model_(torch.from_numpy(x).double()), model.model_(torch.from_numpy(x).double())
    )
    assert any(line.startswith("hint 1") for line in model.reasons_)
    with pytest.raises(ValueError, match="no effect"):
        plain.predict(x, hints=hint)
    with pytest.raises(ValueError, match="expected 1, got 2"):
        model.predict(x, hints=[hint, hint])
    with pytest.raises(DataError, match="expected 240 rows"):
        model.predict(x, hints=hint[:5])


@pytest.fixture(scope="module")
def run_with_hints(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hints")
    x, labels, truth, hint = make_data()
    names = [f"r{k}" for k in range(len(x))]
    frames = {
        "labels": pd.DataFrame(labels, columns=["a", "b", "c"]),
        "features": pd.DataFrame(x, columns=list("wxyz")),
        "truth": pd.DataFrame(truth, columns=["a", "b", "c"]),
        "scores": pd.DataFrame(hint[::-1], columns=["A", "b", "c"]),
    }
    for name, frame in frames.items():
        frame.insert(0, "image", names[::-1] if name == "scores" else names)
        frame.to_csv(folder / f"{name}.csv", index=False)
    (folder / "names.csv").write_text("hint,class\nA,a\n")
    result = halftruth.fit(
        folder / "labels.csv", features=folder / "features.csv", hints=folder / "scores.csv",
        hint_names=folder / "names.csv", out=folder / "run", report=False, quiet=True,
    )  # fmt: skip
    return folder, result


def test_a_run_shows_what_hints_are_worth(run_with_hints):
    _, result = run_with_hints
    assert "scores.csv" in result.describe()
    assert np.array(result.hints["weights"]["weight"]).min() > 0


def test_a_run_predicts_and_evaluates_with_hints_and_without(run_with_hints):
    folder, _ = run_with_hints
    run = halftruth.load(folder / "run", device="cpu")
    given = {"features": folder / "features.csv"}
    both = evaluate(run, folder / "truth.csv", hints=folder / "scores.csv", **given)
    with pytest.warns(UserWarning, match=r"trained with hints .*the model alone"):
        alone = evaluate(run, folder / "truth.csv", **given)
    assert both.metrics["mAP"] > alone.metrics["mAP"] + 0.05
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = run.predict(folder / "features.csv", hints=folder / "scores.csv")
    assert len(table) == 240
    with pytest.raises(DataError, match="expected 1 hints"):
        run.predict(folder / "features.csv", hints=[folder / "scores.csv"] * 2)


def test_hints_for_a_run_without_hints_are_refused(tmp_path):
    x, labels, _, hint = make_data(60)
    halftruth.fit(
        labels, features=x, out=tmp_path / "run", report=False, quiet=True, method="em", epochs=1
    )
    run = halftruth.load(tmp_path / "run", device="cpu")
    with pytest.raises(DataError, match="trained without hints"):
        run.predict(x, hints=hint)


def test_commands_train_and_predict_with_hints(run_with_hints, tmp_path, capsys):
    folder, _ = run_with_hints
    options = ("--hints", folder / "scores.csv", "--features", folder / "features.csv")
    command(
        "train", folder / "labels.csv", *options, "--hint-names", folder / "names.csv",
        "--out", tmp_path / "run", "--no-report", "--method", "em", "--epochs", "2",
    )  # fmt: skip
    assert "scores of 3 of 3 classes for 240 of 240 rows" in capsys.readouterr().err
    command("predict", tmp_path / "run", *options, "--out", tmp_path / "with.csv")
    command("evaluate", tmp_path / "run", folder / "truth.csv", *options)
    assert "mAP" in capsys.readouterr().out
    command("predict", tmp_path / "run", *options[2:], "--out", tmp_path / "alone.csv")
    tables = [pd.read_csv(tmp_path / f"{name}.csv")["a"] for name in ("with", "alone")]
    assert not np.allclose(*tables)


def test_hints_of_images_are_combined_on_the_validation_rows(data, tmp_path):
    truth = pd.read_csv(data / "truth.csv")
    noise = np.random.default_rng(0).normal(0, 0.1, (len(truth), 3))
    truth[list(CLASSES)] += noise
    truth.iloc[:40].to_csv(tmp_path / "scores.csv", index=False)
    settings = with_tune({**IMAGES, "head_epochs": 1, "method": "em"}, "head")
    result = halftruth.fit(
        data / "labels.csv", data / "photos", hints=tmp_path / "scores.csv", **settings,
        out=tmp_path / "run", quiet=True,
    )  # fmt: skip
    assert "scores.csv" in result.hints["table"][1]
    run = halftruth.load(tmp_path / "run", device="cpu")
    with pytest.warns(UserWarning, match="the model alone"):
        alone = run.predict(data / "photos")
    assert len(run.predict(data / "photos", hints=tmp_path / "scores.csv")) == len(alone)
