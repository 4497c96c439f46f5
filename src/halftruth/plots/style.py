"""The style of figures, and how they are saved: SVG, PDF or PNG, with their numbers as CSV."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from halftruth.data import DataError
from halftruth.train.results.output_tables import to_csv_text

# Colours of Okabe and Ito, which colour-blind people can distinguish, without the pale yellow.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")
DASHES = ("-", "--", ":", "-.")
INK, GRID = "#1d1f24", "#8a8d94"
# Each kind of label has the same colour in every figure.
GROUP_COLOURS = {
    "labelled": "#0072B2",
    "hidden": "#D55E00",
    "negative": "#7F7F7F",
    "absent": "#009E73",
    "unknown": "#E69F00",
}
SUFFIXES = (".svg", ".pdf", ".png")

_STYLE: dict[Any, Any] = {
    "figure.dpi": 100,
    "savefig.dpi": 160,
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "svg.hashsalt": "halftruth",
    "pdf.fonttype": 42,
    "image.cmap": "cividis",
}

P = ParamSpec("P")
R = TypeVar("R")


@dataclass
class Drawing:
    """A figure, a name for its file, and the numbers it shows, one row per point."""

    name: str
    figure: Figure
    numbers: pd.DataFrame


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Let a function draw in this style without changing matplotlib's global settings."""

    @functools.wraps(draw)
    def drawn(*args: P.args, **options: P.kwargs) -> R:
        with mpl.rc_context(_STYLE), warnings.catch_warnings():
            # A letter that the font lacks is drawn as a box; a warning would not help.
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            return draw(*args, **options)

    return drawn


def line_look(number: int) -> dict[str, Any]:
    """Colour and dash of a line; 28 combinations differ, the first ones also in greyscale."""
    colours = len(COLOURS)
    dash = DASHES[(number + number // colours) % len(DASHES)] if number else "-"
    return {"color": COLOURS[number % colours], "linestyle": dash}


def panels(rows: int, columns: int, width: float = 3.4, height: float = 2.6) -> tuple[Figure, Any]:
    """Make a figure of equal panels; also return the (rows, columns) array of its axes."""
    figure = Figure(figsize=(width * columns, height * rows))
    # A figure made without pyplot needs a canvas before its texts can be measured.
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def wrapped_panels(count: int, columns: int, **size: float) -> tuple[Figure, Any, list[Axes]]:
    """Make panels in lines of `columns`; also return all axes, and those in use."""
    columns = min(count, columns)
    figure, grid = panels(-(-count // columns), columns, **size)
    for axes in list(grid.flat)[count:]:
        axes.set_visible(False)
    return figure, grid, list(grid.flat)[:count]


@styled
def save(drawing: Drawing, out: str | Path) -> list[Path]:
    """Write a figure and its numbers; return the paths.

    `out` ends in .svg, .pdf or .png, or has no ending for both .svg and .png; the numbers are
    written next to it as .csv.
    """
    out = Path(out)
    if out.suffix and out.suffix.lower() not in SUFFIXES:
        raise DataError(
            f"{out}: expected a file that ends in {', '.join(SUFFIXES)}, or no ending for .svg "
            "and .png"
        )
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise DataError(f"{out.parent} is a file; expected a folder for the figures") from error
    *paths, numbers = _name_files(out)
    for path in paths:
        # Without a date, equal figures are equal files.
        meta = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower())
        drawing.figure.savefig(path, metadata=meta, facecolor="white")
    numbers.write_text(to_csv_text(drawing.numbers), encoding="utf-8", newline="")
    return [*paths, numbers]


def _name_files(out: Path) -> list[Path]:
    """The files of one figure: its images, and its numbers."""
    paths = [out] if out.suffix else [Path(f"{out}{suffix}") for suffix in (".svg", ".png")]
    return [*paths, Path(f"{out.with_suffix('') if out.suffix else out}.csv")]


def save_all(drawings: Sequence[Drawing], out: str | Path) -> list[Path]:
    """Write several figures into the folder `out`; return the paths.

    If `out` ends in .svg, .pdf or .png, the names of the files begin with it instead. A single
    figure is written to `out` itself, unless that is a folder.
    """
    names = _name_figures(drawings, Path(out))
    return [path for one, name in zip(drawings, names, strict=True) for path in save(one, name)]


def name_files(drawings: Sequence[Drawing], out: Path) -> list[Path]:
    """Return the paths that `save_all` writes."""
    return [path for name in _name_figures(drawings, out) for path in _name_files(name)]


def _name_figures(drawings: Sequence[Drawing], out: Path) -> list[Path]:
    if len(drawings) == 1 and not out.is_dir():
        return [out]
    if out.suffix and not out.is_dir():
        return [out.with_name(f"{out.stem}-{one.name}{out.suffix}") for one in drawings]
    # A method such as package.module:Class has a dot, which would begin the ending.
    return [out / re.sub(r"[^\w-]", "-", one.name) for one in drawings]


def shorten(name: str, most: int = 22) -> str:
    """Shorten a name in its middle to at most `most` characters; $ does not start mathematics.

    >>> shorten("has_wing_pattern::striped_lengthwise")
    'has_wing_p…_lengthwise'
    """
    head = (most - 1) // 2
    short = name if len(name) <= most else f"{name[:head]}…{name[head - most + 1 :]}"
    return short.replace("$", r"\$")


def legend_name(name: str) -> str:
    """A name for a legend; matplotlib would leave out one that begins with an underscore.

    >>> legend_name("_first")
    ' _first'
    """
    short = shorten(name, 36)
    return f" {short}" if short.startswith("_") else short


def name_ticks(axis: Any, places: Sequence[float], names: Sequence[str], most: int) -> None:
    """Label the ticks of at most `most` evenly spaced names."""
    picked = np.unique(np.linspace(0, len(names) - 1, min(most, len(names))).round().astype(int))
    axis.set_ticks([places[i] for i in picked], [shorten(names[i]) for i in picked])


def name_points(
    axes: Axes, points: Sequence[tuple[float, float, str]], *, below: bool = True
) -> list[Text]:
    """Write names next to points, in this order, unless one would cover another name or a point.

    The names get some space between them, because letters in SVG files differ in width from those
    measured here.
    """
    sides = [(4, 2, "left"), (-4, 2, "right"), (4, -8, "left"), (-4, -8, "right")]
    if not points:
        return []
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]
    frame = axes.get_window_extent()
    at = axes.transData.transform([(x, y) for x, y, _ in points])
    dots = [Bbox.from_bounds(x - 3, y - 3, 6, 6) for x, y in at]
    taken: list[Bbox] = []
    written: list[Text] = []
    for number, (x, y, name) in enumerate(points):
        others = [*taken, *dots[:number], *dots[number + 1 :]] if below else taken
        for dx, dy, side in sides if below else sides[:1]:
            text = axes.annotate(
                shorten(name, 16), (x, y), (dx, dy), textcoords="offset points",
                fontsize=7, ha=side,
            )  # fmt: skip
            box = text.get_window_extent().padded(2)
            inside = frame.x0 <= box.x0 and box.x1 <= frame.x1
            inside = inside and frame.y0 <= box.y0 and box.y1 <= frame.y1
            if inside and not any(box.overlaps(other) for other in others):
                taken.append(box)
                written.append(text)
                break
            text.remove()
    for one in written:
        # The layout is done: the names must not change it.
        one.set_in_layout(False)
    return written


def shared_legend(figure: Figure, grid: np.ndarray, *, least: int = 2) -> None:
    """Add one legend for all panels below them, if there are at least `least` kinds of lines."""
    found: dict[str, Any] = {}
    for axes in grid.flat:
        handles, names = axes.get_legend_handles_labels()
        found = dict(zip(names, handles, strict=True)) | found
    if len(found) >= least:
        # The approximate number of entries that fit side by side.
        entry = 0.6 + 0.075 * max(map(len, found))
        room = max(int(figure.get_figwidth() / entry), 1)
        figure.legend(
            list(found.values()),
            list(found),
            loc="outside lower center",
            ncols=-(-len(found) // -(-len(found) // room)),
        )
