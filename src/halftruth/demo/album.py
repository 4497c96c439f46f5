"""Which pictures the page shows: scenes with what was hidden, missing labels found, mistakes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from halftruth.demo.demo_page import Finding, Scene
from halftruth.labels import PRESENT, UNKNOWN, LabelMatrix


def rank_unknown(scores: np.ndarray, observed: LabelMatrix) -> np.ndarray:
    """(M, 2) row and class of the unknown labels of the training part, highest score first."""
    unknown = (observed.values == UNKNOWN) & (_part(observed) == "train")[:, None]
    places = np.argwhere(unknown)
    return places[np.argsort(-scores[unknown], kind="stable")]


@dataclass(frozen=True)
class Album:
    """The pictures with their complete and their observed labels, row by row."""

    images: Path
    complete: LabelMatrix
    observed: LabelMatrix

    def facts(self) -> list[tuple[str, str]]:
        """Numbers about the data, with what they mean."""
        train, test = _part(self.complete) == "train", _part(self.complete) == "test"
        there = self.complete.values[train] == PRESENT
        shown = int((self.observed.values[train] == PRESENT).sum())
        return [
            (f"{int(train.sum()):,}", "training pictures"),
            (f"{100 * float((~there).all(axis=1).mean()):.0f} %", "of them without any digit"),
            (f"{shown:,}", "labels shown, one a picture"),
            (f"{int(there.sum()) - shown:,}", "labels hidden, to be found"),
            (f"{int(test.sum()):,}", "test pictures, complete labels"),
        ]

    def scenes(self, most: int = 12) -> list[Scene]:
        """The first training pictures, empty ones among them."""
        rows = np.flatnonzero(_part(self.complete) == "train")[:most]
        return [self._scene(int(row)) for row in rows]

    def right(self, ranking: np.ndarray) -> np.ndarray:
        """Which of the ranked labels are really there."""
        return self.complete.values[ranking[:, 0], ranking[:, 1]] == PRESENT

    def findings(self, scores: np.ndarray, each: int = 2) -> list[Finding]:
        """The first `each` of every class in the ranking, right or wrong."""
        ranking = rank_unknown(scores, self.observed)
        return [self._finding(scores, ranking, place) for place in _first(ranking, each)]

    def mistakes(self, scores: np.ndarray, each: int = 2, most: int = 6) -> list[Finding]:
        """The first wrong ones in the ranking that are not among the findings."""
        ranking = rank_unknown(scores, self.observed)
        wrong = np.setdiff1d(np.flatnonzero(~self.right(ranking)), _first(ranking, each))
        return [self._finding(scores, ranking, int(place)) for place in wrong[:most]]

    def _scene(self, row: int) -> Scene:
        shown, truth = _present(self.observed, row), _present(self.complete, row)
        return Scene(self._picture(row), shown, [name for name in truth if name not in shown])

    def _finding(self, scores: np.ndarray, ranking: np.ndarray, place: int) -> Finding:
        row, column = (int(number) for number in ranking[place])
        return Finding(
            picture=self._picture(row),
            rank=place + 1,
            label=self.complete.classes[column],
            score=float(scores[row, column]),
            right=bool(self.complete.values[row, column] == PRESENT),
            shown=_present(self.observed, row),
            truth=_present(self.complete, row),
        )

    def _picture(self, row: int) -> Image.Image:
        assert self.complete.items is not None
        with Image.open(self.images / str(self.complete.items[row])) as picture:
            return picture.convert("RGB")


def _first(ranking: np.ndarray, each: int) -> list[int]:
    """The places, in order, of the first `each` entries of every class."""
    places = [np.flatnonzero(ranking[:, 1] == k)[:each] for k in np.unique(ranking[:, 1])]
    return [int(place) for place in np.sort(np.concatenate(places))]


def _present(labels: LabelMatrix, row: int) -> list[str]:
    return [labels.classes[k] for k in np.flatnonzero(labels.values[row] == PRESENT)]


def _part(labels: LabelMatrix) -> np.ndarray:
    assert labels.split is not None
    return labels.split
