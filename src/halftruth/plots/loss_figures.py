"""Figures of losses: loss and gradient over the probability, likelihood of two classes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
import yaml
from torch import Tensor

from halftruth import losses
from halftruth.labels import ABSENT, PRESENT, UNKNOWN
from halftruth.losses import Loss
from halftruth.plots.style import (
    COLOURS,
    DASHES,
    INK,
    Drawing,
    panels,
    shared_legend,
    styled,
    wrapped_panels,
)
from halftruth.train.settings import read_yaml

LABELS = {"PRESENT": PRESENT, "UNKNOWN": UNKNOWN, "ABSENT": ABSENT}
# The axis ends here: a log loss has no upper limit.
_HIGHEST = 5.0
_AXES = {"loss": "loss", "gradient": "gradient dL/dz"}
# Likelihood surfaces: points per axis, contour levels, and the labels of the two classes.
_POINTS = 50
_LEVELS = np.linspace(0, 1, 11)
LABEL_PAIRS = ((1, 1), (0, 1), (0, 0))


def parse_method(text: str) -> tuple[str, dict[str, Any]]:
    """Split `name:key=value,key=value` into the name and its arguments, values read as YAML.

    The name may be package.module:Class.

    >>> parse_method("gr:w=[0, 1e1],b=[-2, -8]")
    ('gr', {'w': [0, 10.0], 'b': [-2, -8]})
    """
    name, _, rest = text.partition(":")
    if rest and name not in losses.names():
        own, _, rest = rest.partition(":")
        name = f"{name}:{own}"
    if rest and not re.fullmatch(r"\w+=[^=]+(,\w+=[^=]+)*(?<!,)", rest):
        raise ValueError(f"expected name:key=value,key=value, got {text!r}")
    try:
        return name, read_yaml("{" + rest.replace("=", ": ") + "}")
    except yaml.YAMLError as error:
        raise ValueError(f"{text}: the values cannot be read as YAML: {error}") from error


def loss_curves(
    methods: Sequence[str],
    at: Sequence[float] = (0.0,),
    *,
    points: int = 199,
    epochs: int = 10,
    classes: int = 20,
) -> pd.DataFrame:
    """Loss and dL/dz over the probability: columns method, at, label, p, logit, loss, gradient.

    `methods` are names, with arguments as in "asl:gamma_neg=2,margin=0.2". `at` are positions in
    the schedule: 0 is the first of the `epochs`, 1 the last. Curves that do not change with the
    schedule are listed once. Each logit is in a row of `classes` equal logits (a weight of 1/(K-1)
    depends on their number), or in a row of one class if the method couples the classes of a row.

    >>> loss_curves(["bce"], points=3).query("label == 'PRESENT'")[["p", "gradient"]].round(2)
          p  gradient
    0  0.01     -0.99
    1  0.50     -0.50
    2  0.99     -0.01
    """
    wrong = [place for place in at if not 0 <= place <= 1]
    if wrong or not at:
        raise ValueError(f"expected positions in the schedule from 0 to 1, got {list(at)}")
    p = np.linspace(0.01, 0.99, points)
    tables = []
    for method in methods:
        name, options = parse_method(method)
        drawn: pd.DataFrame | None = None
        for place in at:
            parts = [
                _curve(losses.create(name, **options), code, p, place, epochs, classes)
                for code in LABELS.values()
            ]
            for part, label in zip(parts, LABELS, strict=True):
                part.insert(0, "label", label)
            table = pd.concat(parts, ignore_index=True)
            if drawn is not None and table.equals(drawn):
                continue
            drawn = table
            tables.append(table.assign(method=method, at=place))
    order = ["method", "at", "label", "p", "logit", "loss", "gradient"]
    return pd.concat(tables, ignore_index=True)[order]


def _curve(
    loss: Loss, code: int, p: np.ndarray, place: float, epochs: int, classes: int
) -> pd.DataFrame:
    """Loss of single entries and its gradient by autograd, for labels that are all `code`."""
    width = 1 if loss.couples_rows else classes
    z = torch.logit(torch.tensor(p, dtype=torch.float64))
    logits = z[:, None].expand(-1, width).clone().requires_grad_()
    labels = torch.full(logits.shape, code, dtype=torch.int8)
    value = _call(loss, logits, labels, place, epochs)
    (slope,) = torch.autograd.grad(value.sum(), logits)
    value = value if value.dim() == 1 else value[:, 0]
    return pd.DataFrame(
        {"p": p, "logit": z, "loss": value.detach().numpy(), "gradient": slope[:, 0].numpy()}
    )


def _call(
    loss: Loss, logits: Tensor, labels: Tensor, place: float | None = None, epochs: int = 0
) -> Tensor:
    """The loss per entry or row, of a training set of these labels, at a place in the schedule."""
    loss.reduction = "none"
    loss.begin(labels)
    if place is not None:
        loss.start_epoch(round(place * (epochs - 1)), epochs)
        # The last epoch begins before a linear schedule ends.
        loss.go_to(place)
    seen = logits if loss.views == 1 else logits.expand(loss.views, *logits.shape)
    return loss(seen, labels, index=torch.arange(len(labels)) if loss.needs_index else None)


@styled
def draw_losses(
    methods: Sequence[str] | Mapping[str, str],
    at: Sequence[float] = (0.0,),
    *,
    labels: Sequence[str] = tuple(LABELS),
    show: Sequence[str] = ("loss", "gradient"),
    name: str = "losses",
    **options: Any,
) -> Drawing:
    """Draw loss (above) and gradient (below) of any methods, one column per kind of label.

    003 Figs. 1, 3, 4, 8; 002 Fig. 1; 001 Fig. 2. See `loss_curves` for the arguments; `methods`
    may have names for the legend. labels, show: only these columns and rows of panels.
    """
    named = methods if isinstance(methods, Mapping) else {method: method for method in methods}
    titles = {method: title for title, method in named.items()}
    numbers = loss_curves(list(titles), at, **options)
    places = numbers.groupby("method")["at"].nunique()
    alone = len(labels) * len(show) == 1
    figure, grid = panels(len(show), len(labels), width=4.6 if alone else 3.4, height=2.5 + alone)
    curves = numbers.groupby(["method", "at"], sort=False)
    for number, (key, table) in enumerate(curves):
        method, place = cast(tuple[str, float], key)
        # One colour per method; dashes for positions in the schedule, and for more than 7 methods.
        which = list(titles).index(method)
        dash = list(at).index(place) + which // len(COLOURS)
        look = {
            "color": COLOURS[which % len(COLOURS)],
            "linestyle": DASHES[dash % len(DASHES)],
            "label": titles[method] + ("" if places[method] == 1 else f" at {place:g}"),
            # Where curves coincide, the wider first ones are visible below the later ones.
            "linewidth": max(3.2 - 0.5 * number, 1.2),
            "zorder": 2 + number / 100,
        }
        for axes, (what, label) in zip(grid.flat, itertools.product(show, labels), strict=True):
            curve = table[table["label"] == label]
            axes.plot(curve["p"], curve[what], **look)
    for what, line in zip(show, grid, strict=True):
        line[0].set_ylabel(_AXES[what])
        for axes in line:
            axes.set_xlim(0, 1)
            if what == "loss":
                low, high = axes.get_ylim()
                axes.set_ylim(max(low, -_HIGHEST), min(high, _HIGHEST))
            else:
                axes.axhline(0, linewidth=0.8, color=INK, zorder=1)
    for label, axes in zip(labels, grid[0], strict=True):
        axes.set_title(label)
    for axes in grid[-1]:
        axes.set_xlabel("probability p")
    shared_legend(figure, grid, least=1)
    return Drawing(name, figure, numbers)


def _probability_grid(points: int) -> tuple[np.ndarray, np.ndarray]:
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
    a, b = _probability_grid(points)
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

    Columns y1, y2 (the labels), surface, p1, p2, likelihood. A method that wraps another one has
    three surfaces: its base, the term it adds (their ratio), and the whole.
    """
    name, options = parse_method(method)
    whole = losses.create(name, **options)
    a, b = _probability_grid(points)
    logits = torch.logit(torch.tensor(np.stack([a, b], axis=1)))
    tables = []
    for row in LABEL_PAIRS:
        labels = torch.tensor(row, dtype=torch.int8).expand(len(a), 2).clone()
        surfaces = {name: _likelihood(whole, logits, labels)}
        if (inner := getattr(whole, "base", None)) is not None:
            base = _likelihood(inner, logits, labels)
            kind = type(inner).__name__
            surfaces = {kind: base, "added": surfaces[name] / base, name: surfaces[name]}
        for surface, value in surfaces.items():
            columns = {"y1": row[0], "y2": row[1], "surface": surface, "p1": a, "p2": b}
            tables.append(pd.DataFrame({**columns, "likelihood": value.numpy()}))
    return pd.concat(tables, ignore_index=True)


def _likelihood(loss: Loss, logits: Tensor, labels: Tensor) -> Tensor:
    value = _call(loss, logits, labels)
    return torch.exp(-(value if value.dim() == 1 else value.sum(dim=1)))


def draw_means(points: int = _POINTS) -> Drawing:
    """Draw products and geometric means of two probabilities as contours (000, Fig. 2)."""
    numbers = mean_surfaces(points)
    return _draw_contours("means", numbers, numbers["surface"], "value", columns=2)


def draw_surface(method: str = "any-class", points: int = _POINTS) -> Drawing:
    """Draw likelihood surfaces: one row of panels per pair of labels, one column per surface."""
    numbers = likelihood_surfaces(method, points)
    kinds = numbers["surface"].unique()
    surface = numbers["surface"].replace("added", f"added by {kinds[-1]}")
    pairs = numbers["y1"].astype(str) + ", " + numbers["y2"].astype(str)
    titles = surface + "\nlabels (" + pairs + ")"
    return _draw_contours("surface", numbers, titles, "likelihood", columns=len(kinds))


@styled
def _draw_contours(
    name: str, numbers: pd.DataFrame, titles: pd.Series[str], column: str, columns: int
) -> Drawing:
    """Draw a column over two probabilities, one panel per title."""
    found = numbers.groupby(titles.to_numpy(), sort=False)
    figure, grid, used = wrapped_panels(len(found), columns, width=3, height=2.8)
    for axes, (title, table) in zip(used, found, strict=True):
        side = round(len(table) ** 0.5)
        p1, p2, value = (table[key].to_numpy().reshape(side, side) for key in ("p1", "p2", column))
        # An added term may exceed 1, where its loss is negative; the scale ends at 1.
        filled = axes.contourf(p1, p2, np.clip(value, 0, 1), levels=_LEVELS)
        axes.contour(p1, p2, value, levels=_LEVELS[1:-1], colors="white", linewidths=0.5)
        axes.set(aspect="equal", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1], xlim=(0, 1), ylim=(0, 1))
        axes.grid(False)
        axes.set_title(str(title))
    for axes in grid[-1]:
        axes.set_xlabel("p of the first class")
    for axes in grid[:, 0]:
        axes.set_ylabel("p of the second class")
    figure.colorbar(filled, ax=grid, label=column, shrink=0.7, ticks=_LEVELS[::2])
    return Drawing(name, figure, numbers)
