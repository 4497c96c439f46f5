"""Check that the texts of a figure can be read: no overlaps, all inside the figure, axes named."""

from __future__ import annotations

from itertools import combinations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox


def texts(figure: Figure) -> list[tuple[str, Bbox]]:
    """All visible texts with their boxes, slightly smaller because letters do not fill them."""
    figure.draw_without_rendering()
    not_drawn = _ticks_outside(figure)
    found = []
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text().strip() and id(text) not in not_drawn:
            box = text.get_window_extent()
            if box.width and box.height:
                found.append((text.get_text(), box.padded(-1)))
    return found


def _ticks_outside(figure: Figure) -> set[int]:
    """Ids of tick labels that exist but are not drawn."""
    every, drawn = set(), set()
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        ticks = [*axis.majorTicks, *axis.minorTicks]
        every |= {id(label) for tick in ticks for label in (tick.label1, tick.label2)}
        shown = axis._update_ticks()
        drawn |= {id(label) for tick in shown for label in (tick.label1, tick.label2)}
    return every - drawn


def overlaps(found: list[tuple[str, Bbox]]) -> list[tuple[str, str]]:
    """Pairs of texts that overlap."""
    pairs = combinations(found, 2)
    return [(a, b) for (a, one), (b, other) in pairs if one.overlaps(other)]


def cut_off(found: list[tuple[str, Bbox]], whole: Bbox) -> list[str]:
    """Texts that reach beyond the figure."""
    return [
        name
        for name, box in found
        if box.x0 < whole.x0 or box.y0 < whole.y0 or box.x1 > whole.x1 or box.y1 > whole.y1
    ]


def unnamed(figure: Figure) -> int:
    """Number of missing axis names among the panels at the left and lower edges."""
    panels = [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]
    left = min(axes.get_position().x0 for axes in panels)
    low = min(axes.get_position().y0 for axes in panels)
    return sum(
        (axes.get_position().x0 < left + 0.02 and not axes.get_ylabel() and not _has_names(axes))
        + (axes.get_position().y0 < low + 0.02 and not axes.get_xlabel())
        for axes in panels
    )


def _has_names(axes: Axes) -> bool:
    """Whether the ticks are names of classes or methods, which need no axis name."""
    return any(label.get_text()[:1].isalpha() for label in axes.get_yticklabels())


def assert_legible(figure: Figure) -> None:
    found = texts(figure)
    assert overlaps(found) == []
    assert cut_off(found, figure.bbox.padded(2)) == []
    assert unnamed(figure) == 0
