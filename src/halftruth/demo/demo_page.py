"""The demo's page: the images, the comparison, the decisions, and the labels found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
from PIL import Image

from halftruth.labels import PRESENT, UNKNOWN, LabelMatrix
from halftruth.report.page import Raw, card, document, facts, grid, make_table, pixel_image

DEPTHS = (20, 100, 500)
# Short names: the table has to fit into 80 columns of a terminal.
HEAD = ("trained with", "mAP", "F1@0.5", "decided",
        f"found@{DEPTHS[0]}", *(f"@{depth}" for depth in DEPTHS[1:]), "time")  # fmt: skip
EXPLAINED = (
    "F1@0.5: F1 over all labels of scores above 0.5; decided: F1 of the run's decisions; found: "
    "how many of the first unknown labels of the training images, ranked by score, are present"
)


@dataclass(frozen=True)
class ShownEstimate:
    """A number that the run estimated from incomplete labels, and its true value."""

    name: str
    value: float
    low: float
    high: float
    true: float

    def cells(self) -> tuple[str, str, str, str]:
        """Name, estimate, interval and true value as texts."""
        value, low, high, true = (
            f"{number:.3g}" for number in (self.value, self.low, self.high, self.true)
        )
        # On a phone a line would break inside the interval.
        return self.name, value, f"{low} to {high}".replace(" ", "\N{NO-BREAK SPACE}"), true


@dataclass(frozen=True)
class DemoOutcome:
    """What one training gave; scores and shares are between 0 and 1.

    `scores` (N, K) are NaN for rows that the page does not need.
    """

    name: str
    method: str
    mAP: float
    # F1 over all labels: where the score is above 0.5, and where the run decides for a class.
    f1_at_half: float
    f1: float
    # Of the first 20, 100, ... unknown labels, ranked by score, the share that is present; None
    # for a model that was trained on the complete labels.
    found: dict[int, float | None]
    seconds: float
    estimates: list[ShownEstimate]
    scores: np.ndarray

    def cells(self) -> list[str]:
        """A row of the table below HEAD."""
        shares = ("–" if share is None else f"{100 * share:.0f}" for share in self.found.values())
        numbers = (f"{100 * share:.1f}" for share in (self.mAP, self.f1_at_half, self.f1))
        return [self.name, *numbers, *shares, f"{self.seconds:.0f} s"]


@dataclass(frozen=True)
class Album:
    """The images with their complete and their observed labels, one row per image."""

    images: Path
    complete: LabelMatrix
    observed: LabelMatrix

    def is_present(self, ranking: np.ndarray) -> np.ndarray:
        """Which of the ranked labels are present according to the complete labels."""
        return self.complete.values[ranking[:, 0], ranking[:, 1]] == PRESENT

    def show(self, row: int) -> tuple[Raw, list[str], list[str]]:
        """The image of a row, its labels shown, and its labels hidden."""
        shown, complete = _present(self.observed, row), _present(self.complete, row)
        hidden = [name for name in complete if name not in shown]
        assert self.complete.items is not None
        with Image.open(self.images / str(self.complete.items[row])) as image:
            text = f"label shown: {_join(shown)}; labels hidden: {_join(hidden)}"
            return pixel_image(image, text), shown, hidden


def is_in(labels: LabelMatrix, part: str) -> np.ndarray:
    """Which rows belong to a part."""
    assert labels.split is not None
    return np.asarray(labels.split == part)


def rank_hidden(scores: np.ndarray, observed: LabelMatrix) -> np.ndarray:
    """(M, 2) row and class of the unknown labels of the training rows, highest score first."""
    unknown = (observed.values == UNKNOWN) & is_in(observed, "train")[:, None]
    return np.argwhere(unknown)[np.argsort(-scores[unknown], kind="stable")]


def pick_findings(
    ranking: np.ndarray, right: np.ndarray, each: int = 2, most: int = 6
) -> tuple[list[int], list[int]]:
    """Places of the first `each` labels of every class, and of the first wrong ones among others.

    >>> ranking = np.array([[0, 1], [1, 0], [2, 1], [3, 1]])
    >>> pick_findings(ranking, np.array([True, False, False, False]), each=1, most=1)
    ([0, 1], [2])
    """
    of_class = (np.flatnonzero(ranking[:, 1] == k)[:each] for k in np.unique(ranking[:, 1]))
    first = np.sort(np.concatenate([*of_class]))
    wrong = np.setdiff1d(np.flatnonzero(~right), first)[:most]
    return first.tolist(), wrong.tolist()


def write_page(
    path: Path,
    album: Album,
    outcomes: Sequence[DemoOutcome],
    auto: DemoOutcome,
    commands: str,
    code: str,
) -> None:
    """Write the page as one HTML file; `auto` is the outcome whose decisions it shows."""
    ranking = rank_hidden(auto.scores, album.observed)
    right = album.is_present(ranking)
    first, wrong = pick_findings(ranking, right)
    train = np.flatnonzero(is_in(album.complete, "train"))

    def show_labels(places: Iterable[int]) -> Raw:
        return grid(_finding(album, auto.scores, ranking[at], at + 1, right[at]) for at in places)

    parts = [
        "<h1>Training with one label per image</h1><p>Each image shows up to four handwritten "
        "digits among lines, rings and letters; a third of the images show no digit. The label "
        "file contains at most <b>one</b> digit per image; all other labels are unknown. The same "
        "small network was trained three times: with unknown labels treated as absent, with "
        "halftruth's default, and with the complete labels.</p>",
        facts(count_labels(album)),
        '<h2>1. The labels are incomplete</h2><p>Training images with the <span class="shown">label'
        ' shown</span> and the <span class="hidden">labels hidden</span>.</p>',
        grid(_scene(album, row) for row in train[:12]),
        "<h2>2. Training: unknown is not absent</h2><p>Measured in percent on test images with "
        "complete labels. Their digits do not appear in any training image.</p>",
        make_table(HEAD, [one.cells() for one in outcomes]),
        f'<p class="note">{EXPLAINED}. The trainings ran at the same time, with one thread each. '
        "The numbers depend on the processor; on every machine auto should be clearly better than "
        "assume negative, and complete labels better than both.</p>",
        f"<h2>3. Decisions</h2><p>The run of {escape(auto.name)} has seen incomplete labels only. "
        "From them it estimates how many labels an image has, turns scores into probabilities, "
        "chooses a threshold per class, and estimates how good its decisions are. The last column "
        "is the truth, on the test images.</p>",
        make_table(
            ["", "estimated", "90 % interval", "true"], [one.cells() for one in auto.estimates]
        ),
        "<h2>4. Missing labels found</h2><p>Unknown labels of the training images, ranked by the "
        f"score of {escape(auto.name)}, which has seen none of them: the first two of each class. "
        f"{describe_first(auto)}</p>",
        show_labels(first),
        "<h3>Mistakes</h3><p>The next wrong labels in the same ranking.</p>" if wrong else "",
        show_labels(wrong) if wrong else "",
        "<h2>5. Your own data</h2><p>A label file with one row per image and one column per class "
        "(1 present, 0 unknown), and a folder of images. Check the file, train, and find the "
        f"missing labels:</p><pre>{escape(commands)}</pre>"
        f"<p>The training of this page once more, in Python:</p><pre>{escape(code)}</pre>",
    ]
    title = "halftruth demo: training with missing labels"
    path.write_text(document(title, "".join(parts)), encoding="utf-8")


def count_labels(album: Album) -> list[tuple[str, str]]:
    """Numbers about the data, each with a description."""
    train, test = (is_in(album.complete, part) for part in ("train", "test"))
    present = album.complete.values[train] == PRESENT
    shown = int((album.observed.values[train] == PRESENT).sum())
    return [
        (f"{int(train.sum()):,}", "training images"),
        (f"{100 * float((~present).all(axis=1).mean()):.0f} %", "of them without any digit"),
        (f"{shown:,}", "labels shown, at most one per image"),
        (f"{int(present.sum()) - shown:,}", "labels hidden"),
        (f"{int(test.sum()):,}", "test images with complete labels"),
    ]


def describe_first(auto: DemoOutcome) -> str:
    """Say how many of the first unknown labels of the ranking are present."""
    count = round((auto.found[DEPTHS[0]] or 0) * DEPTHS[0])
    return f"Of the first {DEPTHS[0]} of all classes, {count} are present."


def _scene(album: Album, row: int) -> Raw:
    image, shown, hidden = album.show(row)
    tags = (f'<span class="shown">{escape(name)}</span>' for name in shown)
    crossed = (f'<span class="hidden">{escape(name)}</span>' for name in hidden)
    return card(image, "".join(tags) + "".join(crossed) or '<span class="none">no label</span>')


def _finding(album: Album, scores: np.ndarray, at: np.ndarray, rank: int, right: bool) -> Raw:
    row, column = (int(number) for number in at)
    image, shown, hidden = album.show(row)
    caption = (
        f'<p class="found"><b>{"✓" if right else "✗"} {escape(album.complete.classes[column])}</b>'
        f"<span>#{rank:,} · {scores[row, column]:.2f}</span></p>"
        f"<dl><dt>label shown</dt><dd>{escape(_join(shown))}</dd>"
        f"<dt>complete labels</dt><dd>{escape(_join([*shown, *hidden]))}</dd></dl>"
    )
    return card(image, caption, "right" if right else "wrong")


def _present(labels: LabelMatrix, row: int) -> list[str]:
    return [labels.classes[k] for k in np.flatnonzero(labels.values[row] == PRESENT)]


def _join(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "none"
