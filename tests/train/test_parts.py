"""`predict` and `evaluate` in several processes: parts that are killed, continued and complete."""

import json
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from real_processes import Command, ranks
from tiny_data import SAME, command, train_two_runs

import halftruth
from halftruth.data import DataError
from halftruth.train.results.predictions import read_predictions, write_predictions
from halftruth.train.results.row_parts import cut_rows
from halftruth.train.results.write_parts import MANIFEST, PartsFolder, write_parts

ROWS = 20_000


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory):
    """A run on features, one on images, and inputs of several parts for each."""
    folder = tmp_path_factory.mktemp("parts")
    train_two_runs(data, folder)
    x = np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32)
    np.save(folder / "x.npy", x)
    table = pd.DataFrame(x, columns=["a", "b", "c"])
    table.insert(0, "id", [f"r{row}" for row in range(ROWS)])
    # Row groups that do not fit the parts.
    table.to_parquet(folder / "x.parquet", row_group_size=7000)
    return folder, data


def inputs(runs, kind):
    folder, data = runs
    path = {"images": data / "photos", "npy": folder / "x.npy", "parquet": folder / "x.parquet"}
    run = folder / ("images" if kind == "images" else "features")
    return run, ["--images" if kind == "images" else "--features", path[kind]]


# Two processes on a GPU may get other convolutions from cuDNN, whose products have ten bits.
ROUNDING = 1e-4 if torch.cuda.is_available() else 1e-6


def assert_same(one, other, rounding=ROUNDING):
    """The same rows and decisions, and probabilities but for rounding."""
    for name in one.columns:
        if name not in ("red", "green", "blue"):
            assert one[name].astype(str).tolist() == other[name].astype(str).tolist(), name
        else:
            np.testing.assert_allclose(one[name], other[name], rtol=0, atol=rounding)


def predict_in(count, line, out, **options):
    places = ranks(count) if count > 1 else [{}]
    return [
        Command(
            "predict", *line, "--out", f"{out}/", "--device", "cpu",
            log=out.with_name(f"{out.name}{rank}.log"), **place, **options,
        )
        for rank, place in enumerate(places)
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["images", "npy", "parquet"])
def test_parts_of_two_processes_are_what_one_process_writes(runs, tmp_path, kind):
    run, given = inputs(runs, kind)
    assert command("predict", run, *given, "--out", tmp_path / "p.parquet") == 0
    running = predict_in(2, [run, *given], tmp_path / "two")
    for one in running:
        assert one.wait() == 0, one.output()
    found = read_predictions(tmp_path / "two")
    assert_same(read_predictions(tmp_path / "p.parquet"), found)
    assert {str(found[name].dtype) for name in ("red", "green", "blue")} == {"float32"}
    assert len(list((tmp_path / "two").glob("part-*.parquet"))) >= 4
    # Rows, bytes, processes and memory are said once, by the main process.
    assert "process" in running[0].output()
    assert "rows written" in running[0].output()
    assert running[1].output() == ""


def slow_down():
    """Each part takes a while, so that a process can be killed between two."""
    write = PartsFolder.write_part

    def later(self, *rest):
        time.sleep(0.15)
        return write(self, *rest)

    PartsFolder.write_part = later


def test_killed_processes_leave_whole_parts_and_other_processes_write_the_rest(runs, tmp_path):
    run, given = inputs(runs, "parquet")
    out = tmp_path / "parts"
    running = predict_in(2, [run, *given], out, before=slow_down)
    assert running[1].until(lambda: len(list(out.glob("part-*.parquet"))) >= 1)
    for one in running:
        one.kill()
    kept = {path.name: path.stat().st_mtime_ns for path in out.glob("part-*.parquet")}
    total = len(cut_rows(ROWS, 2 * 64, 10**6, 4096))
    assert 1 <= len(kept) < total
    # Other numbers of processes share what is missing.
    running = predict_in(3, [run, *given], out)
    for one in running:
        assert one.wait() == 0, one.output()
    after = {path.name: path.stat().st_mtime_ns for path in out.glob("part-*.parquet")}
    assert len(after) == total
    assert {name: after[name] for name in kept} == kept
    assert f"({len(kept)} are there already)" in running[0].output()
    write_predictions(run, tmp_path / "p.parquet", features=given[1])
    assert_same(read_predictions(tmp_path / "p.parquet"), read_predictions(out))
    # Nothing is left to do.
    write_parts(halftruth.load(run, device="cpu"), out, features=given[1], bad_images="skip")
    assert {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")} == after


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": "x.parquet"}, "with other inputs"),
        ({"top": 1}, "with other options"),
        ({"half": True}, "with other options"),
        ({"run": "again"}, "with other run"),
    ],
    ids=str,
)
def test_another_command_does_not_write_into_the_folder(runs, tmp_path, change, message):
    folder, _ = runs
    first = {"features": folder / "x.npy"}
    write_parts(halftruth.load(folder / "features"), tmp_path / "out", **first)
    run = halftruth.load(folder / "features")
    given = {**first, **change}
    if "run" in change:
        given.pop("run")
        run = halftruth.fit(
            np.eye(3, dtype=int)[np.arange(60) % 3],
            features=np.random.default_rng(1).normal(size=(60, 3)),
            method="wan", epochs=1, out=tmp_path / "again", report=False, quiet=True,
        )  # fmt: skip
        run = halftruth.load(tmp_path / "again")
    given["features"] = folder / given["features"]
    with pytest.raises(DataError, match=message):
        write_parts(run, tmp_path / "out", **given)
    write_parts(run, tmp_path / "out", **given, overwrite=True)


def test_a_folder_of_something_else_is_refused(runs, tmp_path):
    folder, _ = runs
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(DataError, match=f"is not empty, and has no {MANIFEST}"):
        write_parts(halftruth.load(folder / "features"), tmp_path, features=folder / "x.npy")


def test_half_precision_keeps_the_decisions(runs, tmp_path):
    folder, _ = runs
    run = halftruth.load(folder / "features")
    given = {"features": folder / "x.npy"}
    write_parts(run, tmp_path / "half", half=True, **given)
    write_predictions(run, tmp_path / "p.parquet", **given)
    found = read_predictions(tmp_path / "half")
    assert {str(found[name].dtype) for name in ("red", "green", "blue")} == {"float16"}
    assert_same(read_predictions(tmp_path / "p.parquet"), found, 1e-3)
    assert json.loads((tmp_path / "half" / MANIFEST).read_text())["options"]["float16"] is True


def test_bad_images_are_listed_and_a_part_without_an_image_has_the_same_columns(runs, tmp_path):
    folder, data = runs
    photos = tmp_path / "photos"
    photos.mkdir()
    for row in range(30):
        source = data / "photos" / f"p{row}.png"
        (photos / f"{row:02d}.png").write_bytes(b"no" if row < 13 else source.read_bytes())
    run = halftruth.load(folder / "images", device="cpu")
    rows, bad = write_parts(run, tmp_path / "out", images=photos)
    assert (rows, [name for name, _ in bad]) == (17, [f"{row:02d}.png" for row in range(13)])
    found = read_predictions(tmp_path / "out")
    assert found.columns.tolist() == run.predict(images=photos).columns.tolist()
    assert len(found) == 17
    with pytest.raises(DataError, match="13 of 30 images cannot be read"):
        write_parts(run, tmp_path / "fail", images=photos, bad_images="fail")


@pytest.mark.parametrize("kind", ["images", "npy"])
def test_two_processes_evaluate_like_one(runs, tmp_path, kind):
    data = runs[1]
    run, given = inputs(runs, kind)
    given = given if kind == "images" else ["--features", data / "features.npy"]
    line = ["evaluate", run, data / "truth.csv", *given, "--device", "cpu"]
    assert command(*line, "--out", tmp_path / "one.json") == 0
    running = [
        Command(*line, "--out", tmp_path / "two.json", log=tmp_path / f"{rank}.log", **place)
        for rank, place in enumerate(ranks(2))
    ]
    for one in running:
        assert one.wait() == 0, one.output()
    assert running[1].output() == ""
    one, two = (json.loads((tmp_path / name).read_text()) for name in ("one.json", "two.json"))
    assert one["metrics"] == pytest.approx(two["metrics"], abs=max(SAME, 1e-6))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["--out", "p.csv", "--float16"], "no effect without --out with a folder"),
        (["--out", "p.csv", "--engine", "ray"], "no effect without --out with a folder"),
        (["--out", "p/", "--address", "auto"], "no effect without --engine ray"),
    ],
)
def test_options_without_effect_are_errors(runs, capsys, line, message):
    run, given = inputs(runs, "npy")
    assert command("predict", run, *given, *line) == 2
    assert message in " ".join(capsys.readouterr().err.replace("│", "").split())


def test_one_table_is_not_written_by_two_processes(runs, tmp_path):
    run, given = inputs(runs, "npy")
    running = [
        Command("predict", run, *given, "--out", tmp_path / "p.csv", log=tmp_path / str(k), **place)
        for k, place in enumerate(ranks(2))
    ]
    assert [one.wait() for one in running] == [2, 2]
    assert "name that ends in /" in running[0].output()


def test_one_process_on_this_machine_imports_nothing_for_others(runs, tmp_path):
    """Neither Ray nor fsspec, and nothing of parts, where one table is written from files here."""
    run, given = inputs(runs, "parquet")
    line = ["halftruth", "predict", run, *given, "--out", tmp_path / "p.csv", "--device", "cpu"]
    code = f"""
import sys
sys.argv = {[str(word) for word in line]}
import halftruth.cli
try:
    halftruth.cli.main()
finally:
    print("loaded:", *sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.partition("loaded:")[2].split())
    assert "halftruth.train.results.trained_run" in loaded
    heavy = {"ray", "fsspec", "s3fs", "halftruth.ray", "halftruth.train.results.write_parts"}
    assert not loaded & heavy


def test_images_in_memory_are_scored_in_parts(runs, tmp_path):
    """Files, bytes of files, and pictures; a file that cannot be read is listed."""
    folder, data = runs
    files = [data / "photos" / f"p{row}.png" for row in range(20)]
    (tmp_path / "bad.png").write_bytes(b"no")
    given = [*files[:10], *(file.read_bytes() for file in files[10:]), tmp_path / "bad.png"]
    run = halftruth.load(folder / "images", device="cpu")
    rows, bad = write_parts(run, tmp_path / "out", images=given)
    assert (rows, len(bad)) == (20, 1)
    whole = run.predict(images=files)
    found = read_predictions(tmp_path / "out")
    assert found["labels"].tolist() == whole["labels"].tolist()
    pixels = [np.asarray(Image.open(file)) for file in files]
    assert run.predict(images=pixels, top=1)["labels"].tolist() == whole["labels"].tolist()
