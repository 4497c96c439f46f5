"""A run that crashes at any moment and is resumed ends like a run without a crash."""

import os

import pytest
from tiny_data import assert_same_run, with_tune

from halftruth import fit, losses
from halftruth.cli.terminal import needs
from halftruth.train import CheckpointError, TrainingStopped, run_folder
from halftruth.train.run_folder import load_checkpoint
from halftruth.train.run_logger import RunLogger
from halftruth.train.trainer import Trainer


class Crash(BaseException):
    """Ends a run like a crash: no error handler of the run catches it."""


def plan_crash(patch, number, after):
    """Crash just before or just after the n-th change of the run folder.

    A change is a replaced file or a new line of the logger.
    """
    seen = 0

    def crashing(action):
        def act(*arguments, **options):
            nonlocal seen
            # The trials of auto have a logger without a folder.
            if isinstance(arguments[0], RunLogger) and arguments[0].folder is None:
                return action(*arguments, **options)
            seen += 1
            if seen == number and not after:
                raise Crash
            result = action(*arguments, **options)
            if seen == number:
                raise Crash
            return result

        return act

    patch.setattr(os, "replace", crashing(os.replace))
    patch.setattr(RunLogger, "write", crashing(RunLogger.write))


def crashes(settings, out, monkeypatch, number, after) -> bool:
    """Train with a planned crash; return whether there was one."""
    with monkeypatch.context() as patch:
        plan_crash(patch, number, after)
        try:
            fit(**settings, out=out, quiet=True)
        except Crash:
            return True
    return False


@pytest.mark.parametrize("after", [False, True])
def test_a_crash_around_any_write_of_a_run_on_features(on_features, tmp_path, monkeypatch, after):
    settings = {**on_features, "dropout": 0.3, "checkpoint_every": 2, "epochs": 2}
    fit(**settings, out=tmp_path / "whole", quiet=True)
    number = 1
    while crashes(settings, tmp_path / f"crashed{number}", monkeypatch, number, after):
        fit(**settings, out=tmp_path / f"crashed{number}", resume=True, quiet=True)
        assert_same_run(tmp_path / "whole", tmp_path / f"crashed{number}")
        number += 1
    # config.yaml, result.json, 2 x (logger, last, 1 in the middle), best at least once.
    assert number > 8


def resumes_like(whole, settings, out, monkeypatch, number) -> bool:
    """Crash after the n-th change, and resume; return whether there was a crash."""
    if not crashes(settings, out, monkeypatch, number, True):
        return False
    fit(**settings, out=out, resume=True, quiet=True)
    assert_same_run(whole, out)
    return True


@pytest.fixture
def both_stages(on_images, tmp_path):
    return {**on_images, "cache_dir": str(tmp_path / "cache"), "epochs": 1, "ema": 0.9}


def test_a_crash_around_any_write_of_both_stages(both_stages, tmp_path, monkeypatch):
    settings = {**both_stages, "method": "em"}
    fit(**settings, out=tmp_path / "whole", quiet=True)
    number = 1
    # With cached features: config, 2 x (best head, logger, last), the head moved to the backbone,
    # best of all, logger, last, result.
    while resumes_like(tmp_path / "whole", settings, tmp_path / f"c{number}", monkeypatch, number):
        number += 1
    assert number > 8


def test_auto_resumes_with_its_choice_after_a_crash_in_each_stage(
    both_stages, tmp_path, monkeypatch
):
    fit(**both_stages, out=tmp_path / "whole", quiet=True)
    for number, stage in ((4, "head"), (12, "all")):
        out = tmp_path / stage
        assert resumes_like(tmp_path / "whole", both_stages, out, monkeypatch, number)


VARIANTS = {
    "sgd": {"optimizer": "sgd", "lr": 0.01},
    "adamw": {"optimizer": "adamw", "weight_decay": 0.01, "clip": 0.1, "l1": 1e-5},
    "decoding in workers": {"cache": "none", "workers": 2},
    "pixels on disk": {"cache": "disk", "workers": 2},
    "no average": {"ema": 0.0, "schedule": "cosine"},
    "batch norm trains": {"freeze_bn": False},
    "memory": {"method": "em-apl", "options": {"warmup": 1}},
    "views": {"method": "consistency", "batch_size": 10},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_crash_in_the_middle_of_an_epoch(on_images, tmp_path, monkeypatch, variant):
    settings = {**with_tune(on_images, "all"), "dropout": 0.2, "augment": "strong"}
    settings |= {"checkpoint_every": 1, **VARIANTS[variant]}
    fit(**settings, out=tmp_path / "whole", quiet=True)
    step = Trainer._step

    def crashing(self, raw, rows):
        if self.progress.epoch == 1 and self.progress.step == 2:
            raise Crash
        return step(self, raw, rows)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", crashing)
        with pytest.raises(Crash):
            fit(**settings, out=tmp_path / "crashed", quiet=True)
    saved = load_checkpoint(tmp_path / "crashed" / "last.safetensors")["progress"]
    assert (saved["epoch"], saved["step"]) == (1, 2)
    fit(out=tmp_path / "crashed", resume=True, quiet=True)
    assert_same_run(tmp_path / "whole", tmp_path / "crashed")


def options_of(method):
    """The required options of a method, and a short warm-up."""
    values = {"expected_positives": 1.5, "warmup": 1, "tau": 0.4}
    known = losses.registry.signature(method)
    wanted = {*needs(method), "warmup"} & known.keys() & values.keys()
    return {key: values[key] for key in wanted}


def trains_on_features(method):
    """Whether a method needs neither several views nor class maps nor a network."""
    loss = losses.create(method, **options_of(method))
    return method != "scl" and loss.views == 1 and not loss.teacher_on_features


@pytest.mark.parametrize("method", [*filter(trains_on_features, losses.names())])
def test_every_method_resumes_exactly(on_features, tmp_path, monkeypatch, method):
    settings = {**on_features, "method": method, "options": options_of(method)}
    settings |= {"dropout": 0.2, "checkpoint_every": 2, "schedule": "constant"}
    fit(**settings, out=tmp_path / "whole", quiet=True)
    step = Trainer._step

    def crashing(self, raw, rows):
        if (self.progress.epoch, self.progress.step) == (2, 3):
            raise Crash
        return step(self, raw, rows)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", crashing)
        with pytest.raises(Crash):
            fit(**settings, out=tmp_path / "crashed", quiet=True)
    fit(out=tmp_path / "crashed", resume=True, quiet=True)
    assert_same_run(tmp_path / "whole", tmp_path / "crashed")


def test_a_run_that_stopped_early_does_not_continue(on_features, tmp_path, monkeypatch):
    settings = {**on_features, "epochs": 12, "patience": 2, "head_lr": 0.3}
    fit(**settings, out=tmp_path / "whole", quiet=True)
    epochs = len((tmp_path / "whole" / "metrics.jsonl").read_text().splitlines())
    assert epochs < 12
    fit(out=tmp_path / "whole", resume=True, quiet=True)
    assert len((tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()) == epochs


def test_a_full_disk_keeps_the_last_checkpoint(on_features, tmp_path, monkeypatch):
    settings = {**on_features, "checkpoint_every": 2}
    fit(**settings, out=tmp_path / "whole", quiet=True)
    calls = 0

    def full(tensors, path, metadata):
        nonlocal calls
        calls += 1
        if calls < 6:
            return save_file(tensors, path, metadata=metadata)
        path.write_bytes(b"incomplete")
        raise OSError(28, "No space left on device")

    save_file = run_folder.save_file
    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "save_file", full)
        message = r"last.safetensors cannot be written: the disk is full; .* is unchanged"
        with pytest.raises(CheckpointError, match=message):
            fit(**settings, out=tmp_path / "full", quiet=True)
    assert not list((tmp_path / "full").glob(".*"))
    fit(out=tmp_path / "full", resume=True, quiet=True)
    assert_same_run(tmp_path / "whole", tmp_path / "full")


def test_a_nan_loss_stops_training_and_can_be_resumed(on_features, tmp_path, monkeypatch):
    settings = {**on_features, "epochs": 3, "seed": 3}
    step = Trainer._step

    def broken(self, raw, rows):
        value = step(self, raw, rows)
        at = self.progress
        return value * float("nan") if (at.epoch, at.step) == (1, 2) else value

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", broken)
        with pytest.raises(TrainingStopped, match=r"epoch 2, batch 3 .*rows") as caught:
            fit(**settings, out=tmp_path / "run", quiet=True)
    stage_rows = [int(row) for row in _rows(str(caught.value))]
    saved = load_checkpoint(tmp_path / "run" / "last.safetensors")
    assert saved["progress"]["epoch"] == 1
    assert all(tensor.isfinite().all() for tensor in saved["model"].values())
    # The rows named are those of the batch: six training rows of this file.
    assert len(stage_rows) == 6
    assert all(row % 5 < 3 for row in stage_rows)
    result = fit(out=tmp_path / "run", resume=True, quiet=True, head_lr=0.01, clip=1.0)
    assert result.get_observed("val")["mAP"] > 0
    assert "head_lr: 0.01" in (tmp_path / "run" / "config.yaml").read_text()


def _rows(message):
    return message.split("(rows ")[1].split(" of the label file")[0].split(", ")
