"""Exported files: same probabilities, complete description, nothing left after errors."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import halftruth.models.export as exporting
from halftruth import fit
from halftruth.estimator import HalftruthClassifier
from halftruth.models import build_feature_model, build_image_model
from halftruth.models.export import ExportError, export, export_onnx, export_torch
from halftruth.train.results.trained_run import TrainedRun

NAMES = ["cat", "dog", "frög"]
FORMATS = [("onnx", ".onnx"), ("torch-export", ".pt2")]


def answers(path: Path, x: np.ndarray) -> np.ndarray:
    """Run the file as another program does."""
    x = x.astype(np.float32)
    if path.suffix == ".pt2":
        return torch.export.load(path).module()(torch.from_numpy(x)).numpy()
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(["probabilities"], {"input": x})[0]


def notes_inside(path: Path) -> str:
    if path.suffix == ".pt2":
        inside = {"halftruth.json": ""}
        torch.export.load(path, extra_files=inside)
        return inside["halftruth.json"]
    onnx = pytest.importorskip("onnx")
    return {p.key: p.value for p in onnx.load(path).metadata_props}["halftruth"]


def needs(format: str) -> None:
    if format == "onnx":
        for package in ("onnx", "onnxruntime", "onnxscript"):
            pytest.importorskip(package)


@pytest.fixture(scope="module")
def image_model():
    torch.manual_seed(0)
    model = build_image_model("test_resnet", 3, weights="none", image_size=32)
    torch.nn.init.normal_(model.head.linear.weight)  # answers that differ from 1/2
    return model


@pytest.fixture
def feature_model():
    torch.manual_seed(0)
    return build_feature_model(6, 3, hidden=4, mean=[50.0] * 6, std=[7.0] * 6)


@pytest.fixture(scope="module")
def features():
    return 50 + 7 * np.random.default_rng(0).standard_normal((60, 6))


@pytest.fixture(scope="module")
def run(tmp_path_factory, features):
    folder = tmp_path_factory.mktemp("run")
    labels = pd.DataFrame((features[:, :3] > 50).astype(int), columns=NAMES)
    labels.insert(0, "item", [f"row{k}" for k in range(len(labels))])
    labels.to_csv(folder / "labels.csv", index=False)
    np.save(folder / "features.npy", features.astype(np.float32))
    fit(
        folder / "labels.csv",
        features=str(folder / "features.npy"),
        out=str(folder / "out"),
        method="em",
        epochs=2,
        device="cpu",
        quiet=True,
    )
    return TrainedRun(folder / "out", device="cpu")


@pytest.mark.parametrize(("format", "suffix"), FORMATS)
def test_an_image_model_is_exported(tmp_path, image_model, format, suffix):
    needs(format)
    done = export(image_model, tmp_path / f"new/model{suffix}", format, classes=NAMES)
    x = np.random.default_rng(0).standard_normal((3, 3, 32, 32)).astype(np.float32)
    with torch.no_grad():
        expected = torch.sigmoid(image_model.eval()(torch.from_numpy(x))).numpy()
    assert np.ptp(expected) > 0.1
    np.testing.assert_allclose(answers(done.path, x), expected, atol=1e-4)
    assert done.difference <= 1e-4
    assert notes_inside(done.path) == done.notes.read_text(encoding="utf-8")
    notes = json.loads(done.notes.read_text(encoding="utf-8"))
    assert notes["input"]["shape"] == ["batch", 3, 32, 32]
    assert notes["input"]["mean"] == list(image_model.mean)
    assert notes["input"]["std"] == list(image_model.std)
    assert notes["classes"] == NAMES
    assert (notes["decide"], notes["thresholds"]) == ("threshold=0.5", [0.5, 0.5, 0.5])
    assert notes["curves"]["offset"] == [0.0] * 3
    assert notes["curves"]["slope"] == [1.0] * 3
    assert sorted(p.name for p in done.path.parent.iterdir()) == [
        f"model{suffix}",
        f"model{suffix}.json",
    ]


@pytest.mark.parametrize(("format", "suffix"), FORMATS)
def test_a_run_on_features_is_exported(tmp_path, run, features, format, suffix):
    needs(format)
    done = export(run, tmp_path / f"model{suffix}", format)
    expected = run.score(features=features.astype(np.float32)).probabilities
    np.testing.assert_allclose(answers(done.path, features), expected, atol=1e-4)
    notes = json.loads(notes_inside(done.path))
    assert notes["input"]["shape"] == ["batch", 6]
    assert notes["classes"] == NAMES
    assert notes["thresholds"] == run.thresholds.tolist()
    assert notes["decide"] == str(run.decisions.rule) == "f1"


@pytest.fixture(scope="module")
def estimator(features):
    """An ensemble of all members; the last class has no label and is not predicted."""
    given = (features[:, :3] > 50) * np.array([1, 1, 0])
    labels = pd.DataFrame(given, columns=NAMES)
    members = ["linear", "mlp", "forest", "neighbours"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("halftruth.train.ensemble.mlp._STEPS", 20)
        return HalftruthClassifier(members=members, decide="recall=0.9").fit(features, labels)


@pytest.mark.parametrize(("format", "suffix"), FORMATS)
def test_an_ensemble_is_exported_with_its_curves_and_decisions(
    tmp_path, estimator, features, format, suffix
):
    needs(format)
    done = export(estimator, tmp_path / f"model{suffix}", format)
    expected = estimator.predict_proba(features)
    got = answers(done.path, features)
    np.testing.assert_allclose(got, expected, atol=1e-4)
    notes = json.loads(notes_inside(done.path))
    assert notes["decide"] == "recall=0.9"
    assert notes["not_predicted"] == [NAMES[2]]
    assert notes["thresholds"] == [*estimator.thresholds_[:2].tolist(), 1.0]
    np.testing.assert_array_equal(got > notes["thresholds"], estimator.predict(features) == 1)
    # The raw scores can be recovered from probabilities that float32 can hold.
    logit = np.log(got / (1 - got))
    raw = (logit - notes["curves"]["offset"]) / notes["curves"]["slope"]
    logits = estimator.model_(torch.from_numpy(features)).numpy()
    exact = (got > 1e-3) & (got < 1 - 1e-3)
    assert exact.mean() > 0.2
    # Curves of exactly separated classes are flat: a rounding of 1e-7 in a probability is then a
    # larger one in the logit.
    np.testing.assert_allclose(raw[exact], logits[exact], atol=0.01, rtol=0.01)


def test_a_fitted_estimator_is_exported(tmp_path, features):
    labels = pd.DataFrame((features[:, :3] > 50).astype(int), columns=NAMES)
    model = HalftruthClassifier("em", epochs=2).fit(features, labels)
    done = export_torch(model, tmp_path / "model.pt2", thresholds=[0.1, 0.2, 0.3])
    np.testing.assert_allclose(
        answers(done.path, features), model.predict_proba(features), atol=1e-4
    )
    notes = json.loads(done.notes.read_text(encoding="utf-8"))
    assert notes["classes"] == NAMES
    assert notes["thresholds"] == [0.1, 0.2, 0.3]
    assert notes["decide"] is None
    # The model is left as it was.
    assert all(p.dtype == torch.float64 for p in model.model_.parameters())


def test_the_model_can_be_trained_after_export(tmp_path, feature_model):
    feature_model.train()
    export_torch(feature_model, tmp_path / "model.pt2", classes=NAMES)
    assert feature_model.training
    assert all(p.requires_grad for p in feature_model.parameters())


def test_no_paths_of_this_machine_in_the_file(tmp_path, feature_model):
    export_torch(feature_model, tmp_path / "model.pt2", classes=NAMES)
    with zipfile.ZipFile(tmp_path / "model.pt2") as archive:
        content = b"".join(archive.read(name) for name in archive.namelist())
    assert b".py" not in content


@pytest.fixture
def older(tmp_path):
    path = tmp_path / "model.pt2"
    path.write_bytes(b"older")
    return path


def untouched(older: Path) -> bool:
    return older.read_bytes() == b"older" and list(older.parent.iterdir()) == [older]


def test_wrong_outputs_are_an_error(older, feature_model, monkeypatch):
    load = exporting.load_torch
    monkeypatch.setattr(exporting, "load_torch", lambda path: lambda x: load(path)(x) + 2e-4)
    with pytest.raises(ExportError, match=r"differ from the model.s by 0\.0002"):
        export_torch(feature_model, older, classes=NAMES)
    assert untouched(older)


def test_a_fixed_batch_size_is_an_error(older, feature_model, monkeypatch):
    monkeypatch.setattr(exporting, "load_torch", lambda path: lambda x: torch.zeros(1, 3))
    with pytest.raises(ExportError):
        export_torch(feature_model, older, classes=NAMES)
    assert untouched(older)


def test_features_that_float32_cannot_hold_are_an_error(tmp_path, features):
    dates = features * 0.1 + 1.7e9
    model = HalftruthClassifier("em", epochs=2, lr=0.1).fit(dates, features[:, :3] > 50)
    with pytest.raises(ExportError, match="rescaling"):
        export_torch(model, tmp_path / "model.pt2")
    assert not list(tmp_path.iterdir())


def test_a_model_that_cannot_be_traced_leaves_the_older_file(older, feature_model):
    class Branching(torch.nn.ReLU):
        def forward(self, x):
            return x if float(x.sum()) > 0 else -x

    feature_model.backbone[2] = Branching()
    with pytest.raises(ExportError, match="cannot be written"):
        export_torch(feature_model, older, classes=NAMES)
    assert untouched(older)


def test_missing_packages_are_named(tmp_path, feature_model, monkeypatch):
    find = exporting.importlib.util.find_spec
    monkeypatch.setattr(
        exporting.importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "onnxscript" else find(name, *rest),
    )
    with pytest.raises(ExportError, match=r"needs onnxscript: .*halftruth\[export\]"):
        export_onnx(feature_model, tmp_path / "model.onnx", classes=NAMES)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model, folder: export_torch(model, folder / "m.pt", classes=NAMES), r"in \.pt2"),
        (lambda model, folder: export_torch(model, folder / "m.pt2"), "expected classes="),
        (lambda model, folder: export_torch(model, folder / "m.pt2", classes="ab"), "3 classes"),
        (
            lambda model, folder: export_torch(
                model, folder / "m.pt2", classes=NAMES, thresholds=[0.5]
            ),
            "3 thresholds",
        ),
        (lambda model, folder: export_torch(HalftruthClassifier(), folder / "m.pt2"), "fitted"),
        (lambda model, folder: export(model, folder / "m.onnx", "tflite"), "onnx or torch-export"),
    ],
)
def test_wrong_calls_are_refused(tmp_path, feature_model, call, message):
    with pytest.raises(ExportError, match=message):
        call(feature_model, tmp_path)
