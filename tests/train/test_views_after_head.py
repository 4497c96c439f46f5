"""A method that compares views of an image starts, like any other, from a head on features."""

import pytest
from tiny_data import records, with_tune

from halftruth import fit
from halftruth.train.trainer import Stage


def test_the_head_learns_by_the_base_and_everything_by_views(on_pictures, tmp_path, monkeypatch):
    views, run = {}, Stage.run

    def noted(stage):
        views[stage.name] = stage.loss.views
        return run(stage)

    monkeypatch.setattr(Stage, "run", noted)
    fit(**on_pictures, method="consistency", out=tmp_path / "run", quiet=True)
    assert views == {"head": 1, "all": 3}
    heads = [r for r in records(tmp_path / "run") if r["stage"] == "head"]
    fit(**with_tune(on_pictures, "head"), method="lasd", out=tmp_path / "base", quiet=True)
    base = records(tmp_path / "base")
    assert [r["loss"] for r in heads] == pytest.approx([r["loss"] for r in base], rel=0, abs=0)
