"""A fine-tuned language model: head first, then everything; predict, evaluate, audit, resume."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from tiny_data import SAME

import halftruth
from halftruth.audit.make_audit import make_audit
from halftruth.data import DataError
from halftruth.train.config import Config, ConfigError
from halftruth.train.results.evaluate import evaluate
from halftruth.train.run_folder import CheckpointError, load_checkpoint, write_manifest

WORDS = {"joy": "happy", "anger": "furious", "fear": "scared"}
FILLER = ("the", "a", "so", "they", "well")
SHORT = {"method": "bce", "device": "cpu", "report": False, "quiet": True, "lr": 0.01, "epochs": 2}


@pytest.fixture(scope="module")
def comments(tmp_path_factory):
    folder = tmp_path_factory.mktemp("comments")
    random = np.random.default_rng(0)
    rows = []
    for k in range(80):
        present = random.random(3) < 0.4
        words = [w for p, w in zip(present, WORDS.values(), strict=True) if p]
        words += random.choice(FILLER, random.integers(1, 4)).tolist()
        random.shuffle(words)
        part = ("train", "train", "train", "val", "test")[k % 5]
        rows.append([f"c{k}", " ".join(words), part, *present.astype(int)])
    frame = pd.DataFrame(rows, columns=["id", "comment", "split", *WORDS])
    frame.to_csv(folder / "comments.csv", index=False)
    return folder / "comments.csv"


def fit(comments, language_model, out, **more):
    settings = {**SHORT, "text": "comment", "encoder": language_model, "tune": "head-first", **more}
    if settings["tune"] == "head-first":
        settings.setdefault("head_epochs", 2)
    return halftruth.fit(comments, out=out, **settings)


@pytest.fixture(scope="module")
def run(comments, language_model, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "tuned"
    fit(comments, language_model, out, epochs=12)
    return out


def test_both_stages_train_and_the_encoder_changes(run, language_model):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["stage"] for line in lines] == ["head"] * 2 + ["all"] * 12
    from transformers import AutoModel

    before = AutoModel.from_pretrained(language_model).state_dict()[
        "encoder.layer.0.output.dense.weight"
    ]
    after = load_checkpoint(run / "best.safetensors")["model"]
    assert not torch.allclose(before, after["backbone.model.encoder.layer.0.output.dense.weight"])


def test_a_tuned_model_has_learnt_the_words(run, comments):
    complete = {"zero": "absent"}
    assert evaluate(run, comments, split="test", reading=complete).metrics["mAP"] > 0.7
    table = halftruth.predict(run, ["so happy", "they furious", ""])
    assert table["joy"][0] > table["joy"][1]
    assert table["anger"][1] > table["anger"][0]


def test_fine_tuning_learns_what_frozen_features_do_not_show(language_model, tmp_path):
    """A class is present where exactly one of two words is: no sum over the words tells that."""
    random = np.random.default_rng(0)
    rows = []
    for k in range(240):
        cat, dog = (int(value) for value in random.random(2) < 0.5)
        words = ["cat"] * cat + ["dog"] * dog + random.choice(["the", "so"], 2).tolist()
        random.shuffle(words)
        part = ("train", "train", "val", "test")[k % 4]
        rows.append([f"c{k}", " ".join(words), part, int(cat != dog), int(cat == dog)])
    frame = pd.DataFrame(rows, columns=["id", "comment", "split", "one", "other"])
    frame.to_csv(tmp_path / "pets.csv", index=False)
    scores = {}
    for tune, more in (("head", {"epochs": 20}), ("head-first", {"epochs": 40, "lr": 0.02})):
        halftruth.fit(
            tmp_path / "pets.csv", out=tmp_path / tune, text="comment", encoder=language_model,
            tune=tune, zero="absent", method="bce", device="cpu", report=False, quiet=True, **more,
        )  # fmt: skip
        found = evaluate(tmp_path / tune, tmp_path / "pets.csv", split="test")
        scores[tune] = found.metrics["mAP"]
    assert scores["head"] < 0.85
    assert scores["head-first"] > 0.95


def test_predictions_do_not_depend_on_the_batch_or_the_padding(run):
    texts = ["so happy", "they furious well the a so", "scared"]
    together = halftruth.predict(run, texts)
    alone = pd.concat([halftruth.predict(run, [text]) for text in texts])
    np.testing.assert_allclose(together[[*WORDS]], alone[[*WORDS]], atol=SAME)


def test_a_run_needs_the_encoder_folder_no_more(comments, language_model, tmp_path):
    import shutil

    copy = tmp_path / "bert"
    shutil.copytree(language_model, copy)
    fit(comments, copy, tmp_path / "run", epochs=1)
    expected = halftruth.predict(tmp_path / "run", ["so happy"])
    shutil.rmtree(copy)
    pd.testing.assert_frame_equal(halftruth.predict(tmp_path / "run", ["so happy"]), expected)


def test_a_tuned_run_audits_its_texts(run, comments, tmp_path):
    found = make_audit(run, comments, out=tmp_path / "audit")
    assert "run" in found.info["origin"]


def test_a_stopped_run_continues_with_the_same_weights(comments, language_model, tmp_path):
    fit(comments, language_model, tmp_path / "whole", epochs=3, schedule="constant")
    fit(comments, language_model, tmp_path / "part", epochs=2, schedule="constant")
    fit(comments, language_model, tmp_path / "part", epochs=3, schedule="constant", resume=True)
    whole, part = (load_checkpoint(tmp_path / n / "last.safetensors") for n in ("whole", "part"))
    for name, tensor in whole["model"].items():
        torch.testing.assert_close(tensor, part["model"][name], msg=name)


@pytest.mark.parametrize("tune", ["all", "head"])
def test_other_stages(comments, language_model, tmp_path, tune):
    more = {"tune": tune} | ({"epochs": 1} if tune == "all" else {})
    settings = {k: v for k, v in SHORT.items() if tune == "all" or k != "lr"}
    halftruth.fit(
        comments, out=tmp_path, text="comment", encoder=language_model, **{**settings, **more}
    )
    assert len(halftruth.predict(tmp_path, ["so happy"])) == 1
    frozen = "frozen encoder" if tune == "head" else "is fine-tuned"
    assert frozen in halftruth.load(tmp_path).encoder.describe()


def test_auto_fine_tunes_with_its_choice(comments, language_model, tmp_path):
    more = {"method": "auto", "epochs": 1, "head_epochs": 1, "budget": 0}
    result = fit(comments, language_model, tmp_path / "run", **more)
    assert result.method != "auto"
    assert not result.members


def test_defaults_are_those_of_fine_tuning():
    given = {"labels": __file__, "text": "t", "encoder": "e"}
    assert Config.of(given).tune == "head"
    assert Config.of(given).epochs == 30
    tuned = Config.of({**given, "tune": "head-first"})
    assert (tuned.lr, tuned.epochs, tuned.tunes_encoder) == (3e-5, 4, True)
    assert Config.of({**given, "tune": "head"}).tunes_encoder is False


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"lr": 1e-4}, "lr: has no effect"),
        ({"tune": "all", "head_epochs": 2}, "head_epochs: has no effect"),
        ({"tune": "all", "backbone": "resnet18"}, "backbone: has no effect"),
        ({"tune": "all", "features": __file__}, "stays frozen; leave out one of the two"),
        ({"tune": "all", "head": "variational"}, "has a linear head"),
        ({"tune": "all", "method": "consistency"}, "compares views"),
        ({"tune": "all", "encoder": None}, "tune: has no effect"),
        ({"tune": "all", "hidden": 8}, "hidden: has no effect"),
    ],
)
def test_settings_without_effect_are_refused(more, message):
    with pytest.raises(ConfigError, match=message):
        Config.of({"labels": __file__, "text": "t", "encoder": "e", **more})


def test_sentence_transformers_folders_are_read(language_model, tmp_path, comments):
    """The older layout has the model in 0_Transformer, and says how states are pooled."""
    import shutil

    from halftruth.models.language_model import LanguageModel, read_pooling

    shutil.copytree(language_model, tmp_path / "st" / "0_Transformer")
    (tmp_path / "st" / "1_Pooling").mkdir()
    pooling = tmp_path / "st" / "1_Pooling" / "config.json"
    pooling.write_text('{"pooling_mode_cls_token": true}')
    first = LanguageModel(str(tmp_path / "st")).transform(["so happy"])
    pooling.write_text('{"pooling_mode_mean_tokens": true}')
    mean = LanguageModel(str(tmp_path / "st")).transform(["so happy"])
    assert read_pooling(str(tmp_path / "st")) == "mean"
    np.testing.assert_allclose(mean, LanguageModel(str(language_model)).transform(["so happy"]))
    assert not np.allclose(first, mean)


def test_a_tuned_run_is_shared_with_its_tokenizer(run, tmp_path):
    from halftruth.hub.hub_folder import write_hub_folder

    assert "encoder" in write_hub_folder(run, tmp_path / "hub")
    expected = halftruth.predict(run, ["so happy"])
    pd.testing.assert_frame_equal(halftruth.predict(tmp_path / "hub", ["so happy"]), expected)


def test_a_lost_tokenizer_is_one_message(run, tmp_path):
    import shutil

    shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "encoder")
    with pytest.raises(CheckpointError, match=r"encoder/config\.json, .* missing"):
        halftruth.load(tmp_path / "run")
    # A run of somebody else, of which the file with the checksums agrees.
    write_manifest(tmp_path / "run")
    with pytest.raises((DataError, ValueError), match="tokenizer of the run cannot be read"):
        halftruth.load(tmp_path / "run")


def test_a_tuned_model_is_exported_with_its_tokens(run, tmp_path):
    from halftruth.models.export import export_torch

    done = export_torch(halftruth.load(run), tmp_path / "m.pt2")
    notes = json.loads(done.notes.read_text())["input"]
    assert (notes["kind"], notes["padding"]) == ("tokens", -1)
    loaded = halftruth.load(run)
    rows = torch.from_numpy(loaded.encoder.transform([], ["so happy", "they furious well"]))
    got = torch.export.load(tmp_path / "m.pt2").module()(rows)
    wanted = loaded.predict(["so happy", "they furious well"])[[*WORDS]].to_numpy()
    np.testing.assert_allclose(got.detach().numpy(), wanted, atol=1e-4)
