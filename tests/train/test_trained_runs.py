"""Predict, evaluate and load need the run folder only."""

import io
import json
import shutil
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from real_processes import Command
from tiny_data import CLASSES, IMAGES, arguments, command, outcome

import halftruth
from halftruth import fit
from halftruth.data import DataError
from halftruth.train import CheckpointError, ConfigError
from halftruth.train.results.trained_run import TrainedRun
from halftruth.train.run_folder import write_manifest


@pytest.fixture(scope="module")
def images_run(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("images") / "run"
    settings = {**IMAGES, "labels": data / "labels.csv", "truth": data / "truth.csv"}
    settings |= {"head_lr": 0.05, "head_epochs": 3, "epochs": 1, "method": "hill"}
    fit(**settings, images=data / "photos", out=out, quiet=True)
    return out


@pytest.fixture(scope="module")
def features_run(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("features") / "run"
    settings = {
        "features": data / "features.npy",
        "hidden": 5,
        "dropout": 0.2,
        "head_lr": 0.05,
        "method": "em",
    }
    settings |= {"report": False}
    fit(data / "labels.csv", **settings, device="cpu", batch_size=6, epochs=4, out=out, quiet=True)
    return out


@pytest.mark.parametrize("part", ["val", "test"])
def test_evaluate_in_a_new_process_repeats_the_metrics_of_training(
    images_run, data, tmp_path, part
):
    out = tmp_path / "found.json"
    # truth.csv has no split column.
    truth = pd.read_csv(data / "truth.csv")
    truth.insert(1, "split", pd.read_csv(data / "labels.csv")["split"])
    truth.to_csv(tmp_path / "truth.csv", index=False)
    options = {"images": data / "photos", "split": part, "out": out, "device": "cpu"}
    options["zero"] = "absent"
    line = ("evaluate", images_run, tmp_path / "truth.csv", *arguments(options))
    running = Command(*line, log=tmp_path / "log")
    assert running.wait() == 0, running.output()
    found = json.loads(out.read_text())
    assert found["metrics"] == pytest.approx(outcome(images_run)[part], abs=1e-6)
    assert [row["class"] for row in found["classes"]] == list(CLASSES)
    assert np.mean([row["AP"] for row in found["classes"]]) == pytest.approx(
        found["metrics"]["mAP"]
    )
    assert "mAP" in running.output()


@pytest.mark.parametrize("part", ["val", "test"])
def test_evaluate_on_features_repeats_the_metrics_of_training(features_run, data, part):
    metrics, table, bad, *_ = halftruth.evaluate(
        features_run, data / "labels.csv", features=data / "features.npy", split=part,
        unknown="absent",
    )  # fmt: skip
    observed = outcome(features_run)["counting_unknown_as_absent"][part]
    assert metrics == pytest.approx(observed, abs=1e-6)
    assert table["present"].sum() == (9 if part == "val" else 8)
    assert bad == []


def test_the_label_file_of_training_is_read_and_split_as_in_training(data, tmp_path):
    """Zero means absent in this run, and its seed draws the split."""
    labels = pd.read_csv(data / "truth.csv")
    labels.to_csv(tmp_path / "labels.csv", index=False)
    settings = {"features": data / "features.npy", "zero": "absent", "seed": 5, "val": 0.3}
    settings |= {"report": False}
    run = tmp_path / "run"
    fit(
        tmp_path / "labels.csv",
        **settings,
        device="cpu",
        method="em",
        epochs=1,
        out=run,
        quiet=True,
    )
    found = halftruth.evaluate(
        run, tmp_path / "labels.csv", features=data / "features.npy", split="val"
    )
    assert found.metrics == pytest.approx(outcome(run)["val"], abs=1e-6)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_predictions_use_the_fitted_thresholds(images_run, data, tmp_path, ending):
    out = tmp_path / f"predictions.{ending}"
    line = ("predict", images_run, "--images", data / "photos", "--out", out, "--device", "cpu")
    assert command(*line) == 0
    table = pd.read_csv(out) if ending == "csv" else pd.read_parquet(out)
    assert list(table.columns) == ["item", "labels", *CLASSES, "basis"]
    assert sorted(table["item"]) == sorted(f"p{row}.png" for row in range(44))
    thresholds = outcome(images_run)["thresholds"]
    for _, row in table.iterrows():
        chosen = [c for c, value in zip(CLASSES, thresholds, strict=True) if row[c] > value]
        listed = row["labels"] if isinstance(row["labels"], str) else ""
        assert listed == "|".join(chosen)


def test_a_run_cuts_the_sigmoid_with_score_and_the_probability_with_threshold(features_run, data):
    """Published cuts are of the sigmoid; also the histograms of a run's classes are of it."""
    run = halftruth.load(features_run, device="cpu")
    raw, p = (run.predict(data / "features.npy", raw=which)[list(run.classes)] for which in (1, 0))
    cut = float(np.median(raw))
    for rule, shown in ((f"score={cut:.3f}", raw), (f"threshold={cut:.3f}", p)):
        labels = run.predict(data / "features.npy", decide=rule)["labels"]
        above = shown > float(f"{cut:.3f}")
        expected = ["|".join(above.columns[row]) for row in above.to_numpy()]
        assert list(labels.fillna("")) == expected
    assert (raw.to_numpy() != p.to_numpy()).any()
    with np.load(features_run / "class_histograms.npz") as file:
        counts = file["val"].sum(axis=1)
    scores = 1 / (1 + np.exp(-run.held_out.logits))
    for k, bins in enumerate(counts):
        assert list(bins) == list(np.histogram(scores[:, k], bins=20, range=(0, 1))[0])


def test_names_that_look_like_formulas_are_written_as_text(features_run, data, tmp_path):
    names = ["=HYPERLINK(1)", "+1", "-1", "@x", "\tx", "plain"]
    items = [names[row % 6] + str(row) for row in range(44)]
    run = TrainedRun(features_run, device="cpu")
    from halftruth.train.results.predictions import write_predictions

    for ending in ("csv", "parquet"):
        path = tmp_path / f"p.{ending}"
        write_predictions(run, path, features=data / "features.npy", items=items)
    safe = pd.read_csv(tmp_path / "p.csv")["item"]
    assert not safe.str.startswith(("=", "+", "-", "@", "\t")).any()
    assert [name.removeprefix("'") for name in safe] == items
    assert pd.read_parquet(tmp_path / "p.parquet")["item"].tolist() == items


def test_inputs_and_labels_that_do_not_fit_the_run_are_refused(
    features_run, images_run, data, tmp_path
):
    np.save(tmp_path / "wide.npy", np.zeros((4, 7), np.float32))
    with pytest.raises(DataError, match=r"trained on 3 features per row, got .*\(4, 7\)"):
        halftruth.predict(features_run, features=tmp_path / "wide.npy")
    with pytest.raises(DataError, match="was trained on features"):
        halftruth.predict(features_run, images=data / "photos")
    with pytest.raises(DataError, match="was trained on images"):
        halftruth.predict(images_run, features=data / "features.npy")
    with pytest.raises(DataError, match=r"on images; expected them \(--images\).*got neither"):
        halftruth.predict(images_run)
    with pytest.raises(DataError, match=r"on features; expected them \(--features\).*got more"):
        halftruth.predict(features_run, images=data / "photos", features=data / "features.npy")
    (tmp_path / "other.csv").write_text("image,red,green\np0.png,1,0\n")
    with pytest.raises(DataError, match="classes of the run are missing in the labels: 'blue'"):
        halftruth.evaluate(images_run, tmp_path / "other.csv", images=data / "photos")
    with pytest.raises(DataError, match="no split column, so the part 'test' cannot"):
        halftruth.evaluate(images_run, data / "truth.csv", images=data / "photos", split="test")
    with pytest.raises(DataError, match="expected train, val or test"):
        halftruth.evaluate(images_run, data / "labels.csv", images=data / "photos", split="tset")
    with pytest.raises(ConfigError, match="holds no run"):
        TrainedRun(tmp_path)
    with pytest.raises(ConfigError, match="device: expected one of"):
        TrainedRun(features_run, device="gpu")
    assert command("predict", images_run, "--images", data / "photos", "--out", "p.txt") == 2


def test_a_run_that_has_not_finished_predicts_with_thresholds_of_one_half(
    features_run, data, tmp_path, capsys
):
    half = tmp_path / "half"
    half.mkdir()
    for name in ("config.yaml", "best.safetensors"):
        (half / name).write_bytes((features_run / name).read_bytes())
    out = tmp_path / "p.csv"
    assert command("predict", half, "--features", data / "features.npy", "--out", out) == 0
    assert "training is not finished" in "".join(capsys.readouterr())
    (half / "best.safetensors").unlink()
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        TrainedRun(half)
    (half / "config.yaml").write_text("labels: a\nwarp: 9\n")
    with pytest.raises(CheckpointError, match="does not have: warp"):
        TrainedRun(half)


# ---------------------------------------------------------------------- what predict accepts


def _photo(data, row):
    return data / "photos" / f"p{row}.png"


@pytest.mark.parametrize(
    ("give", "names"),
    [
        (lambda data: _photo(data, 1), ["photos/p1.png"]),
        (lambda data: str(_photo(data, 1)), ["photos/p1.png"]),
        (lambda data: [_photo(data, 1), _photo(data, 3)], ["photos/p1.png", "photos/p3.png"]),
        (lambda data: [_photo(data, 1), _photo(data, 1)], ["photos/p1.png", "photos/p1.png"]),
        (lambda data: Image.open(_photo(data, 1)), ["0"]),
        (lambda data: Image.open(_photo(data, 1)).convert("RGBA"), ["0"]),
        (lambda data: np.asarray(Image.open(_photo(data, 1))), ["0"]),
        (lambda data: [np.asarray(Image.open(_photo(data, n))) for n in (1, 3)], ["0", "1"]),
        (lambda data: np.stack([np.asarray(Image.open(_photo(data, 1)))] * 2), ["0", "1"]),
        (lambda data: [Image.open(_photo(data, 1)), _photo(data, 3)], ["0", "photos/p3.png"]),
    ],
)
def test_predict_takes_files_images_and_arrays(images_run, data, give, names):
    run = halftruth.load(images_run, device="cpu")
    whole = run.predict(data / "photos").set_index("item")
    found = run.predict(give(data))
    assert [name.removeprefix(f"{data}/") for name in found["item"]] == names
    expected = whole.loc[["p1.png"], list(CLASSES)].to_numpy(dtype=float)
    np.testing.assert_allclose(
        found[list(CLASSES)].to_numpy()[:1].astype(float), expected, atol=1e-5
    )


def test_items_are_the_names_of_images_given_one_by_one(images_run, data):
    run = halftruth.load(images_run, device="cpu")
    images = [Image.open(_photo(data, row)) for row in (1, 3)]
    assert run.predict(images, items=["a", "b"])["item"].tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere.jpg", "nowhere.jpg: there is no such image, folder or zip file"),
        ([np.zeros((8, 8, 3))], r"expected an array \(height, width, 3\) of uint8.*float64"),
        (np.zeros((3, 8, 8), np.uint8), r"expected an array .* got uint8 \(3, 8, 8\)"),
        ([1.5], "expected a file, a PIL image or an array, got float"),
        ([], "no folder or zip file of images was given"),
    ],
)
def test_images_that_cannot_be_used_are_refused(images_run, source, message):
    with pytest.raises(DataError, match=message):
        halftruth.load(images_run, device="cpu").predict(source)


def test_two_images_with_one_name_and_wrong_numbers_of_names_are_refused(images_run, data):
    run = halftruth.load(images_run, device="cpu")
    images = [Image.open(_photo(data, row)) for row in (1, 3)]
    with pytest.raises(DataError, match="two images have the name 'a'"):
        run.predict(images, items=["a", "a"])
    with pytest.raises(DataError, match="expected 2 items, one per image, got 1"):
        run.predict(images, items=["a"])
    with pytest.raises(DataError, match="either image files or folders"):
        run.predict([data / "photos", _photo(data, 1)])


def test_no_readable_image_is_an_error(images_run, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.raises(DataError, match="none of the 1 images can be read"):
        halftruth.load(images_run, device="cpu").predict(tmp_path)


def test_symbolic_links_to_images_are_read(images_run, data, tmp_path):
    (tmp_path / "link.png").symlink_to(_photo(data, 1))
    run = halftruth.load(images_run, device="cpu")
    for source in (tmp_path, tmp_path / "link.png"):
        assert run.score(source).bad == []


def test_the_command_takes_files_as_arguments(images_run, data, tmp_path):
    out = tmp_path / "p.csv"
    files = [_photo(data, 1), _photo(data, 3)]
    assert command("predict", images_run, *files, "--out", out, "--device", "cpu") == 0
    assert pd.read_csv(out)["item"].tolist() == [str(path) for path in files]
    assert command("predict", images_run, *files, "--images", data, "--out", out) == 2


@pytest.mark.parametrize("ending", ["csv", "parquet", "frame"])
def test_ids_of_features_are_kept(features_run, data, tmp_path, ending):
    matrix = np.load(data / "features.npy")[:5]
    frame = pd.DataFrame(matrix, columns=["a", "b", "c"])
    ids = [f"row {number}" for number in range(5)]
    if ending == "frame":
        source = frame.set_index(pd.Index(ids))
    else:
        frame.insert(0, "id", ids)
        source = tmp_path / f"x.{ending}"
        frame.to_csv(source, index=False) if ending == "csv" else frame.to_parquet(source)
    found = halftruth.predict(features_run, source)
    assert found["item"].tolist() == ids
    plain = halftruth.predict(features_run, matrix)
    assert plain["item"].tolist() == list("01234")
    np.testing.assert_allclose(found[list(CLASSES)], plain[list(CLASSES)], atol=1e-6)


def test_features_that_are_not_numbers_are_refused(features_run):
    for wrong in ([["a", "b", "c"]], [[1.0, 2.0, np.nan]]):
        with pytest.raises(DataError, match="features"):
            halftruth.predict(features_run, wrong)


# ---------------------------------------------------------------------- broken runs, full disks


@pytest.fixture
def copied_run(features_run, tmp_path):
    return shutil.copytree(features_run, tmp_path / "copy")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", "null", '{"thresholds": [0.5]}', '{"thresholds": ["a", "b", "c"]}',
     '{"thresholds": [0.5, 0.5, null]}', '{"thresholds": [0.5, 0.5, NaN]}', "\ud800"],
)  # fmt: skip
def test_a_damaged_result_file_is_reported(copied_run, data, text, capsys):
    (copied_run / "result.json").write_text(text, encoding="utf-8", errors="surrogatepass")
    write_manifest(copied_run)
    with pytest.raises(CheckpointError, match=r"result\.json"):
        halftruth.predict(copied_run, data / "features.npy")
    assert command("predict", copied_run, "--features", data / "features.npy") == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        {"decide": "best"},
        {"decide": 3},
        {"probabilities": "high"},
        {"probabilities": [1]},
        {"probabilities": {"offset": [0]}},
        {"probabilities": {}},
        {"not_predicted": 3},
    ],
    ids=str,
)
def test_wrong_values_in_a_result_file_are_one_sentence(copied_run, data, change):
    found = json.loads((copied_run / "result.json").read_text())
    (copied_run / "result.json").write_text(json.dumps({**found, **change}))
    write_manifest(copied_run)
    with pytest.raises(CheckpointError, match=r"result\.json is damaged.*train again"):
        halftruth.predict(copied_run, data / "features.npy")


def pack(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


ROWS = {"rows": np.arange(4), "items": np.array(list("abcd"))}
ROWS |= {"labels": np.ones((4, 3), np.int8), "logits": np.ones((4, 3))}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04" + bytes(99),
        pack(**ROWS)[:300],
        pack(rows=np.arange(4)),
        pack(**{**ROWS, "logits": np.ones((4, 2))}),
        pack(**{**ROWS, "labels": np.ones((3, 3), np.int8)}),
        pack(**{**ROWS, "items": np.array(["a"])}),
        pack(**{**ROWS, "logits": np.full((4, 3), np.nan)}),
        pack(**{**ROWS, "labels": np.full((4, 3), 7)}),
    ],
    ids=["empty", "zip", "half", "keys", "classes", "rows", "items", "nan", "codes"],
)
def test_damaged_out_of_sample_rows_are_one_sentence(copied_run, content):
    """No file stays open."""
    (copied_run / "out_of_sample.npz").write_bytes(content)
    write_manifest(copied_run)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(CheckpointError, match=r"out_of_sample\.npz"):
            halftruth.evaluate(copied_run)
    assert not [one for one in caught if one.category is ResourceWarning]


@pytest.fixture(scope="module")
def table_run(tmp_path_factory):
    """A finished run on a table, which has all kinds of files."""
    folder = tmp_path_factory.mktemp("table")
    rows = [f"i{k},{k % 7},{'red' if k % 3 else 'blue'},{k % 2},{k % 3 == 0:d}" for k in range(40)]
    (folder / "t.csv").write_text("\n".join(["id,size,colour,cat,dog", *rows]))
    pd.read_csv(folder / "t.csv")[["id", "cat", "dog"]].to_csv(folder / "l.csv", index=False)
    pd.read_csv(folder / "t.csv")[["id", "size", "colour"]].to_csv(folder / "x.csv", index=False)
    fit(
        folder / "l.csv", features=folder / "x.csv", method="bce", epochs=2, report=False,
        out=folder / "run", quiet=True,
    )  # fmt: skip
    return folder


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda run, other: (run / "encoder.json").unlink(), "encoder.json missing"),
        (lambda run, other: (run / "out_of_sample.npz").unlink(), "out_of_sample.npz missing"),
        (
            lambda run, other: shutil.copy(other / "best.safetensors", run),
            "best.safetensors damaged or of another run",
        ),
        (
            lambda run, other: shutil.copy(other / "result.json", run),
            "result.json damaged or of another run",
        ),
        (
            lambda run, other: (run / "config.yaml").open("a").write("# mine\n"),
            "config.yaml damaged or of another run",
        ),
        (
            lambda run, other: (run / "encoder.npz").write_bytes(b"0"),
            "encoder.npz not of this run",
        ),
        (lambda run, other: (run / "manifest.json").unlink(), "manifest.json is missing"),
        (lambda run, other: (run / "manifest.json").write_text("[3]"), "manifest.json is damaged"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_files_that_do_not_belong_together_are_one_sentence(
    table_run, features_run, tmp_path, change, words
):
    run = shutil.copytree(table_run / "run", tmp_path / "run")
    halftruth.predict(run, table_run / "x.csv")
    change(run, features_run)
    with pytest.raises(CheckpointError, match=words):
        halftruth.predict(run, table_run / "x.csv")


@pytest.mark.parametrize("tree", ["[" * 100_000 + "]" * 100_000, "[1]", '{"dict": []}', "3"])
def test_a_checkpoint_with_another_tree_is_one_sentence(copied_run, data, tree):
    from safetensors.torch import save_file

    from halftruth.train.run_folder import _compute_checksum

    header = {"format": "halftruth-1", "tree": tree, "checksum": _compute_checksum(tree, {})}
    save_file({}, copied_run / "best.safetensors", metadata=header)
    write_manifest(copied_run)
    with pytest.raises(CheckpointError, match=r"best\.safetensors.*damaged"):
        halftruth.predict(copied_run, data / "features.npy")


@pytest.mark.parametrize("value", ["1000000", "1.0e+6", "wide"])
def test_a_wrong_setting_of_a_run_is_one_sentence(copied_run, data, value):
    with (copied_run / "config.yaml").open("a") as file:
        file.write(f"image_size: {value}\n")
    with pytest.raises(CheckpointError, match=r"config\.yaml: image_size: expected"):
        halftruth.predict(copied_run, data / "features.npy")


def test_weights_that_are_not_finite_are_an_error(copied_run, data):
    from halftruth.train.run_folder import load_checkpoint, save_checkpoint

    tree = load_checkpoint(copied_run / "best.safetensors")
    next(iter(tree["model"].values())).fill_(torch.nan)
    save_checkpoint(copied_run / "best.safetensors", tree)
    write_manifest(copied_run)
    with pytest.raises(CheckpointError, match="weights are not finite"):
        halftruth.predict(copied_run, data / "features.npy")


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device is there")
def test_a_missing_device_is_refused(features_run, data, tmp_path):
    with pytest.raises(ConfigError, match="device: there is no CUDA device"):
        halftruth.load(features_run, device="cuda")
    features = ("--features", data / "features.npy", "--device", "cuda")
    assert command("predict", features_run, *features, "--out", tmp_path / "p.csv") == 2
    assert command("evaluate", features_run, data / "labels.csv", *features) == 2


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_full_disk_keeps_the_old_predictions(
    features_run, data, tmp_path, monkeypatch, ending, capsys
):
    out = tmp_path / f"p.{ending}"
    out.write_text("old")

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    words = ("predict", features_run, data / "features.npy", "--out", out)
    assert command(*words) == 2
    # The path, however long, may be cut at a line's end.
    message = "".join(capsys.readouterr().err.replace("│", " ").split())
    assert f"{out.name}exists;giveanothername,or--overwritetoreplaceit" in message
    assert command(*words, "--overwrite") == 2
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    message = " ".join(capsys.readouterr().err.split())
    assert f"p.{ending} cannot be written: the disk is full" in message
