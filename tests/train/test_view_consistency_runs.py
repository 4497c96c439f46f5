"""A method that compares views of an image starts with a head on features."""

import pytest
from tiny_data import records, with_tune

from halftruth import fit
from halftruth.train.trainer import Trainer


def test_the_head_trains_on_one_view_and_the_network_on_several(on_images, tmp_path, monkeypatch):
    views, run = {}, Trainer.run

    def noted(stage):
        views[stage.name] = stage.loss.views
        return run(stage)

    monkeypatch.setattr(Trainer, "run", noted)
    fit(**on_images, method="consistency", out=tmp_path / "run", quiet=True)
    assert views == {"head": 1, "all": 3}
    heads = [r for r in records(tmp_path / "run") if r["stage"] == "head"]
    base = {**with_tune(on_images, "head"), "method": "lasd"}
    fit(**base, out=tmp_path / "base", quiet=True)
    base = records(tmp_path / "base")
    assert [r["loss"] for r in heads] == pytest.approx([r["loss"] for r in base], rel=0, abs=0)
