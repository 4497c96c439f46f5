"""All terms of a text, and other sparse matrices: from the reader to the export."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.metrics import roc_auc_score

import halftruth
from halftruth.audit.make_audit import make_audit
from halftruth.data import DataError
from halftruth.data.wide_matrix import WideMatrix
from halftruth.estimator import HalftruthClassifier
from halftruth.models.export import export_torch, load_torch
from halftruth.train.ensemble.fit_ensemble import fit_ensemble
from halftruth.train.inputs.batches import make_inputs, make_sparse_tensor

SIGNAL = {"joy": "happy glad", "anger": "furious mad", "fear": "scared afraid"}
OTHER = [f"{a}{b}" for a in ("ka", "lo", "mi", "nu", "pe", "ra") for b in ("ta", "ve", "zi", "so")]


def make_texts(count=100):
    """Texts with the words of their labels among others, and the labels."""
    random = np.random.default_rng(0)
    texts, labels = [], random.random((count, 3)) < 0.4
    for present in labels:
        words = random.choice(OTHER, 6).tolist()
        for there, some in zip(present, SIGNAL.values(), strict=True):
            words += [random.choice(some.split())] if there else []
        texts.append(" ".join(random.permutation(words)))
    return texts, labels.astype(np.int8)


def make_matrix(rows=120, columns=90):
    """A sparse matrix whose rare columns tell the labels."""
    random = np.random.default_rng(1)
    x = sparse.random(rows, columns, 0.15, "csr", dtype=np.float32, random_state=2)
    z = np.asarray(x @ random.normal(size=(columns, 2)))
    return x, (z > np.quantile(z, 0.6, axis=0)).astype(np.int8)


@pytest.fixture
def few_dense(monkeypatch):
    """Only 16 columns may be dense."""
    monkeypatch.setattr("halftruth.data.wide_matrix.MOST_FEATURES", 16)
    monkeypatch.setattr("halftruth.estimator.classifier.MOST_FEATURES", 16)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wide")
    texts, labels = make_texts()
    frame = pd.DataFrame(labels, columns=[*SIGNAL])
    frame.insert(0, "comment", texts)
    frame.insert(0, "id", [f"c{k}" for k in range(len(texts))])
    frame.to_csv(folder / "comments.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("halftruth.data.wide_matrix.MOST_FEATURES", 16)
        halftruth.fit(
            folder / "comments.csv", text="comment", out=folder / "run", quiet=True, report=False
        )
    return folder


def test_all_terms_reach_the_prediction(run):
    trained = halftruth.load(run / "run")
    terms = len(trained.encoder.text.idf)
    assert trained.inputs == terms > 100
    assert len(trained.model.head.columns) == 16
    found = trained.predict(["kata happy", "furious loso", "scared mita", ""])
    assert [row["labels"].split("|")[0] for _, row in found[:3].iterrows()] == [*SIGNAL]


def test_predictions_do_not_depend_on_blocks_or_on_the_kind_of_matrix(run, monkeypatch):
    trained = halftruth.load(run / "run", device="cpu")
    texts, _ = make_texts()
    whole = trained.score(texts).logits
    monkeypatch.setattr("halftruth.train.inputs.feature_inputs.TEXTS_AT_ONCE", 17)
    blocks = np.concatenate([part.logits for part in trained.open_parts(text=texts)])
    np.testing.assert_allclose(blocks, whole, atol=1e-5)
    matrix = trained.encoder.transform([], texts)
    with torch.no_grad():
        dense = trained.model(torch.from_numpy(matrix.sparse.toarray())).numpy()
    np.testing.assert_allclose(dense, whole, atol=1e-4)
    np.testing.assert_allclose(trained.score(features=matrix).logits, whole, atol=1e-5)


def test_a_finished_run_resumes_to_the_same_result(run):
    before = (run / "run" / "result.json").read_text()
    halftruth.fit(out=run / "run", resume=True, quiet=True)
    after = (run / "run" / "result.json").read_text()
    assert before.split('"seconds"')[0] == after.split('"seconds"')[0]


def test_the_export_takes_the_terms_as_a_dense_matrix(run, tmp_path):
    trained = halftruth.load(run / "run")
    made = export_torch(trained, tmp_path / "text.pt2")
    texts = ["kata happy", "furious"]
    dense = torch.from_numpy(trained.encoder.transform([], texts).sparse.toarray())
    exported = load_torch(made.path)(dense).numpy()
    np.testing.assert_allclose(exported, trained.score(texts).probabilities, atol=1e-4)
    assert "encoder.json" in made.notes.read_text()


def test_held_out_rows_have_no_part_in_the_choice_of_columns(few_dense):
    """Of many columns without any meaning, some fit the labels by chance."""
    x = sparse.random(150, 3000, 0.02, "csr", dtype=np.float32, random_state=0)
    labels = (np.random.default_rng(0).random((150, 2)) < 0.4).astype(np.int8)
    found = fit_ensemble(WideMatrix(x, np.arange(0)), labels, members=["forest", "neighbours"])
    assert roc_auc_score(labels, found.logits, average="macro") < 0.6


def test_columns_of_a_table_count_beside_those_of_a_text(few_dense):
    x, labels = make_matrix()
    told = np.random.default_rng(0).normal(size=(120, 1)) + 3 * labels[:, :1]
    both = sparse.hstack([sparse.csr_matrix(1000 + 10 * told), x], "csr", np.float32)
    wide = WideMatrix(both, np.arange(1), others=1)
    found = fit_ensemble(wide, labels, members=["linear"])
    alone = fit_ensemble(WideMatrix(x, np.arange(0)), labels, members=["linear"])
    assert found.score > alone.score + 0.05
    assert [one.name for one in found.table] == ["linear", "dense"]
    batch = next(make_inputs(wide).load([np.arange(120)], torch.device("cpu")))[0]
    dense = found.model(torch.from_numpy(both.toarray()))
    np.testing.assert_allclose(found.model(batch), dense, atol=1e-3)
    assert torch.isfinite(dense).all()


def test_the_estimator_keeps_a_wide_matrix_sparse(few_dense):
    x, labels = make_matrix()
    model = HalftruthClassifier(members=["linear"]).fit(sparse.csc_matrix(x), labels)
    assert model.model_.head.parts["linear"].weight.shape == (90, 2)
    found = model.predict_proba(sparse.csr_array(x))
    np.testing.assert_allclose(model.predict_proba(x.toarray()), found, atol=1e-6)
    assert roc_auc_score(labels, found) > 0.9


def test_values_in_one_place_count_together(few_dense):
    x, labels = make_matrix()
    model = fit_ensemble(x, labels, members=["linear", "neighbours"]).model.double()
    split = sparse.csr_matrix(
        (np.repeat(x.data / 2, 2), np.repeat(x.indices, 2), 2 * x.indptr), shape=x.shape
    )
    batch = make_sparse_tensor(split.astype(np.float64))
    own = make_sparse_tensor(x.astype(np.float64))
    np.testing.assert_allclose(model(batch), model(own), atol=1e-6)


def write(folder, texts):
    labels = np.arange(len(texts)) % 2
    frame = pd.DataFrame({"note": texts, "up": labels, "down": 1 - labels})
    frame.to_csv(folder / "notes.csv", index=False)
    return folder / "notes.csv"


SETTINGS = {"method": "bce", "epochs": 1, "report": False, "quiet": True}


@pytest.mark.parametrize(
    ("texts", "column", "message"),
    [
        (["", " "] * 15, "note", "column 'note': every text is blank; name the column"),
        ([f"w{k * 7919}" for k in range(30)], "note", r"share no words.*Is it the column"),
        (["a word", "b word"] * 15, "notes", r"text='notes'.*did you mean 'note'"),
    ],
)
def test_texts_that_teach_nothing_are_refused(tmp_path, texts, column, message):
    with pytest.raises(DataError, match=message):
        halftruth.fit(write(tmp_path, texts), text=column, out=tmp_path / "run", **SETTINGS)


@pytest.mark.parametrize(
    "texts",
    [
        ["good thing", "", None] * 10,
        ["the of a", "to the of"] * 15,
        ["cat"] * 30,
        ["😀 🎉", "😢"] * 15,
        ["今天天气很好", "我很难过"] * 15,
        [1.5, 2, 1.5] * 10,
    ],
    ids=["some missing", "stop words", "one word", "emoji", "no spaces", "numbers"],
)
def test_unusual_texts_are_read(tmp_path, texts):
    halftruth.fit(write(tmp_path, texts), text="note", out=tmp_path / "run", **SETTINGS)
    found = halftruth.predict(tmp_path / "run", [str(texts[0]), "unseen", ""])
    assert np.isfinite(found[["up", "down"]].to_numpy()).all()


def test_lists_in_a_frame_are_no_text(run):
    with pytest.raises(DataError, match=r"row 2: expected text, got \['a'\]"):
        halftruth.predict(run / "run", pd.DataFrame({"comment": ["happy", ["a"]]}))


def test_an_audit_scores_the_rows_of_a_wide_run(run, tmp_path):
    audit = make_audit(run / "run", run / "comments.csv", out=tmp_path / "audit")
    scores = audit.scored.scores
    assert scores.shape == (100, 3)
    assert np.isfinite(scores).all()
