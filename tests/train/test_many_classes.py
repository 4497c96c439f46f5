"""Many classes: labels stay sparse from the file to the batch, and everything after works."""

import json
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

import halftruth
from halftruth import losses
from halftruth.audit.make_audit import make_audit
from halftruth.data import DataError, memory, read_labels
from halftruth.estimator import HalftruthClassifier, classifier
from halftruth.labels import SparseLabels, matrix
from halftruth.metrics import (
    average_precision,
    precision_at_k,
    propensities,
    propensity_scored_precision_at_k,
)
from halftruth.metrics.by_blocks import RowBlockMetrics
from halftruth.models import many_classes
from halftruth.presence.probabilities import Probabilities
from halftruth.train.many_classes import fit_many, measure
from halftruth.train.results.evaluate import evaluate
from halftruth.train.results.predictions import write_predictions

ROWS, CLASSES, DIM = 600, 3_000, 16


@pytest.fixture(scope="module", autouse=True)
def _few_steps():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit_many, "_STEPS", 200)
        yield


@pytest.fixture(scope="module")
def data():
    """Rows of 20 groups; a group has its own 150 classes, of which rows list three."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 20, ROWS)
    centre = rng.normal(size=(20, DIM))
    x = (centre[group] + 0.5 * rng.normal(size=(ROWS, DIM))).astype(np.float32)
    # One class of a group is in most of its rows.
    columns = [{150 * g, *(150 * g + rng.integers(1, 150, 2)), CLASSES - 1 - g} for g in group]
    return x, SparseLabels.from_lists([sorted(row) for row in columns], CLASSES)


@pytest.fixture(scope="module")
def files(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("many")
    x, labels = data
    np.save(folder / "x.npy", x)
    names = np.array([f"tag{k}" for k in range(CLASSES)])
    tags = ["|".join(names[labels.select([row]).columns]) for row in range(ROWS)]
    frame = pd.DataFrame({"id": [f"r{k}" for k in range(ROWS)], "tags": tags})
    frame.to_csv(folder / "tags.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def run(files):
    halftruth.fit(files / "tags.csv", features=files / "x.npy", out=files / "run", quiet=True)
    return halftruth.load(files / "run")


# ---------------------------------------------------------------------- reading


def test_lists_of_names_stay_sparse(files, data):
    labels = read_labels(files / "tags.csv", sparse=True)
    assert labels.is_sparse
    dense = read_labels(files / "tags.csv")
    assert labels.classes == dense.classes
    assert (labels.sparse.to_dense() == dense.values).all()


def test_scipy_matrix_in_a_file(data, tmp_path):
    labels = data[1]
    matrix = sparse.csr_matrix(labels.to_dense())
    sparse.save_npz(tmp_path / "y.npz", matrix)
    read = read_labels(tmp_path / "y.npz", sparse=True)
    assert (read.sparse.to_dense() == labels.to_dense()).all()
    sparse.save_npz(tmp_path / "few.npz", matrix[:, :5])
    assert (read_labels(tmp_path / "few.npz").values == labels.to_dense()[:, :5]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"soft": True}, "soft cannot be used with a sparse matrix"),
        ({"key": "a"}, "key cannot be used"),
        ({"classes": ["a"]}, "3 columns, but 1 class names"),
        ({"minus_one": "unknown", "zero": "absent"}, "-1 means absent"),
    ],
)
def test_bad_options_of_a_scipy_matrix(options, message, tmp_path):
    sparse.save_npz(tmp_path / "y.npz", sparse.csr_matrix(np.eye(3)))
    with pytest.raises(DataError, match=message):
        read_labels(tmp_path / "y.npz", **options)


def test_bad_codes_of_a_scipy_matrix(tmp_path):
    sparse.save_npz(tmp_path / "y.npz", sparse.csr_matrix([[0, 5]]))
    with pytest.raises(DataError, match=r"y.npz: labels\[0, 1\] is 5"):
        read_labels(tmp_path / "y.npz")


def test_joined_files_and_merged_rows(files, tmp_path):
    more = pd.DataFrame({"id": ["r0", "new"], "tags": ["other", "tag1|other"]})
    more.to_csv(tmp_path / "more.csv", index=False)
    joined = read_labels(files / "tags.csv", also=tmp_path / "more.csv", sparse=True)
    assert len(joined) == ROWS + 1
    row = joined.select(joined.items == "r0").sparse
    first = read_labels(files / "tags.csv", sparse=True).select([0]).sparse
    assert set(row.columns) == {*first.columns, joined.classes.index("other")}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blank": "absent"}, "an empty row must mean the same"),
        ({"duplicates": "vote"}, "votes are soft labels"),
    ],
)
def test_what_sparse_labels_cannot_be(files, tmp_path, options, message):
    frame = pd.read_csv(files / "tags.csv")
    frame.loc[3, "tags"] = ""
    frame.to_csv(tmp_path / "tags.csv", index=False)
    with pytest.raises(DataError, match=message):
        read_labels(tmp_path / "tags.csv", sparse=True, **options)


# ---------------------------------------------------------------------- training


def test_slope_is_that_of_swan_if_all_classes_are_drawn():
    torch.manual_seed(0)
    logits = torch.randn(5, 7, requires_grad=True)
    codes = torch.randint(-1, 2, (5, 7))
    losses.create("swan", reduction="sum")(logits, codes).backward()
    slope = fit_many._slope_of_swan(
        logits.detach(), (codes == 1).float(), (codes == 0).float(), torch.ones(7)
    )
    torch.testing.assert_close(slope, logits.grad)


def test_run_predicts_the_common_class_of_a_group(run, data):
    x, labels = data
    result = json.loads((run.folder / "result.json").read_text())
    assert result["counting_unknown_as_absent"]["val"]["P@1"] > 0.8
    assert result["val"] == {}
    table = run.predict(x[:50], top=10)
    assert list(table) == ["item", "labels", "top", "scores"]
    common = [f"tag{150 * (labels.select([row]).columns[0] // 150)}" for row in range(50)]
    hits = [name in top.split("|")[:2] for name, top in zip(common, table["top"], strict=True)]
    assert np.mean(hits) > 0.8
    lists = [cell.split("|") for cell in table["labels"] if cell]
    assert len(lists) > 40
    assert len(run.predict(x[:3], decide="top=2")["labels"][0].split("|")) == 2
    # A cut of the sigmoid is the same as one of the probability at that logit.
    scores = run.score(x[:50])
    cut = run.make_table(scores, "score=0.5", False)["labels"]
    above = (scores.raw > 0.5) & (np.array(run.result["shown"]) > 0)
    assert [len(cell.split("|")) if cell else 0 for cell in cut] == above.sum(axis=1).tolist()


def test_predictions_are_a_table_of_all_classes(run, data, tmp_path):
    table = run.predict(data[0][:50])
    assert list(table) == ["item", "labels", *run.classes, "basis"]
    # On CUDA, sums of float32 may differ in their last digit from call to call.
    expected = run.score(data[0][:50]).probabilities
    np.testing.assert_allclose(table[list(run.classes)], expected, rtol=1e-6)
    write_predictions(run, tmp_path / "p.csv", data[0][:50])
    np.testing.assert_allclose(
        pd.read_csv(tmp_path / "p.csv")[list(run.classes)], table[list(run.classes)], atol=1e-5
    )
    write_predictions(run, tmp_path / "top.csv", data[0][:50], top=3)
    best = [row.split("|")[0] for row in pd.read_csv(tmp_path / "top.csv")["top"]]
    assert best == list(table[list(run.classes)].idxmax(axis=1))


def test_run_is_said_to_be_one_of_many_classes(files, capsys):
    halftruth.fit(files / "tags.csv", features=files / "x.npy", out=files / "said")
    said = " ".join("".join(capsys.readouterr()).split())
    assert "labels stay sparse; one threshold and one curve of probabilities" in said
    assert re.search(r"counting unknown as absent, so at least: P@1 [\d.]+, P@3 [\d.]+, P@5", said)
    assert re.search(r"estimated by assumed propensities: PSP@1 [\d.]+, PSP@3", said)


def test_evaluation_by_blocks_is_that_of_the_dense_matrix(run, files, data, monkeypatch):
    monkeypatch.setattr(measure, "_CLASS_BLOCK", ROWS * 700)
    monkeypatch.setattr(many_classes, "BLOCK", 100 * CLASSES)
    x, _ = data
    # In the file, classes are sorted, and classes that no row has are missing.
    given = read_labels(files / "tags.csv").values
    found = evaluate(run, files / "tags.csv", features=files / "x.npy")
    p = run.score(x).probabilities
    shown = np.array(run.result["shown"])
    chance = propensities(shown, int(run.saved["rows"]))
    assert found.basis == "counting unknown as absent"
    assert found.estimated["mAP"][1] <= found.estimated["mAP"][0] <= found.estimated["mAP"][2]
    assert 0 < found.estimated_classes < CLASSES
    assert found.metrics["P@3"] == pytest.approx(precision_at_k(p, given, 3), abs=2e-3)
    scored = propensity_scored_precision_at_k(p, given, 3, chance)
    assert found.metrics["PSP@3"] == pytest.approx(scored, abs=2e-3)
    with warnings.catch_warnings(action="ignore"):
        ap = average_precision(p, given, empty="nan")
    np.testing.assert_allclose(found.classes["AP"], ap, atol=2e-3)


def test_probabilities_add_up_to_the_shown_labels(run):
    held, (offset, slope) = run.held_out, run.curves
    p = 1 / (1 + np.exp(-(offset + slope * held.logits)))
    shown = (held.labels == 1).sum(axis=1).mean()
    assert p.sum(axis=1).mean() == pytest.approx(shown, rel=0.01)


def test_a_run_of_many_classes_is_evaluated_audited_and_decided_as_any_other(run, files, tmp_path):
    own = evaluate(run)
    assert own.basis == "estimated"
    assert own.estimated.keys() == {"mAP", "CF1", "OF1", "OP", "OR"}
    assert len(own.classes) == len(run.classes)
    limits = [run.decide(f"recall={value}").thresholds for value in (0.5, 0.9)]
    assert (limits[0] > limits[1]).all()
    make_audit(run.folder, files / "tags.csv", features=files / "x.npy", out=tmp_path / "audit")
    missing = pd.read_csv(tmp_path / "audit" / "missing.csv")
    assert set(missing["class"]) <= set(run.classes)
    assert len(missing)


def test_a_named_method_and_a_named_ensemble_take_many_classes(files, data, tmp_path):
    """What was typed is fitted, also where auto would choose another plan."""
    rows = np.arange(80)
    frame = pd.read_csv(files / "tags.csv").iloc[rows]
    frame.to_csv(tmp_path / "tags.csv", index=False)
    found = {}
    for method, more in (("auto", {}), ("many-classes", {}), ("swan", {"epochs": 1})):
        result = halftruth.fit(
            tmp_path / "tags.csv", features=data[0][rows], out=tmp_path / method, method=method,
            quiet=True, classes=[f"tag{k}" for k in range(CLASSES)], report=False, **more,
        )  # fmt: skip
        found[method] = result
    assert found["auto"].method == found["many-classes"].method == "many-classes"
    assert found["auto"].thresholds == found["many-classes"].thresholds
    assert found["swan"].method == "swan"


def test_few_classes_can_be_fitted_by_the_plan_of_many(data, tmp_path):
    x, labels = data
    y = labels.to_dense()[:, ::150]
    np.save(tmp_path / "y.npy", y)
    result = halftruth.fit(
        tmp_path / "y.npy", features=x, out=tmp_path / "run", method="many-classes", quiet=True
    )
    assert result.method == "many-classes"
    run = halftruth.load(tmp_path / "run")
    assert run.predict(x[:2]).shape == (2, 23)
    table, best = run.predict(x[:2]), run.predict(x[:2], top=2)
    for row in range(2):
        names = best["top"][row].split("|")
        assert names == list(table.loc[row, list(run.classes)].astype(float).nlargest(2).index)
    with pytest.raises(DataError, match=r"top \(--top\): expected 1 to 20 .the classes., got 0"):
        run.predict(x[:2], top=0)
    assert HalftruthClassifier("many-classes").fit(x, y).plan_["method"] == "many-classes"


def test_labels_per_row_that_are_known_shift_the_probabilities(files, data):
    out = files / "eight"
    halftruth.fit(
        files / "tags.csv", features=files / "x.npy", out=out, labels_per_row=8, quiet=True
    )
    assert halftruth.load(out).score(data[0]).probabilities.sum(axis=1).mean() == pytest.approx(
        8, rel=0.15
    )


def test_a_run_makes_no_matrix_of_all_rows_and_classes(files, data, tmp_path, monkeypatch):
    monkeypatch.setattr(matrix, "_MOST_DENSE", 1)
    common = {"features": files / "x.npy", "quiet": True}
    halftruth.fit(files / "tags.csv", out=tmp_path / "run", truth=files / "tags.csv", **common)
    evaluate(tmp_path / "run", files / "tags.csv", features=files / "x.npy")
    HalftruthClassifier().fit(data[0], sparse.csr_matrix(data[1].to_dense()))
    with pytest.raises(ValueError, match="this needs all 600 rows"):
        _ = read_labels(files / "tags.csv", sparse=True).values


def test_fewer_labels_per_row_than_are_shown_are_refused(files, data):
    message = r"labels_per_row \(--labels-per-row\): expected at least 3.9"
    with pytest.raises(DataError, match=message):
        halftruth.fit(
            files / "tags.csv", features=files / "x.npy", out=files / "few", labels_per_row=2
        )
    with pytest.raises(ValueError, match=message):
        HalftruthClassifier(labels_per_row=2).fit(data[0], data[1].to_dense())


def test_an_option_of_evaluate_without_effect_is_refused(run, files):
    with pytest.raises(DataError, match=r"top_k: has no effect on .*many-classes; leave it out"):
        evaluate(run, files / "tags.csv", features=files / "x.npy", top_k=3)


def test_complete_labels_are_measured_as_such(files):
    result = halftruth.fit(
        files / "tags.csv", features=files / "x.npy", out=files / "complete", zero="absent",
        quiet=True,
    )  # fmt: skip
    assert result.basis["val"] == "on complete labels"
    assert result.val["P@1"] > 0.8


def test_rows_without_a_present_label_are_not_measured(run, files, tmp_path):
    frame = pd.read_csv(files / "tags.csv").assign(split="train")
    frame.loc[frame.index[-9:], ["tags", "split"]] = ["", "test"]
    frame.to_csv(tmp_path / "tags.csv", index=False)
    options = {"features": files / "x.npy", "reading": {"label_column": "tags"}}
    assert evaluate(run, tmp_path / "tags.csv", split="train", **options).metrics
    with pytest.raises(DataError, match="no label of these rows is present"):
        evaluate(run, tmp_path / "tags.csv", split="test", **options)


def test_resumed_run_is_evaluated_again(files, run):
    again = halftruth.fit(
        files / "tags.csv", features=files / "x.npy", out=run.folder, resume=True, quiet=True
    )
    assert again.thresholds == run.result["thresholds"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("verdicts", "a.csv"),
        ("hints", "a.csv"),
        ("complete_rows", "a.csv"),
        ("prevalence", ["tag1=0.5"]),
        ("complete_classes", ["tag1"]),
        ("quality", "fast"),
    ],
)
def test_settings_of_single_labels_and_classes_are_refused(files, tmp_path, name, value):
    (tmp_path / "a.csv").write_text("id,tag1\nr0,1\n")
    given = str(tmp_path / value) if value == "a.csv" else value
    option = f"--{name.replace('_', '-')}"
    with pytest.raises(DataError, match=rf"{name} \({option}\): not available with many-classes"):
        halftruth.fit(
            files / "tags.csv", features=files / "x.npy", out=tmp_path / "run", quiet=True,
            **{name: given},
        )  # fmt: skip


# ---------------------------------------------------------------------- the estimator


@pytest.mark.parametrize("count", [5, CLASSES])
def test_the_type_of_an_answer_is_that_of_the_labels(data, count, monkeypatch):
    monkeypatch.setattr(classifier, "_BLOCK", 100 * count)
    x, labels = data
    y = labels.to_dense()[:, np.argsort(-labels.count_per_class(), kind="stable")[:count]]
    dense, thin = (HalftruthClassifier().fit(x, one) for one in (y, sparse.csr_matrix(y)))
    assert dense.plan_["method"] == ("ensemble" if count == 5 else "many-classes")
    assert set(vars(dense)) == set(vars(thin))
    found, same = dense.predict(x), thin.predict(x)
    assert found.dtype == int
    assert sparse.issparse(same)
    np.testing.assert_array_equal(np.asarray(found) > 0, same.toarray() > 0)
    assert (found * y).sum() / found.sum() > 0.5
    assert dense.predict_proba(x[:5]).shape == dense.decision_function(x[:5]).shape == (5, count)
    assert 0 < dense.score(x, y) <= 1
    assert thin.score(x, sparse.csr_matrix(y)) == pytest.approx(dense.score(x, y))
    assert not found[:, np.isin(np.arange(count), dense.not_predicted_)].sum()
    again = HalftruthClassifier(**dense.plan_).fit(x, y)
    np.testing.assert_array_equal(again.predict(x[:50]), found[:50])


def test_the_number_of_classes_does_not_change_the_attributes(data):
    x, labels = data
    y = labels.to_dense()
    many, few = (HalftruthClassifier().fit(x, y[:, :k]) for k in (CLASSES, 300))
    assert set(vars(many)) == set(vars(few))
    assert {type(v) for v in (many.probabilities_, few.probabilities_)} == {Probabilities}


def test_predictions_that_do_not_fit_are_refused(data, monkeypatch):
    x, labels = data
    model = HalftruthClassifier().fit(x, labels.to_dense())
    monkeypatch.setattr(memory, "get_free_memory", lambda: 1e6)
    with pytest.raises(ValueError, match=r"600 rows x 3,000 classes would take 14 MB.*fewer rows"):
        model.predict(x)


def test_estimator_ignores_rows_of_weight_zero(data):
    x, labels = data
    wrong = np.arange(ROWS) < 300
    rows, columns = labels.row_of_entries(), labels.columns.copy()
    columns[wrong[rows]] = np.random.default_rng(0).integers(0, CLASSES, wrong[rows].sum())
    y = sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), labels.shape)
    y.data[:] = 1
    truth = sparse.csr_matrix(labels.to_dense())
    weighted = HalftruthClassifier().fit(x, y, sample_weight=np.where(wrong, 0.0, 1.0))
    assert weighted.score(x[~wrong], truth[~wrong]) > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hints": np.zeros((ROWS, CLASSES))}, "hints: not available"),
        ({"complete_rows": [0]}, "complete_rows: not available"),
        ({"sample_weight": np.ones((ROWS, CLASSES))}, "one weight per row"),
    ],
    ids=["hints", "complete rows", "weights"],
)
def test_estimator_refuses_what_needs_dense_labels(data, arguments, message):
    x, labels = data
    with pytest.raises(ValueError, match=message):
        HalftruthClassifier().fit(x, sparse.csr_matrix(labels.to_dense()), **arguments)


def test_metrics_of_blocks_do_not_depend_on_the_blocks():
    rng = np.random.default_rng(0)
    scores = torch.from_numpy(rng.normal(size=(40, 12)))
    labels = torch.from_numpy((rng.random((40, 12)) < 0.2).astype(np.int8))
    chance = rng.uniform(0.2, 1, 12)
    parts = []
    for size in (40, 7):
        metrics = RowBlockMetrics(chance)
        for at in range(0, 40, size):
            some = slice(at, at + size)
            metrics.add(scores[some], labels[some], scores[some] > 1)
        parts.append(metrics.compute())
    assert parts[0] == pytest.approx(parts[1])
    filled = labels.any(dim=1)
    assert parts[0]["P@3"] == pytest.approx(precision_at_k(scores[filled], labels[filled], 3))
    assert parts[0]["PSP@3"] == pytest.approx(
        propensity_scored_precision_at_k(scores, labels, 3, chance)
    )
