"""Which images the page shows: the ranking of unknown labels, and which of them are right."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from halftruth.demo.demo_page import Album, count_labels, pick_findings, rank_hidden
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
    ranking = rank_hidden(SCORES, album.observed)
    assert ranking.tolist() == [[2, 0], [0, 2], [0, 1], [2, 2]]
    assert album.is_present(ranking).tolist() == [False, True, False, True]


def test_findings_are_the_first_of_each_class_and_mistakes_come_next(album: Album) -> None:
    ranking = rank_hidden(SCORES, album.observed)
    right = album.is_present(ranking)
    assert pick_findings(ranking, right, each=1) == ([0, 1, 2], [])
    assert pick_findings(ranking, right, each=0) == ([], [0, 2])
    assert pick_findings(ranking, right, each=0, most=1) == ([], [0])


def test_an_image_is_shown_with_its_shown_and_hidden_labels(album: Album) -> None:
    image, shown, hidden = album.show(2)
    assert (shown, hidden) == ([], ["c"])
    assert 'alt="label shown: none; labels hidden: c"' in image
    assert album.show(0)[1:] == (["a"], ["c"])


def test_facts_count_the_training_rows(album: Album) -> None:
    numbers = [number for number, _ in count_labels(album)]
    assert numbers == ["2", "0 %", "1", "2", "1"]
