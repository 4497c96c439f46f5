"""`halftruth calibrate`: the scores of another model in, everything that a run has out."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import halftruth
from halftruth.cli.app import app
from halftruth.presence.probabilities import average_over_level, fit_probabilities

CLASSES = ("cat", "dog", "bird")


def call(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, " ".join((result.output + str(result.exception or "")).split())


@pytest.fixture(scope="module")
def data():
    """Scores and labels of 300 rows, with names of the rows; 60 % of the present labels shown."""
    random = np.random.default_rng(0)
    z = random.normal(-1, 2, (300, 3))
    shown = (random.random(z.shape) < 1 / (1 + np.exp(-z))) & (random.random(z.shape) < 0.6)
    items = [f"r{k}" for k in range(len(z))]
    scores = pd.DataFrame(1 / (1 + np.exp(-z)), columns=CLASSES)
    return scores.assign(item=items), pd.DataFrame(shown.astype(int), columns=CLASSES).assign(
        item=items
    )


@pytest.fixture(scope="module")
def files(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("given")
    scores, labels = data
    # In another order, and with a column that is no class.
    scores[::-1][["bird", "item", "cat", "dog"]].assign(remark="seen").to_csv(
        folder / "scores.csv", index=False
    )
    labels.to_csv(folder / "labels.csv", index=False)
    return folder


def test_probabilities_are_those_of_the_model_of_labelling(data, files, tmp_path):
    scores, labels = data
    code, output = call(
        "calibrate", files / "scores.csv", files / "labels.csv", "--out", tmp_path / "run"
    )
    assert code == 0, output
    assert "are taken for probabilities" in output
    assert f"halftruth predict {tmp_path / 'run'} new_scores.csv" in output
    p = scores[list(CLASSES)].to_numpy().astype(np.float32)
    z = np.log(p) - np.log1p(-p)
    fitted = fit_probabilities(labels[list(CLASSES)].to_numpy(), z.astype(float))
    expected = average_over_level(fitted, z)(z)
    code, output = call(
        "predict", tmp_path / "run", files / "scores.csv", "--out", tmp_path / "p.csv"
    )
    assert code == 0, output
    found = pd.read_csv(tmp_path / "p.csv").set_index("item").loc[scores["item"]]
    assert found[list(CLASSES)].to_numpy() == pytest.approx(expected, abs=1e-4)


def test_arrays_frames_and_logits_give_the_same(data, tmp_path):
    scores, labels = data
    p, y = scores[list(CLASSES)].to_numpy(), labels[list(CLASSES)].to_numpy()
    given = {"frame": (scores, labels), "array": (p, y), "logits": (np.log(p) - np.log1p(-p), y)}
    found = {}
    for name, (one, two) in given.items():
        run = halftruth.calibrate(one, two, out=tmp_path / name, quiet=True, report=False)
        found[name] = run.predict(features=one)[list(run.classes)].to_numpy()
    assert found["array"] == pytest.approx(found["frame"], abs=1e-6)
    assert found["logits"] == pytest.approx(found["array"], abs=1e-4)
    with pytest.raises(ValueError, match=r"expected probabilities in 0..1"):
        halftruth.load(tmp_path / "array").predict(features=3 * p)


def test_the_other_commands_take_the_run(files, tmp_path):
    run, given = tmp_path / "run", (files / "labels.csv", "--features", files / "scores.csv")
    assert call("calibrate", files / "scores.csv", given[0], "--out", run, "-q")[0] == 0
    for words in (
        ("evaluate", run),
        ("evaluate", run, *given),
        ("audit", run, *given, "--out", tmp_path / "audit"),
        ("predict", run, files / "scores.csv", "--decide", "recall=0.9", "-o", tmp_path / "p.csv"),
    ):
        code, output = call(*words)
        assert code == 0, output


MISTAKES = {
    "a missing class": (lambda s: s.drop(columns="dog"), (), "got none of 'dog' for 'r0'"),
    "a missing score": (
        lambda s: s.assign(cat=[None, *s["cat"][1:]]),
        (),
        "got none of 'cat' for 'r0' (1 are missing)",
    ),
    "a missing row": (lambda s: s[1:], (), "got none of 'cat' for 'r0' (3 are missing)"),
    "a setting of training": (None, ("--epochs", "3"), "epochs: has no effect"),
    "a text": (None, ("--text", "remark"), "takes one file of `features`"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(mistake, data, files, tmp_path):
    change, words, expected = MISTAKES[mistake]
    scores = data[0] if change is None else change(data[0])
    scores.to_csv(tmp_path / "s.csv", index=False)
    line = ("train", files / "labels.csv", "--features", tmp_path / "s.csv")
    code, output = call(*line, "--method", "given-scores", "--out", tmp_path / "run", *words)
    assert code != 0
    assert expected in output
