"""Scores must rank the shown labels before anything is estimated, promised or listed."""

import warnings

import numpy as np
import pytest

from halftruth import fit
from halftruth.audit.make_audit import make_audit
from halftruth.data import DataError
from halftruth.estimator import HalftruthClassifier
from halftruth.presence import (
    NoRankingError,
    calibrate,
    decide,
    estimate_scores,
    fit_decisions,
    fit_probabilities,
    measure_ranking,
    question_order,
)
from halftruth.presence.solvers import sigmoid
from halftruth.train.results.evaluate import evaluate


def make_rows(
    kind: str, rows: int = 200, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels of three frequent classes of which 60 % are shown, logits and complete labels."""
    random = np.random.default_rng(seed)
    truth = random.random((rows, 3)) < (0.6, 0.5, 0.4)
    shown = (truth & (random.random(truth.shape) < 0.6)).astype(np.int8)
    z = random.normal(size=truth.shape)
    good = z + 2.0 * truth
    scores = {
        "good": good, "noise": z, "constant": 0 * z, "another order": np.roll(good, 7, axis=0),
        "inverted": -good, "frequency": 0 * z + shown.mean(axis=0),
    }  # fmt: skip
    return shown, scores[kind], truth


KNOW_NOTHING = ("noise", "constant", "another order", "inverted", "frequency")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KNOW_NOTHING)
def test_nothing_is_known_from_scores_that_do_not_rank(kind: str, seed: int) -> None:
    """They gave an mAP of 90 with a narrow interval where the truth was 40."""
    labels, z, truth = make_rows(kind, seed=seed)
    fitted = fit_probabilities(labels, z)
    assert "the inputs do not explain the labels" in fitted.not_known
    # Anything is possible, from what is shown to every class in every row.
    count = fitted.labels_per_row
    assert [count.low, count.high] == pytest.approx([labels.mean() * 3, 3])
    assert (fitted.prevalence[:, 1] <= truth.mean(axis=0)).all()
    assert (fitted.prevalence[:, 2] == 1).all()
    p = sigmoid(z)
    for refused in (
        lambda: estimate_scores(p, labels, 0.5),
        lambda: calibrate(labels, p),
        lambda: decide(fitted(z), labels.sum(axis=0), "precision=0.8", fitted),
        lambda: decide(fitted(z), labels.sum(axis=0), "recall=0.8", fitted),
    ):
        with pytest.raises(NoRankingError, match="rows are in another order"):
            refused()
    assert decide(fitted(z), labels.sum(axis=0), "f1", fitted).predicted.all()
    with pytest.warns(UserWarning, match="Nothing is predicted"):
        decisions = fit_decisions(
            labels, np.arange(200), z, shown=labels.sum(axis=0), rule="precision=0.8"
        )[1]
    assert not decisions(np.ones((2, 3))).any()


def test_scores_that_rank_are_accepted() -> None:
    labels, z, truth = make_rows("good")
    fitted = fit_probabilities(labels, z)
    assert not fitted.not_known
    assert fitted.labels_per_row.low < truth.sum(axis=1).mean() < fitted.labels_per_row.high
    assert estimate_scores(sigmoid(z), labels, 0.5).mAP.value > 0.8


def test_complete_labels_need_no_ranking() -> None:
    _, z, truth = make_rows("noise")
    assert not fit_probabilities(np.where(truth, 1, -1), z).not_known


def test_shuffled_rows_rarely_rank_also_where_classes_go_together() -> None:
    random = np.random.default_rng(0)
    # The same class eight times, and scores that are nearly the same, too.
    labels = np.repeat(random.random((150, 1)) < 0.3, 8, axis=1)
    labels &= random.random(labels.shape) < 0.7
    scores = random.normal(size=(150, 1)) + 0.3 * random.normal(size=labels.shape)
    found = [measure_ranking(labels, scores[random.permutation(150)]) for _ in range(400)]
    assert 0.9 < np.std([one.z for one in found]) < 1.1
    assert np.mean([one.found for one in found]) < 0.02


def test_the_area_is_that_of_pairs() -> None:
    random = np.random.default_rng(0)
    labels, scores = random.random((40, 1)) < 0.4, random.integers(0, 6, (40, 1))
    yes, no = scores[labels], scores[~labels]
    wins = (yes[:, None] > no).mean() + (yes[:, None] == no).mean() / 2
    assert measure_ranking(labels, scores).auc == pytest.approx(wins)


def test_the_same_rule_in_train_evaluate_predict_audit_and_the_estimator(tmp_path) -> None:
    labels, noise, truth = make_rows("noise", rows=240)
    good = np.random.default_rng(5).normal(size=(240, 6)) + 2.5 * truth @ np.eye(3, 6)
    lines = [f"r{k}," + ",".join(map(str, row)) for k, row in enumerate(labels)]
    file = tmp_path / "labels.csv"
    file.write_text("\n".join(["id,cat,dog,bird", *lines]) + "\n")
    np.save(tmp_path / "noise.npy", noise.astype(np.float32))
    np.save(tmp_path / "good.npy", good.astype(np.float32))
    np.save(tmp_path / "moved.npy", np.roll(good, 9, axis=0).astype(np.float32))
    options = {"report": False, "quiet": True, "device": "cpu"}

    result = fit(file, features=tmp_path / "noise.npy", out=tmp_path / "bad", **options)
    assert result.estimated == {}
    assert "the inputs do not explain the labels" in result.describe()
    assert "labels per row: not known" in result.describe()
    with pytest.raises(DataError, match=r"precision=0\.9 cannot be promised"):
        evaluate(tmp_path / "bad", decide="precision=0.9")

    result = fit(file, features=tmp_path / "good.npy", out=tmp_path / "good", **options)
    assert result.estimated["mAP"][0] > 0.7
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert evaluate(tmp_path / "good", file, features=tmp_path / "good.npy").estimated
    # Without the ids, the rows are those of another order.
    other = tmp_path / "other.csv"
    other.write_text(file.read_text().replace("\nr", "\ns"))
    with pytest.warns(UserWarning, match="not estimated: the inputs do not explain"):
        found = evaluate(tmp_path / "good", other, features=tmp_path / "moved.npy")
    assert found.estimated == {}

    np.save(tmp_path / "p.npy", sigmoid(noise))
    with pytest.raises(DataError, match="missing labels are not known"):
        make_audit(tmp_path / "p.npy", file, out=tmp_path / "audit")
    model = HalftruthClassifier(decide="precision=0.9")
    with pytest.warns(UserWarning, match="Nothing is predicted"):
        model.fit(noise, labels)
    assert not model.predict(noise).any()


@pytest.mark.parametrize("spread", [0.0, 1e-4, 0.3, 3.0])
@pytest.mark.parametrize("seed", range(6))
def test_scores_that_do_not_rank_keep_the_share_of_known_labels(seed, spread):
    """A slope that would be negative stays at its least value, and the level is right."""
    z = np.random.default_rng(seed).normal(-1.2, 1, (48, 3)) * spread - 1
    labels = np.where(np.arange(48)[:, None] % 7 == 0, 1, -1) * np.ones((1, 3), np.int8)
    fitted = fit_probabilities(labels.astype(np.int8), z)
    assert fitted(z).mean(axis=0) == pytest.approx((labels > 0).mean(axis=0), rel=0.1)


SHOWN = np.random.default_rng(3).random((400, 4)) < 0.3
SCORES = 0.2 + 0.5 * SHOWN + 0.1 * np.random.default_rng(4).random((400, 4))


@pytest.mark.parametrize(
    ("scores", "named", "words"),
    [
        (SCORES, True, []),
        (
            SCORES[:, [1, 0, 2, 3]],
            True,
            ["another class order: that of 'b' fits the labels of 'a'"],
        ),
        (
            SCORES[:, [1, 2, 0, 3]],
            False,
            ["another class order: that of 'c' fits the labels of 'a'"],
        ),
        # Names are right more often than not: only two that are exchanged are asked about.
        (SCORES[:, [1, 2, 0, 3]], True, []),
        (SCORES * [1, 1, 1, -1], True, ["lower scores for them than the others: 'd'; are scores"]),
        (SHOWN * 1.0, True, ["all scores are 0 or 1, as labels and decisions are"]),
        (SCORES[::-1], True, []),
        (SCORES * 0, True, ["all scores are 0 or 1"]),
    ],
)
def test_the_order_and_the_direction_of_classes_are_questioned(scores, named, words):
    asked = question_order(SHOWN.astype(np.int8), scores, "abcd", named)
    assert len(asked) == len(words), asked
    assert all(one in text for one, text in zip(words, asked, strict=True)), asked
