"""Files of a run folder: the lock, damaged files, changed data, epochs."""

import json
import multiprocessing
import os
import re
import shutil
import signal
import time

import numpy as np
import pytest
from tiny_data import command

from halftruth import fit
from halftruth.train import CheckpointError, ConfigError
from halftruth.train.run_folder import lock_folder, read_result, replace_file, write_text


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    """A run folder, and the settings of the run."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    settings = {
        "labels": str(data / "labels.csv"), "features": str(data / "features.npy"),
        "method": "wan", "device": "cpu", "epochs": 3, "batch_size": 6, "report": False,
    }  # fmt: skip
    fit(**settings, out=folder, quiet=True)
    return folder, settings


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_in_use_is_refused(on_features, tmp_path, resume):
    folder = tmp_path / "run"
    folder.mkdir()
    with (
        lock_folder(folder),
        pytest.raises(CheckpointError, match=r"another process is training in .*run"),
    ):
        fit(**on_features, out=folder, resume=resume, quiet=True)
    fit(**on_features, out=folder, resume=resume, quiet=True)
    assert (folder / "result.json").exists()


def _lock_and_fork(folder, pipe):
    """Lock a folder, start a worker that sends its process id, and wait to be killed."""
    with lock_folder(folder):
        if os.fork() == 0:
            pipe.send(os.getpid())
        time.sleep(60)


def test_a_worker_that_outlives_its_killed_parent_does_not_keep_the_lock(tmp_path):
    receive, send = multiprocessing.Pipe(duplex=False)
    parent = multiprocessing.get_context("fork").Process(
        target=_lock_and_fork, args=(tmp_path, send)
    )
    parent.start()
    worker = receive.recv()
    try:
        with pytest.raises(CheckpointError), lock_folder(tmp_path):
            pass
        parent.kill()
        # Without a time limit: with one, it waits for the worker, which has inherited its pipe.
        parent.join()
        os.kill(worker, 0)
        with lock_folder(tmp_path):
            pass
    finally:
        os.kill(worker, signal.SIGKILL)


@pytest.mark.parametrize("out", ["file", "file/below"])
def test_a_file_in_place_of_the_run_folder_is_refused(on_features, tmp_path, out):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"out: expected a folder.*file"):
        fit(**on_features, out=tmp_path / out, quiet=True)


@pytest.mark.parametrize("keep", [0, 7, 200, 0.5], ids=str)
def test_a_truncated_checkpoint_is_one_message(finished, tmp_path, capsys, keep):
    folder = shutil.copytree(finished[0], tmp_path / "run")
    whole = (folder / "last.safetensors").read_bytes()
    end = int(len(whole) * keep) if isinstance(keep, float) else keep
    (folder / "last.safetensors").write_bytes(whole[:end])
    assert command("train", "--resume", "--out", folder) == 2
    shown = capsys.readouterr().err.replace("\n", " ")
    assert re.search(r"cannot read the checkpoint .*last.safetensors.*damaged or incomplete", shown)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"thresholds": 3}', '{"thresholds": ["a", 1, 2]}', "\udcff"]
)
def test_a_damaged_result_is_one_message(tmp_path, text):
    (tmp_path / "result.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(CheckpointError, match=r"result.json.*--resume"):
        read_result(tmp_path, classes="abc")


@pytest.mark.parametrize("values", [[0.5, 0.5], [0.5, None, 0.5], [0.5] * 4])
def test_thresholds_that_do_not_fit_the_classes_are_refused(tmp_path, values):
    (tmp_path / "result.json").write_text(json.dumps({"thresholds": values}))
    with pytest.raises(CheckpointError, match="one finite threshold for each of the 3 classes"):
        read_result(tmp_path, classes="abc")


def test_a_result_of_other_classes_is_refused(tmp_path):
    found = {"thresholds": [0.5] * 3, "classes": ["a", "c", "b"]}
    (tmp_path / "result.json").write_text(json.dumps(found))
    with pytest.raises(CheckpointError, match="its classes are not those of best"):
        read_result(tmp_path, classes="abc")


def test_a_run_with_changed_features_is_not_resumed(finished, data, tmp_path):
    folder, settings = shutil.copytree(finished[0], tmp_path / "run"), finished[1]
    changed = np.load(data / "features.npy")
    changed[3, 1] += 1
    np.save(tmp_path / "features.npy", changed)
    settings = {**settings, "features": str(tmp_path / "features.npy"), "epochs": 5}
    with pytest.raises(CheckpointError, match=r"features \(their values\)"):
        fit(**settings, out=folder, resume=True, quiet=True)


def test_the_best_weights_of_another_run_are_not_used(finished, on_features, tmp_path):
    folder, settings = shutil.copytree(finished[0], tmp_path / "run"), finished[1]
    fit(**{**settings, "seed": 7}, out=tmp_path / "other", quiet=True)
    shutil.copy(tmp_path / "other" / "best.safetensors", folder)
    with pytest.raises(CheckpointError, match=r"best\.safetensors belongs to another run"):
        fit(**settings, out=folder, resume=True, quiet=True)


def test_the_best_epoch_is_the_same_number_in_all_outputs(on_features, tmp_path, capsys):
    result = fit(**{**on_features, "epochs": 6, "head_lr": 0.3}, out=tmp_path / "run")
    log = capsys.readouterr().err
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open()]
    kept = max(lines, key=lambda line: line["select"])["epoch"]
    starred = [int(n) for n in re.findall(r"epoch (\d+)/6: .*\*$", log, re.MULTILINE)]
    written = json.loads((tmp_path / "run" / "result.json").read_text())["best_epoch"]
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert result.best_epoch == written == kept == starred[-1]
    assert f"best: stage all, epoch {kept}" in log


def test_a_failed_write_keeps_the_old_file_and_names_it(tmp_path):
    write_text(tmp_path / "a.txt", "old")

    def fill_disk():
        with replace_file(tmp_path / "a.txt") as new:
            new.write_text("half")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=r"a\.txt cannot be written: the disk is full.*unchanged"):
        fill_disk()
    assert (tmp_path / "a.txt").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
