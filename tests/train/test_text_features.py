"""Text becomes features: TF-IDF, or the hidden states of a language model."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from halftruth.data import DataError
from halftruth.data.text_encoder import TextEncoder, check_texts
from halftruth.data.wide_matrix import measure_association
from halftruth.models.language_model import LanguageModel, load_model
from halftruth.models.weights import ModelError
from halftruth.train.build_models import build_standardized_head
from halftruth.train.config import Config
from halftruth.train.inputs.batches import fit_standardization, share_scale
from halftruth.train.inputs.feature_encoder import FeatureEncoder

TEXTS = ["I love this cat", "I hate this dog", "love love love", "dog eats dog", "a cat", ""] * 3
LABELS = np.array([[1, 0], [0, 1], [1, 0], [0, 1], [1, 0], [0, 0]] * 3, dtype=np.int8)
ROWS = np.arange(12)


def test_terms_come_from_training_rows_only():
    texts = ["common word", "common word", "unseen unseen", "unseen unseen"]
    labels = np.array([[1], [0], [1], [0]], dtype=np.int8)
    encoder = TextEncoder.fit(texts, labels, np.array([0, 1]))
    assert encoder.terms["words"] == ["common", "common word", "word"]
    assert not encoder.transform(["buzz"]).any()


def test_dense_features_are_columns_of_the_sparse_ones():
    encoder = TextEncoder.fit(TEXTS, LABELS, ROWS)
    sparse = encoder.encode_sparse(TEXTS)
    assert sparse.shape == (len(TEXTS), sum(map(len, encoder.terms.values())))
    np.testing.assert_allclose(encoder.transform(TEXTS), sparse.toarray()[:, encoder.chosen])
    assert not encoder.transform([""]).any()


def test_terms_of_a_class_are_chosen_first(monkeypatch):
    monkeypatch.setattr("halftruth.data.wide_matrix.MOST_FEATURES", 3)
    texts = ["good thing", "thing good", "bad thing", "thing bad", "thing", "the thing"] * 4
    labels = np.array([[1, 0], [1, 0], [0, 1], [0, 1], [0, 0], [0, 0]] * 4, dtype=np.int8)
    chosen = TextEncoder.fit(texts, labels, np.arange(24)).outputs
    assert len(chosen) == 3
    assert not {"words: thing", "words: the"} & set(chosen)


def test_terms_can_be_chosen_without_labels(monkeypatch):
    monkeypatch.setattr("halftruth.data.wide_matrix.MOST_FEATURES", 4)
    one = TextEncoder.fit(TEXTS, None, ROWS)
    assert len(one.chosen) == 4
    assert one.transform(TEXTS).var(axis=0).min() > 0


def test_association_does_not_count_unknown_as_absent():
    """Rows without a label change the mean of a term, not which of two terms fits a class."""
    from scipy import sparse

    matrix = sparse.csr_matrix(np.array([[1.0, 0], [1, 0], [0, 1], [0, 1]], dtype=np.float32))
    strong, weak = measure_association(matrix, np.array([[1], [1], [0], [0]], dtype=np.int8))
    assert strong > 0 > weak
    same = measure_association(matrix, np.array([[1], [1], [-1], [-1]], dtype=np.int8))
    np.testing.assert_allclose(same, [strong, weak])


def test_a_text_encoder_survives_its_files(tmp_path):
    encoder = FeatureEncoder.fit([], TEXTS, LABELS, ROWS)
    encoder.save(tmp_path)
    again = FeatureEncoder.load(tmp_path)
    assert np.array_equal(again.transform([], TEXTS), encoder.transform([], TEXTS))
    assert len(again.one_scale) == len(again.outputs)
    assert not list(tmp_path.glob("*.pkl"))
    (tmp_path / "encoder.npz").write_bytes(b"broken")
    with pytest.raises(DataError, match="is damaged"):
        FeatureEncoder.load(tmp_path)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["", " "], "every text is blank"),
        (["a", ["b"]], "row 2: expected text, got"),
    ],
)
def test_columns_that_are_no_text_are_refused(texts, message):
    with pytest.raises(DataError, match=message):
        check_texts(texts, "t.csv column 'note'")


def test_texts_that_share_nothing_are_refused():
    with pytest.raises(DataError, match="share no words; there is nothing to learn"):
        TextEncoder.fit(["one", "two"], np.ones((2, 1), np.int8), np.arange(2))


def test_a_language_model_stands_beside_the_terms(language_model, tmp_path):
    encoder = FeatureEncoder.fit([], TEXTS, LABELS, ROWS, str(language_model))
    together, terms = encoder.transform([], TEXTS), FeatureEncoder.fit([], TEXTS, LABELS, ROWS)
    np.testing.assert_array_equal(together[:, 8:], terms.transform([], TEXTS))
    assert encoder.outputs == [f"encoder[{k}]" for k in range(8)] + terms.outputs
    assert encoder.one_scale.tolist() == list(range(8, len(encoder.outputs)))
    # It says something of a text without a known term.
    assert terms.find_empty(terms.transform([], ["zzz"])).all()
    assert not encoder.find_empty(encoder.transform([], ["zzz"])).any()
    # The features do not depend on the batch.
    alone = np.concatenate([encoder.transform([], [text]) for text in TEXTS])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert not np.allclose(together[0, :8], together[1, :8])
    encoder.save(tmp_path)
    again = FeatureEncoder.load(tmp_path)
    assert again.describe_exactly() == encoder.describe_exactly() != terms.describe_exactly()
    np.testing.assert_allclose(again.transform([], TEXTS[:2]), alone[:2], atol=1e-5)


def test_a_wide_text_has_the_language_model_among_its_dense_columns(language_model, monkeypatch):
    monkeypatch.setattr("halftruth.data.wide_matrix.MOST_FEATURES", 4)
    encoder = FeatureEncoder.fit([], TEXTS, LABELS, ROWS, str(language_model), wide=True)
    matrix = encoder.transform([], TEXTS)
    assert (matrix.others, len(matrix.columns)) == (8, 12)
    np.testing.assert_allclose(np.asarray(matrix)[:, :8], encoder.language.transform(TEXTS))


def test_another_language_model_than_in_training_is_refused(language_model):
    with pytest.raises(ModelError, match="its weights are not those of training"):
        LanguageModel(str(language_model), digest="0" * 16)


def test_a_folder_without_a_model_is_refused(tmp_path):
    pytest.importorskip("transformers")
    with pytest.raises(ModelError, match=r"expected a folder with config\.json"):
        LanguageModel(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="cannot be loaded"):
        LanguageModel(str(tmp_path))


def test_sources_and_text_must_be_those_of_training():
    encoder = FeatureEncoder.fit([], TEXTS, LABELS, ROWS)
    with pytest.raises(DataError, match="text: is missing"):
        encoder.transform([])
    with pytest.raises(DataError, match="expected 0 sources, as in training, got 1"):
        encoder.transform([object()], TEXTS)


def test_rare_terms_do_not_outweigh_common_ones():
    """Half-way between one scale and one per column, which would make rare columns largest."""
    random = np.random.default_rng(0)
    x = (random.random((500, 2)) < [0.5, 0.01]) * np.array([1.0, 1.0])
    alone = fit_standardization(x)
    shared = share_scale(fit_standardization(x), np.array([0, 1]))
    before, after = (float(scale.std[0] / scale.std[1]) for scale in (alone, shared))
    assert after == pytest.approx(np.sqrt(before))
    assert share_scale(fit_standardization(x), None).std.equal(alone.std)


def test_a_language_model_computes_in_float32_whatever_its_file_holds(language_model, tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizer, model = load_model(str(language_model))
    tokenizer.save_pretrained(tmp_path)
    transformers.AutoModel.from_pretrained(language_model).bfloat16().save_pretrained(tmp_path)
    again = load_model(str(tmp_path))[1]
    assert {tensor.dtype for tensor in again.parameters()} == {torch.float32}
    assert {tensor.dtype for tensor in model.parameters()} == {torch.float32}


def test_a_language_model_with_code_of_its_own_is_refused(language_model, tmp_path, monkeypatch):
    """Not asked for on the terminal: with "y" the code would run."""
    shutil.copytree(language_model, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    own = {"AutoConfig": "code.Config", "AutoModel": "code.Model"}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"auto_map": own, "model_type": "x"}))
    (tmp_path / "model" / "code.py").write_text("raise SystemExit('foreign code has run')\n")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(str(tmp_path / "model"))


def test_terms_of_a_text_keep_half_of_their_scales_in_a_network():
    """Standardised one by one, a rare term would count much more than a common one."""
    features = torch.tensor(np.random.default_rng(0).normal(size=(40, 3)) * [1, 2, 8]).float()
    heads = []
    for columns in (None, np.array([1, 2])):
        encoder = None if columns is None else SimpleNamespace(one_scale=columns)
        task = SimpleNamespace(
            splits=SimpleNamespace(train=np.arange(40)), classes=("cat", "dog"), encoder=encoder
        )
        heads.append(build_standardized_head(Config(labels="l.csv", text="note"), task, features))
    own, shared = (head.backbone[0].std for head in heads)
    assert shared[0] == own[0]
    torch.testing.assert_close(shared[1:], (own[1:] * own[1:].mean()).sqrt())
