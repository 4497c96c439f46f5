"""Which images the page shows: the ranking of unknown labels, and which of them are right."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from halftruth.demo.demo_page import Album, rank_unknown
from halftruth.labels import LabelMatrix

CLASSES = ("a", "b", "c")
SPLIT = np.array(["train", "test", "train", "val"])
OBSERVED = np.array([[1, 0, 0], [0, 0, 1], [0, -1, 0], [0, 0, 0]], dtype=np.int8)
COMPLETE = np.array([[1, -1, 1], [1, -1, 1], [-1, -1, 1], [-1, 1, -1]], dtype=np.int8)
SCORES = np.array([[0.9, 0.2, 0.6], [0.9, 0.9, 0.9], [0.7, 0.8, 0.1], [0.9, 0.9, 0.9]])


@pytest.fixture
def album(tmp_path: Path) -> Album:
    names = np.array([f"{row}.png" for row in range(4)])
    for row, name in enumerate(names):
        Image.new("RGB", (8, 8), (row, 0, 0)).save(tmp_path / name)
    complete = LabelMatrix(COMPLETE, CLASSES, items=names, split=SPLIT)
    return Album(tmp_path, complete, LabelMatrix(OBSERVED, CLASSES, items=names, split=SPLIT))


def test_only_unknown_labels_of_the_training_rows_are_ranked(album: Album) -> None:
    ranking = rank_unknown(SCORES, album.observed)
    assert ranking.tolist() == [[2, 0], [0, 2], [0, 1], [2, 2]]
    assert album.is_present(ranking).tolist() == [False, True, False, True]


def test_findings_are_the_first_of_each_class(album: Album) -> None:
    found = album.findings(SCORES, each=1)
    assert [(one.rank, one.label, one.right) for one in found] == [
        (1, "a", False),
        (2, "c", True),
        (3, "b", False),
    ]
    assert found[1].score == 0.6
    assert found[1].shown == ["a"]
    assert found[1].complete == ["a", "c"]
    assert found[0].image.getpixel((0, 0)) == (2, 0, 0)
    assert found[0].shown == []


def test_mistakes_are_not_shown_twice(album: Album) -> None:
    assert album.mistakes(SCORES, each=1) == []
    assert [one.rank for one in album.mistakes(SCORES, each=0)] == [1, 3]
    assert [one.rank for one in album.mistakes(SCORES, each=0, most=1)] == [1]


def test_scenes_list_the_hidden_labels(album: Album) -> None:
    scenes = album.scenes()
    assert [(scene.shown, scene.hidden) for scene in scenes] == [(["a"], ["c"]), ([], ["c"])]


def test_facts_count_the_training_rows(album: Album) -> None:
    numbers = [number for number, _ in album.facts()]
    assert numbers == ["2", "0 %", "1", "2", "1"]
