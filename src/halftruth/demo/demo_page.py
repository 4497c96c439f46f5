"""The demo's page: one HTML file with everything inside, pictures too; nothing is fetched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from PIL import Image

from halftruth.report.page import card, document, facts, pixel_picture


@dataclass(frozen=True)
class Row:
    """One training in the comparison; numbers are shares between 0 and 1."""

    name: str
    method: str
    note: str
    mAP: float
    f1: float
    # How many of the first 50, 100, ... unknown labels, ranked by score, are really there; None
    # where the training was told.
    precision: dict[int, float | None] = field(default_factory=dict)
    seconds: float = 0.0
    kind: str = "robust"  # or "naive", "oracle"


@dataclass(frozen=True)
class Scene:
    """A picture, the labels that are shown and those that were hidden."""

    picture: Image.Image
    shown: Sequence[str]
    hidden: Sequence[str]


@dataclass(frozen=True)
class Finding:
    """A label that the file lacks and the model sees."""

    picture: Image.Image
    rank: int
    label: str
    score: float
    right: bool
    shown: Sequence[str]
    truth: Sequence[str]


@dataclass(frozen=True)
class Report:
    """All that the page tells."""

    rows: Sequence[Row]
    scenes: Sequence[Scene]
    findings: Sequence[Finding]
    mistakes: Sequence[Finding]
    found_by: str
    facts: Sequence[tuple[str, str]]
    settings: str


def write_page(report: Report, path: str | Path) -> Path:
    """Write the report as one HTML file."""
    template = Template((files("halftruth.demo") / "demo_page.html").read_text(encoding="utf-8"))
    depths = list(report.rows[0].precision) if report.rows else []
    text = template.substitute(
        facts=facts(report.facts),
        depths="".join(f'<th class="{_depth_class(depth)}">{depth:,}</th>' for depth in depths),
        depth_count=len(depths),
        rows="".join(map(_row, report.rows)),
        scenes="".join(map(_scene, report.scenes)),
        found_by=escape(report.found_by),
        findings="".join(map(_finding, report.findings)),
        mistakes=_mistakes(report.mistakes),
        settings=escape(report.settings),
    )
    path = Path(path)
    page = document("halftruth demo: the labels that were missing", text)
    path.write_text(page, encoding="utf-8")
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
        f"<td>{100 * row.f1:.1f}</td>{cells}"
        f'<td class="wide">{row.seconds:.0f}<i> s</i></td></tr>\n'
    )


def _share(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f}<i>%</i>"


def _depth_class(depth: int) -> str:
    return "depth" if depth == 500 else "depth wide"


def _scene(scene: Scene) -> str:
    shown = _tags(scene.shown, "shown") or '<span class="none">no label</span>'
    hidden = _tags(scene.hidden, "hidden")
    words = f"labelled {_words(scene.shown)}, hidden: {_words(scene.hidden)}"
    return card(pixel_picture(scene.picture, words), f"{shown}{hidden}")


def _finding(finding: Finding) -> str:
    verdict = "right" if finding.right else "wrong"
    mark = "✓" if finding.right else "✗"
    words = f"{finding.label}, {verdict}; the picture holds {_words(finding.truth)}"
    caption = (
        f'<p class="found"><b>{mark} {escape(finding.label)}</b>'
        f"<span>#{finding.rank:,} · {escape(_score(finding.score))}</span></p>"
        f"<dl><dt>label shown</dt><dd>{escape(_words(finding.shown))}</dd>"
        f"<dt>truth</dt><dd>{escape(_words(finding.truth))}</dd></dl>"
    )
    return card(pixel_picture(finding.picture, words), caption, verdict)


def _score(score: float) -> str:
    return f"{score:.2f}" if score < 0.995 else "> 0.99"


def _mistakes(mistakes: Sequence[Finding]) -> str:
    if not mistakes:
        return ""
    cards = "".join(map(_finding, mistakes))
    return (
        "<h3>Where it is wrong</h3><p>The first other mistakes in the same ranking.</p>"
        f'<div class="grid findings">{cards}</div>'
    )


def _tags(names: Sequence[str], kind: str) -> str:
    return "".join(f'<span class="{kind}">{escape(name)}</span>' for name in names)


def _words(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "nothing"
