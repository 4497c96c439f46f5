"""Data sets of images: end to end, and as features of a frozen backbone."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_grid import HereOnly, tiny_grid

from halftruth.bench import read_results, run_data, run_grid, runner
from halftruth.data import read_labels
from halftruth.train.inputs.image_features import ImageFeatures

SOURCE = {"reader": "table", "root": "set/labels.csv", "images": ["set/*.zip", "set/photos"]}
MODEL = {"backbone": "test_efficientnet", "weights": "none", "image_size": 32}


@pytest.fixture(scope="module")
def photo_root(tmp_path_factory):
    """Images in which a bright channel is a class; complete labels, no validation part."""
    root = tmp_path_factory.mktemp("images")
    photos = root / "set" / "photos"
    photos.mkdir(parents=True)
    random, lines = np.random.default_rng(0), ["image,split,patient,red,green,blue"]
    for row in range(30):
        there = random.random(3) < 0.5
        there[row % 3] = True
        pixels = random.integers(0, 90, (32, 32, 3)) + 120 * there
        Image.fromarray(pixels.astype(np.uint8)).save(photos / f"p{row}.png")
        part = "test" if row % 3 == 2 else "train"
        lines.append(f"p{row}.png,{part},{row // 2}," + ",".join(map(str, there.astype(int))))
    (root / "set" / "labels.csv").write_text("\n".join(lines) + "\n")
    import zipfile

    with zipfile.ZipFile(root / "set" / "more.zip", "w") as file:
        file.write(photos / "p0.png", "other.png")
    return root


@pytest.fixture
def go(monkeypatch, photo_root, tmp_path):
    monkeypatch.setattr(runner, "Pool", HereOnly)

    def run(grid):
        failed = run_grid(grid, photo_root, tmp_path / "r.jsonl", say=lambda text: None)
        assert failed == []
        return read_results(tmp_path / "r.jsonl")

    run.cache = tmp_path / "r.cache"
    return run


def source(**more):
    return {"toy": {**SOURCE, "reading": {"drop_columns": ["patient"]}, **more}}


def test_methods_are_trained_end_to_end(go):
    settings = {"epochs": 1, "head_epochs": 1, "batch_size": 8, "augment": "flip", **MODEL}
    methods = {"em": None, "consistency": None, "scl": {"training": {"head": "cam", "tune": "all"}}}
    records = go(tiny_grid(data=source(), methods=methods, training=settings, seeds=[0]))
    assert [record["method"] for record in records] == ["em", "consistency", "scl"]
    for record in records:
        assert record["stage"] in ("head", "all")
        assert 0 < record["test"]["mAP"] <= 1
    assert list((go.cache / "runs").iterdir()) == []


def test_a_fixed_threshold_changes_thresholded_metrics_only(go):
    settings = {"epochs": 1, "head_epochs": 1, "batch_size": 8, **MODEL}
    common = {"data": source(), "methods": ["em"], "training": settings, "seeds": [0]}
    found = {}
    for threshold in ("fit", 0.0, 1.0):
        found[threshold] = go(tiny_grid(**common, threshold=threshold))[-1]
    for part in ("val", "test"):
        low, high = found[0.0][part], found[1.0][part]
        assert low["OR"] == 1.0  # everything is predicted
        assert high["OR"] == 0.0  # nothing is predicted
        assert low["mAP"] == pytest.approx(found["fit"][part]["mAP"], abs=1e-6)
        assert high["mAP"] == low["mAP"]


def test_features_of_a_frozen_backbone_are_extracted_once(go, monkeypatch):
    seen, original = [], ImageFeatures.transform

    def count_rows(network, store, names, *more):
        seen.append(len(names))
        return original(network, store, names, *more)

    monkeypatch.setattr(ImageFeatures, "transform", count_rows)
    grid = tiny_grid(data=source(frozen=MODEL), labels=["single", "left-40"], methods=["bce", "em"])
    records = go(grid)
    assert len(records) == 8
    assert seen == [30]
    go(tiny_grid(data=source(frozen=MODEL), methods=["wan"]))
    assert seen == [30]


def test_rows_can_be_divided_by_patient(photo_root):
    from halftruth.bench.run_data import load_benchmark

    about = {**SOURCE, "patient_column": "patient", "reading": {"drop_columns": ["split"]}}
    read = load_benchmark(about, "complete", 1200, photo_root)
    patients = [{row // 2 for row in part} for part in vars(read.splits).values()]
    assert [len(part) > 0 for part in patients] == [True, True, True]
    assert sum(map(len, patients)) == 15 == len(set().union(*patients))


def test_a_limit_takes_the_first_rows_of_each_part(photo_root):
    from halftruth.bench.run_data import load_benchmark

    whole = load_benchmark(source()["toy"], "single", 1200, photo_root)
    few = load_benchmark({**source()["toy"], "limit": 3}, "single", 1200, photo_root)
    for part in ("train", "val", "test"):
        rows, kept = getattr(whole.splits, part)[:3], getattr(few.splits, part)
        assert (whole.observed.items[rows] == few.observed.items[kept]).all()
        assert (whole.observed.values[rows] == few.observed.values[kept]).all()
        assert (whole.truth[rows] == few.truth[kept]).all()


def test_a_label_file_is_whole_or_not_there(photo_root, tmp_path, monkeypatch):
    """Runs of one label sample start at the same time, and each may write and read its files."""

    def half(labels, path):
        path.write_text("image,sp")
        raise OSError("no space left")

    read = run_data.load_benchmark(source()["toy"], "single", 7, photo_root)
    with monkeypatch.context() as broken:
        broken.setattr(run_data, "write_labels", half)
        with pytest.raises(OSError, match="no space"):
            run_data.write_files(read, tmp_path)
    assert list(tmp_path.iterdir()) == []
    files = run_data.write_files(read, tmp_path)
    assert len(read_labels(Path(files["truth"])).values) == len(read.truth)
