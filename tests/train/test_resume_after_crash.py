"""A run that dies at any moment goes on to what it would have become."""

import os

import pytest
from tiny_data import assert_same_run, with_tune

from halftruth import fit, losses
from halftruth.cli.terminal import needs
from halftruth.train import CheckpointError, TrainingStopped, run_folder
from halftruth.train.journal import Journal
from halftruth.train.run_folder import load_checkpoint
from halftruth.train.trainer import Stage


class Death(BaseException):
    """The process is gone: nothing after this runs."""


def plan_death(patch, number, after):
    """The n-th lasting change to the run's folder is the last thing done.

    Files change by being replaced, or by a line more in the journal. Death comes just before the
    change, or just after it.
    """
    seen = 0

    def mortal(action):
        def act(*arguments, **options):
            nonlocal seen
            seen += 1
            if seen == number and not after:
                raise Death
            result = action(*arguments, **options)
            if seen == number:
                raise Death
            return result

        return act

    patch.setattr(os, "replace", mortal(os.replace))
    patch.setattr(Journal, "write", mortal(Journal.write))


def dies(settings, out, monkeypatch, number, after) -> bool:
    """Train until the death; whether there was one."""
    with monkeypatch.context() as patch:
        plan_death(patch, number, after)
        try:
            fit(**settings, out=out, quiet=True)
        except Death:
            return True
    return False


@pytest.mark.parametrize("after", [False, True])
def test_death_around_every_write_of_a_run_on_features(on_features, tmp_path, monkeypatch, after):
    settings = {**on_features, "dropout": 0.3, "checkpoint_every": 2, "epochs": 2}
    fit(**settings, out=tmp_path / "whole", quiet=True)
    number = 1
    while dies(settings, tmp_path / f"dies{number}", monkeypatch, number, after):
        fit(**settings, out=tmp_path / f"dies{number}", resume=True, quiet=True)
        assert_same_run(tmp_path / "whole", tmp_path / f"dies{number}")
        number += 1
    # config.yaml, result.json, 2 x (journal, last, 1 in the middle), best at least once.
    assert number > 8


def test_death_around_the_change_from_head_to_all(on_pictures, tmp_path, monkeypatch):
    settings = {**on_pictures, "cache_dir": str(tmp_path / "cache"), "epochs": 1, "ema": 0.9}
    fit(**settings, out=tmp_path / "whole", quiet=True)
    number = 1
    # With the features in the cache: config, 2 x (head's best, journal, last), the head put onto
    # the backbone, all's best, journal, last, result.
    while dies(settings, tmp_path / f"dies{number}", monkeypatch, number, True):
        fit(**settings, out=tmp_path / f"dies{number}", resume=True, quiet=True)
        assert_same_run(tmp_path / "whole", tmp_path / f"dies{number}")
        number += 1
    assert number > 8


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
def test_death_in_the_middle_of_an_epoch(on_pictures, tmp_path, monkeypatch, variant):
    settings = {**with_tune(on_pictures, "all"), "dropout": 0.2, "augment": "strong"}
    settings |= {"checkpoint_every": 1, **VARIANTS[variant]}
    fit(**settings, out=tmp_path / "whole", quiet=True)
    step = Stage._step

    def mortal(self, raw, rows):
        if self.progress.epoch == 1 and self.progress.step == 2:
            raise Death
        return step(self, raw, rows)

    with monkeypatch.context() as patch:
        patch.setattr(Stage, "_step", mortal)
        with pytest.raises(Death):
            fit(**settings, out=tmp_path / "dies", quiet=True)
    saved = load_checkpoint(tmp_path / "dies" / "last.safetensors")["progress"]
    assert (saved["epoch"], saved["step"]) == (1, 2)
    fit(out=tmp_path / "dies", resume=True, quiet=True)
    assert_same_run(tmp_path / "whole", tmp_path / "dies")


def options_of(method):
    """What a method cannot do without, and a start early enough to matter here."""
    values = {"expected_positives": 1.5, "warmup": 1, "tau": 0.4}
    known = losses.registry.signature(method)
    wanted = {*needs(method), "warmup"} & known.keys() & values.keys()
    return {key: values[key] for key in wanted}


def on_one_view(method):
    """Whether features will do: neither several views nor class maps."""
    return method != "scl" and losses.create(method, **options_of(method)).views == 1


@pytest.mark.parametrize("method", [*filter(on_one_view, losses.names())])
def test_every_method_goes_on_as_if_nothing_had_been(on_features, tmp_path, monkeypatch, method):
    settings = {**on_features, "method": method, "options": options_of(method)}
    settings |= {"dropout": 0.2, "checkpoint_every": 2, "schedule": "constant"}
    fit(**settings, out=tmp_path / "whole", quiet=True)
    step = Stage._step

    def mortal(self, raw, rows):
        if (self.progress.epoch, self.progress.step) == (2, 3):
            raise Death
        return step(self, raw, rows)

    with monkeypatch.context() as patch:
        patch.setattr(Stage, "_step", mortal)
        with pytest.raises(Death):
            fit(**settings, out=tmp_path / "dies", quiet=True)
    fit(out=tmp_path / "dies", resume=True, quiet=True)
    assert_same_run(tmp_path / "whole", tmp_path / "dies")


def test_an_early_stop_stays_one(on_features, tmp_path, monkeypatch):
    settings = {**on_features, "epochs": 12, "patience": 2, "head_lr": 0.3}
    fit(**settings, out=tmp_path / "whole", quiet=True)
    epochs = len((tmp_path / "whole" / "metrics.jsonl").read_text().splitlines())
    assert epochs < 12
    fit(out=tmp_path / "whole", resume=True, quiet=True)
    assert len((tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()) == epochs


def test_a_full_disk_leaves_the_last_good_checkpoint(on_features, tmp_path, monkeypatch):
    settings = {**on_features, "checkpoint_every": 2}
    fit(**settings, out=tmp_path / "whole", quiet=True)
    calls = 0

    def full(tensors, path, metadata):
        nonlocal calls
        calls += 1
        if calls < 6:
            return save_file(tensors, path, metadata=metadata)
        path.write_bytes(b"half of it")
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


def test_a_loss_that_is_no_number_stops_and_can_go_on(on_features, tmp_path, monkeypatch):
    settings = {**on_features, "epochs": 3, "seed": 3}
    step = Stage._step

    def broken(self, raw, rows):
        value = step(self, raw, rows)
        at = self.progress
        return value * float("nan") if (at.epoch, at.step) == (1, 2) else value

    with monkeypatch.context() as patch:
        patch.setattr(Stage, "_step", broken)
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
    assert result.val["mAP"] > 0
    assert "head_lr: 0.01" in (tmp_path / "run" / "config.yaml").read_text()


def _rows(message):
    return message.split("(rows ")[1].split(" of the label file")[0].split(", ")
