"""The demo's page: which images it shows, and one HTML file with everything inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

import numpy as np
from PIL import Image

from halftruth.labels import PRESENT, UNKNOWN, LabelMatrix
from halftruth.report.page import card, document, facts, pixel_image, table


@dataclass(frozen=True)
class Row:
    """One training in the comparison; numbers are shares between 0 and 1."""

    name: str
    method: str
    note: str
    mAP: float
    # F1 over all labels: where the score is above 0.5, and where the run decides for a class.
    f1_at_half: float
    f1: float
    # Of the first 20, 100, ... unknown labels, ranked by score, the share that is present; None
    # for a model that was trained on the complete labels.
    precision: dict[int, float | None] = field(default_factory=dict)
    seconds: float = 0.0
    kind: str = "robust"  # or "naive", "complete"


@dataclass(frozen=True)
class Estimate:
    """A number that the run estimated from incomplete labels, and its true value."""

    name: str
    value: float
    low: float
    high: float
    true: float
    is_share: bool = True


@dataclass(frozen=True)
class Bin:
    """The labels with a probability between two limits, and the share of them that is present."""

    low: float
    high: float
    labels: int
    probability: float
    present: float


@dataclass(frozen=True)
class Scene:
    """An image, the label that is shown, and the labels that were hidden."""

    image: Image.Image
    shown: Sequence[str]
    hidden: Sequence[str]


@dataclass(frozen=True)
class Finding:
    """An unknown label that a model ranks high."""

    image: Image.Image
    rank: int
    label: str
    score: float
    right: bool
    shown: Sequence[str]
    complete: Sequence[str]


def rank_unknown(scores: np.ndarray, observed: LabelMatrix) -> np.ndarray:
    """(M, 2) row and class of the unknown labels of the training rows, highest score first."""
    unknown = (observed.values == UNKNOWN) & (_split(observed) == "train")[:, None]
    return np.argwhere(unknown)[np.argsort(-scores[unknown], kind="stable")]


def make_bins(probabilities: np.ndarray, present: np.ndarray, count: int = 5) -> list[Bin]:
    """Divide labels by probability into `count` equally wide bins; empty ones are left out."""
    place = np.minimum((probabilities * count).astype(int), count - 1)
    return [
        Bin(
            low=which / count,
            high=(which + 1) / count,
            labels=int((place == which).sum()),
            probability=float(probabilities[place == which].mean()),
            present=float(present[place == which].mean()),
        )
        for which in np.unique(place)
    ]


def calibration_error(bins: Sequence[Bin]) -> float:
    """Mean distance between the probability of a label and the share present in its bin."""
    distance = sum(one.labels * abs(one.probability - one.present) for one in bins)
    return distance / sum(one.labels for one in bins)


@dataclass(frozen=True)
class Album:
    """The images with their complete and their observed labels, one row per image."""

    images: Path
    complete: LabelMatrix
    observed: LabelMatrix

    def facts(self) -> list[tuple[str, str]]:
        """Numbers about the data, each with a description."""
        train, test = _split(self.complete) == "train", _split(self.complete) == "test"
        present = self.complete.values[train] == PRESENT
        shown = int((self.observed.values[train] == PRESENT).sum())
        return [
            (f"{int(train.sum()):,}", "training images"),
            (f"{100 * float((~present).all(axis=1).mean()):.0f} %", "of them without any digit"),
            (f"{shown:,}", "labels shown, at most one per image"),
            (f"{int(present.sum()) - shown:,}", "labels hidden"),
            (f"{int(test.sum()):,}", "test images with complete labels"),
        ]

    def scenes(self, most: int = 12) -> list[Scene]:
        """The first training images."""
        found = []
        for row in np.flatnonzero(_split(self.complete) == "train")[:most]:
            shown, complete = _present(self.observed, row), _present(self.complete, row)
            hidden = [name for name in complete if name not in shown]
            found.append(Scene(self._image(row), shown, hidden))
        return found

    def is_present(self, ranking: np.ndarray) -> np.ndarray:
        """Which of the ranked labels are present according to the complete labels."""
        return self.complete.values[ranking[:, 0], ranking[:, 1]] == PRESENT

    def findings(self, scores: np.ndarray, each: int = 2) -> list[Finding]:
        """The first `each` labels of every class in the ranking, right or wrong."""
        ranking = rank_unknown(scores, self.observed)
        return [self._finding(scores, ranking, place) for place in _first(ranking, each)]

    def mistakes(self, scores: np.ndarray, each: int = 2, most: int = 6) -> list[Finding]:
        """The first wrong labels in the ranking that are not among the findings."""
        ranking = rank_unknown(scores, self.observed)
        wrong = np.setdiff1d(np.flatnonzero(~self.is_present(ranking)), _first(ranking, each))
        return [self._finding(scores, ranking, int(place)) for place in wrong[:most]]

    def _finding(self, scores: np.ndarray, ranking: np.ndarray, place: int) -> Finding:
        row, column = (int(number) for number in ranking[place])
        return Finding(
            image=self._image(row),
            rank=place + 1,
            label=self.complete.classes[column],
            score=float(scores[row, column]),
            right=bool(self.complete.values[row, column] == PRESENT),
            shown=_present(self.observed, row),
            complete=_present(self.complete, row),
        )

    def _image(self, row: int) -> Image.Image:
        assert self.complete.items is not None
        with Image.open(self.images / str(self.complete.items[row])) as image:
            return image.convert("RGB")


def _first(ranking: np.ndarray, each: int) -> list[int]:
    """The places, in order, of the first `each` entries of every class."""
    places = [np.flatnonzero(ranking[:, 1] == k)[:each] for k in np.unique(ranking[:, 1])]
    return [int(place) for place in np.sort(np.concatenate(places))]


def _present(labels: LabelMatrix, row: int) -> list[str]:
    return [labels.classes[k] for k in np.flatnonzero(labels.values[row] == PRESENT)]


def _split(labels: LabelMatrix) -> np.ndarray:
    assert labels.split is not None
    return labels.split


def write_page(
    path: str | Path,
    *,
    rows: Sequence[Row],
    estimates: Sequence[Estimate],
    bins: Sequence[Bin],
    calibration: str,
    scenes: Sequence[Scene],
    findings: Sequence[Finding],
    mistakes: Sequence[Finding],
    found_by: str,
    first: str,
    numbers: Sequence[tuple[str, str]],
    commands: str,
    code: str,
) -> Path:
    """Write the page as one HTML file and return its path."""
    template = Template((files("halftruth.demo") / "demo_page.html").read_text(encoding="utf-8"))
    depths = list(rows[0].precision) if rows else []
    body = template.substitute(
        facts=facts(numbers),
        depths="".join(f'<th class="{_depth_class(depth)}">{depth:,}</th>' for depth in depths),
        depth_count=len(depths),
        rows="".join(map(_row, rows)),
        estimates=table(
            ["", "estimated", "90 % interval", "true"], [_estimate_cells(one) for one in estimates]
        ),
        bins=table(
            ["probability, %", "labels", "mean probability, %", "present, %"],
            [_bin_cells(one) for one in bins],
        ),
        calibration=escape(calibration),
        scenes="".join(map(_scene, scenes)),
        found_by=escape(found_by),
        first=escape(first),
        findings="".join(map(_finding, findings)),
        mistakes=_mistakes(mistakes),
        commands=escape(commands),
        code=escape(code),
    )
    path = Path(path)
    path.write_text(
        document("halftruth demo: training with missing labels", body), encoding="utf-8"
    )
    return path


def _row(row: Row) -> str:
    cells = "".join(
        f'<td class="{_depth_class(depth)}">{_share(share)}</td>'
        for depth, share in row.precision.items()
    )
    return (
        f'<tr class="{escape(row.kind)}"><th scope="row">{escape(row.name)}'
        f"<small>{escape(row.note)}</small></th>"
        f'<td class="bar" style="--share:{row.mAP:.4f}"><span>{100 * row.mAP:.1f}</span></td>'
        f'<td class="wide">{100 * row.f1_at_half:.1f}</td><td>{100 * row.f1:.1f}</td>{cells}'
        f'<td class="wide">{row.seconds:.0f}<i> s</i></td></tr>\n'
    )


def _estimate_cells(one: Estimate) -> list[str]:
    value, low, high, true = (
        f"{100 * number:.1f}" if one.is_share else f"{number:.2f}"
        for number in (one.value, one.low, one.high, one.true)
    )
    name = f"{one.name}, %" if one.is_share else one.name
    # On a phone a line would break inside the interval.
    return [name, value, f"{low} to {high}".replace(" ", "\N{NO-BREAK SPACE}"), true]


def _bin_cells(one: Bin) -> list[str]:
    return [
        f"{100 * one.low:.0f} to {100 * one.high:.0f}",
        f"{one.labels:,}",
        f"{100 * one.probability:.0f}",
        f"{100 * one.present:.0f}",
    ]


def _share(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f}<i>%</i>"


def _depth_class(depth: int) -> str:
    """On a phone there is room for one depth."""
    return "depth" if depth == 100 else "depth wide"


def _scene(scene: Scene) -> str:
    shown = _tags(scene.shown, "shown") or '<span class="none">no label</span>'
    text = f"label shown: {_words(scene.shown)}; labels hidden: {_words(scene.hidden)}"
    return card(pixel_image(scene.image, text), f"{shown}{_tags(scene.hidden, 'hidden')}")


def _finding(finding: Finding) -> str:
    verdict = "right" if finding.right else "wrong"
    mark = "✓" if finding.right else "✗"
    text = f"{finding.label}, {verdict}; complete labels: {_words(finding.complete)}"
    score = f"{finding.score:.2f}" if finding.score < 0.995 else "> 0.99"
    caption = (
        f'<p class="found"><b>{mark} {escape(finding.label)}</b>'
        f"<span>#{finding.rank:,} · {escape(score)}</span></p>"
        f"<dl><dt>label shown</dt><dd>{escape(_words(finding.shown))}</dd>"
        f"<dt>complete labels</dt><dd>{escape(_words(finding.complete))}</dd></dl>"
    )
    return card(pixel_image(finding.image, text), caption, verdict)


def _mistakes(mistakes: Sequence[Finding]) -> str:
    if not mistakes:
        return ""
    cards = "".join(map(_finding, mistakes))
    return (
        "<h3>Mistakes</h3><p>The next wrong labels in the same ranking.</p>"
        f'<div class="grid findings">{cards}</div>'
    )


def _tags(names: Sequence[str], kind: str) -> str:
    return "".join(f'<span class="{kind}">{escape(name)}</span>' for name in names)


def _words(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "none"
