"""What a method holds likely of two classes at once: likelihood surfaces, geometric means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from torch import Tensor

from halftruth import losses
from halftruth.losses import Loss, Wrapper
from halftruth.plots.loss_figures import parse_method
from halftruth.plots.style import Drawing, panels, styled

_POINTS = 50
_LEVELS = np.linspace(0, 1, 11)
ROWS = ((1, 1), (0, 1), (0, 0))


def _grid(points: int) -> tuple[np.ndarray, np.ndarray]:
    edge = 0.5 / points
    p = np.linspace(edge, 1 - edge, points)
    first, second = np.meshgrid(p, p, indexing="xy")
    return first.ravel(), second.ravel()


def mean_surfaces(points: int = _POINTS) -> pd.DataFrame:
    """Product and geometric mean of two probabilities, and both normalised (000, Fig. 2).

        normalised f = f(p) / (f(p) + f(1 - p))

    >>> flat = mean_surfaces(10)
    >>> sorted(flat["surface"].unique())
    ['geometric mean', 'normalised geometric mean', 'normalised product', 'product']
    """
    a, b = _grid(points)
    means = {"product": a * b, "geometric mean": np.sqrt(a * b)}
    rest = {"product": (1 - a) * (1 - b), "geometric mean": np.sqrt((1 - a) * (1 - b))}
    means |= {f"normalised {name}": value / (value + rest[name]) for name, value in means.items()}
    tables = [
        pd.DataFrame({"surface": name, "p1": a, "p2": b, "value": value})
        for name, value in means.items()
    ]
    return pd.concat(tables, ignore_index=True)


def likelihood_surfaces(method: str = "any-class", points: int = _POINTS) -> pd.DataFrame:
    """exp(-loss) of a row of two classes over their probabilities (000, Fig. 3).

    Columns y1, y2 (the labels), surface, p1, p2, likelihood. A method around another gives three
    surfaces: its base, what it adds (their ratio), and the whole.
    """
    name, options = parse_method(method)
    whole = losses.create(name, **options)
    a, b = _grid(points)
    logits = torch.logit(torch.tensor(np.stack([a, b], axis=1)))
    tables = []
    for row in ROWS:
        labels = torch.tensor(row, dtype=torch.int8).expand(len(a), 2).clone()
        surfaces = {name: _likelihood(whole, logits, labels)}
        if isinstance(whole, Wrapper):
            base = _likelihood(whole.base, logits, labels)
            kind = type(whole.base).__name__
            surfaces = {kind: base, "added": surfaces[name] / base, name: surfaces[name]}
        for surface, value in surfaces.items():
            columns = {"y1": row[0], "y2": row[1], "surface": surface, "p1": a, "p2": b}
            tables.append(pd.DataFrame({**columns, "likelihood": value.numpy()}))
    return pd.concat(tables, ignore_index=True)


def _likelihood(loss: Loss, logits: Tensor, labels: Tensor) -> Tensor:
    loss.reduction = "none"
    loss.begin(labels)
    index = torch.arange(len(labels)) if loss.needs_index else None
    seen = logits if loss.views == 1 else logits.expand(loss.views, *logits.shape)
    value = loss(seen, labels, index=index)
    return torch.exp(-(value if value.dim() == 1 else value.sum(dim=1)))


@styled
def draw_means(points: int = _POINTS) -> Drawing:
    """Four surfaces as contours: why a product of probabilities saturates, and a mean does not."""
    numbers = mean_surfaces(points)
    figure, grid = panels(2, 2, width=3.2, height=2.9)
    drawn = None
    for axes, (name, table) in zip(grid.flat, numbers.groupby("surface", sort=False), strict=True):
        drawn = _contour(axes, table, "value")
        axes.set_title(str(name))
    _finish(figure, grid, drawn, "value")
    return Drawing("means", figure, numbers)


@styled
def draw_surface(method: str = "any-class", points: int = _POINTS) -> Drawing:
    """Likelihood surfaces: a row of panels for each pair of labels, a column for each surface."""
    numbers = likelihood_surfaces(method, points)
    names = list(dict.fromkeys(numbers["surface"]))
    figure, grid = panels(len(ROWS), len(names), width=2.9, height=2.5)
    drawn = None
    for line, (y1, y2) in enumerate(ROWS):
        for column, name in enumerate(names):
            chosen = (numbers["y1"] == y1) & (numbers["y2"] == y2) & (numbers["surface"] == name)
            drawn = _contour(grid[line, column], numbers[chosen], "likelihood")
            if not line:
                added = name == "added"
                grid[line, column].set_title(f"added by {names[-1]}" if added else name)
        grid[line, 0].set_ylabel(f"labels ({y1}, {y2})\np of the second class")
    _finish(figure, grid, drawn, "likelihood, exp(−loss)")
    return Drawing("surface", figure, numbers)


def _contour(axes: Axes, table: pd.DataFrame, what: str) -> Any:
    side = round(len(table) ** 0.5)
    p1, p2, value = (table[name].to_numpy().reshape(side, side) for name in ("p1", "p2", what))
    # What a term adds may exceed 1, where its loss is below 0: the scale ends there.
    filled = axes.contourf(p1, p2, np.clip(value, 0, 1), levels=_LEVELS)
    axes.contour(p1, p2, value, levels=_LEVELS[1:-1], colors="white", linewidths=0.5)
    axes.set_aspect("equal")
    axes.grid(False)
    axes.set_xticks([0, 0.5, 1])
    axes.set_yticks([0, 0.5, 1])
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    return filled


def _finish(figure: Any, grid: Any, drawn: Any, text: str) -> None:
    for axes in grid[-1]:
        axes.set_xlabel("p of the first class")
    for axes in grid[:, 0]:
        if not axes.get_ylabel():
            axes.set_ylabel("p of the second class")
    figure.colorbar(drawn, ax=grid, label=text, shrink=0.7, ticks=_LEVELS[::2])
