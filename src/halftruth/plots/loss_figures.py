"""What a method makes of an answer: loss and gradient over the probability, by the label."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml

from halftruth import losses
from halftruth.labels import ABSENT, PRESENT, UNKNOWN
from halftruth.losses import Loss, Wrapper
from halftruth.losses.gr import GR
from halftruth.plots.style import COLOURS, DASHES, INK, Drawing, panels, shared_legend, styled

LABELS = {"PRESENT": PRESENT, "UNKNOWN": UNKNOWN, "ABSENT": ABSENT}
# Curves are cut here: a log loss has no upper end.
_HIGHEST = 5.0


def parse_method(text: str) -> tuple[str, dict[str, Any]]:
    """`name:key=value,key=value` as a name and its arguments, the values read as YAML.

    >>> parse_method("gr:w=[0, 10],b=[-2, -8]")
    ('gr', {'w': [0, 10], 'b': [-2, -8]})
    """
    name, _, rest = text.partition(":")
    options = {}
    # Commas inside brackets belong to a value.
    for pair in re.split(r",(?![^\[{]*[\]}])", rest) if rest else ():
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"expected name:key=value,key=value, got {text!r}")
        options[key.strip()] = yaml.safe_load(value)
    return name, options


def loss_curves(
    methods: Sequence[str],
    at: Sequence[float] = (0.0,),
    *,
    points: int = 199,
    epochs: int = 10,
    classes: int = 20,
) -> pd.DataFrame:
    """Loss and dL/dz over the probability: columns method, at, label, p, logit, loss, gradient.

    `methods` are names, with arguments as in "asl:gamma_neg=2,margin=0.2". `at` are places in the
    schedule: 0 the first of the `epochs`, 1 the last. A method's curves that do not change with
    the schedule are given once. Every logit stands alone: in a row of `classes` equal ones, which
    a weight of 1/(K-1) needs to know, or in a row of one class where a method couples its classes.

    >>> loss_curves(["bce"], points=3).query("label == 'PRESENT'")[["p", "gradient"]].round(2)
          p  gradient
    0  0.01     -0.99
    1  0.50     -0.50
    2  0.99     -0.01
    """
    wrong = [place for place in at if not 0 <= place <= 1]
    if wrong or not at:
        raise ValueError(f"expected places in the schedule from 0 to 1, got {list(at)}")
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
    """Value and autograd's gradient of every entry by itself."""
    loss.reduction = "none"
    width = 1 if loss.couples_rows else classes
    z = torch.logit(torch.tensor(p, dtype=torch.float64))
    logits = z[:, None].expand(-1, width).clone().requires_grad_()
    labels = torch.full(logits.shape, code, dtype=torch.int8)
    loss.begin(labels)
    _go_to(loss, place, epochs)
    seen = logits if loss.views == 1 else logits.expand(loss.views, *logits.shape)
    index = torch.arange(len(z)) if loss.needs_index else None
    value = loss(seen, labels, index=index)
    (slope,) = torch.autograd.grad(value.sum(), logits)
    value = value if value.dim() == 1 else value[:, 0]
    return pd.DataFrame(
        {"p": p, "logit": z, "loss": value.detach().numpy(), "gradient": slope[:, 0].numpy()}
    )


def _go_to(loss: Loss, place: float, epochs: int) -> None:
    loss.start_epoch(round(place * (epochs - 1)), epochs)
    inner = loss
    while isinstance(inner, Wrapper):
        inner = inner.base
    # A schedule in straight lines ends where no epoch begins: at its very end.
    if isinstance(inner, GR):
        inner.go_to(place)


@styled
def draw_losses(methods: Sequence[str], at: Sequence[float] = (0.0,), **options: Any) -> Drawing:
    """Loss (above) and gradient (below) of any methods, side by side for each kind of label.

    003 Figs. 3, 4, 8; 002 Fig. 1; 001 Fig. 2. See `loss_curves` for the arguments.
    """
    numbers = loss_curves(methods, at, **options)
    figure, grid = panels(2, len(LABELS), height=2.5)
    for column, label in enumerate(LABELS):
        for row, what in enumerate(("loss", "gradient")):
            axes = grid[row, column]
            for number, (method, place) in enumerate(_lines(numbers)):
                chosen = (numbers["method"] == method) & (numbers["at"] == place)
                curve = numbers[chosen & (numbers["label"] == label)]
                axes.plot(
                    curve["p"], curve[what], **_look(method, place, methods, at),
                    label=_caption(method, place, numbers),
                    # Where curves fall together, the first ones are seen beneath the last.
                    linewidth=max(3.2 - 0.5 * number, 1.2), zorder=2 + number / 100,
                )  # fmt: skip
            axes.set_xlim(0, 1)
            if row == 0:
                axes.set_title(label)
                low, high = axes.get_ylim()
                axes.set_ylim(max(low, -_HIGHEST), min(high, _HIGHEST))
            else:
                axes.axhline(0, linewidth=0.8, color=INK, zorder=1)
                axes.set_xlabel("probability p")
        grid[0, 0].set_ylabel("loss")
        grid[1, 0].set_ylabel("gradient dL/dz")
    shared_legend(figure, grid, least=1)
    return Drawing("losses", figure, numbers)


def _lines(numbers: pd.DataFrame) -> list[tuple[str, float]]:
    pairs = numbers[["method", "at"]].drop_duplicates()
    return [(str(method), float(place)) for method, place in pairs.itertuples(index=False)]


def _look(method: str, place: float, methods: Sequence[str], at: Sequence[float]) -> dict[str, Any]:
    """A colour for a method, a dash for a place in the schedule, or for the next seven methods."""
    number = list(methods).index(method)
    dash = list(at).index(place) + number // len(COLOURS)
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[dash % len(DASHES)]}


def _caption(method: str, place: float, numbers: pd.DataFrame) -> str:
    alone = numbers.loc[numbers["method"] == method, "at"].nunique() == 1
    return method if alone else f"{method} at {place:g}"
