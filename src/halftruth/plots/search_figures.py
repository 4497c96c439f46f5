"""Figures of how a result depends on settings: Optuna searches, and benchmark trials."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from halftruth.data import DataError
from halftruth.plots.style import (
    INK,
    Drawing,
    line_look,
    panels,
    shared_legend,
    shorten,
    styled,
    wrapped_panels,
)

# Up to this many values of a setting are joined by a line, if nothing else varies.
_GRID = 12
_COLUMNS = 3


def read_study(source: str | Path, name: str | None = None) -> pd.DataFrame:
    """Read the trials of a study: columns trial, state, value (validation mAP in %), settings.

    `source` is a folder written by `halftruth tune`, its study.db, or the URL of a storage; `name`
    is needed if the storage has several studies.
    """
    from halftruth.bench.tune import import_optuna

    optuna = import_optuna()
    url = _storage(source)
    found = optuna.get_all_study_names(storage=url)
    if name is None and len(found) != 1:
        raise DataError(f"{source}: expected one study, or its name (--study); there are: {found}")
    if name is not None and name not in found:
        raise DataError(f"{source}: there is no study {name!r}; there are: {found}")
    study = optuna.load_study(study_name=name or found[0], storage=url)
    rows = []
    for trial in study.get_trials(deepcopy=False):
        reached = trial.value
        if reached is None and trial.intermediate_values:
            reached = max(trial.intermediate_values.values())
        if reached is not None:
            about = {"trial": trial.number + 1, "state": trial.state.name.lower()}
            rows.append({**about, "value": 100 * reached, **trial.params})
    if not rows:
        raise DataError(f"{source}: no trial of the study has a value yet")
    return pd.DataFrame(rows)


def _storage(source: str | Path) -> str:
    if "://" in str(source):
        return str(source)
    path = Path(source)
    path = path / "study.db" if path.is_dir() else path
    if not path.is_file():
        raise DataError(f"{source}: there is no study here (no file {path})")
    return f"sqlite:///{path}"


def draw_study(source: str | Path, name: str | None = None) -> list[Drawing]:
    """Draw the history of a search, and how the result depends on each setting."""
    trials = read_study(source, name)
    settings = [str(key) for key in trials if key not in ("trial", "state", "value")]
    text = "validation mAP, %"
    return [
        draw_history(trials, text),
        draw_sensitivity(trials, settings, text),
    ]


@styled
def draw_history(trials: pd.DataFrame, text: str) -> Drawing:
    """Draw the value of every trial, and the best so far."""
    done = trials["state"] == "complete"
    numbers = trials.assign(best=trials["value"].where(done).cummax().ffill())
    figure, grid = panels(1, 1, width=5.5, height=3)
    axes = grid[0, 0]
    for place, (state, part) in enumerate(numbers.groupby("state")):
        look = {"color": line_look(place)["color"], "marker": "osx"[place % 3]}
        axes.plot(part["trial"], part["value"], linestyle="", markersize=4, label=state, **look)
    axes.step(numbers["trial"], numbers["best"], where="post", color=INK, label="best so far")
    axes.set_xlabel("trial")
    axes.set_ylabel(text)
    shared_legend(figure, grid)
    return Drawing("history", figure, numbers)


@styled
def draw_sensitivity(table: pd.DataFrame, settings: Sequence[str], text: str) -> Drawing:
    """Draw `value` over each setting, one panel per setting.

    One dot per trial. A line joins the means where a single setting varies; otherwise it would show
    the effect of the others.
    """
    varied = [key for key in settings if _plottable(table[key]).nunique() > 1]
    if not varied:
        raise DataError(f"all trials have the same settings: {', '.join(settings) or 'none'}")
    numbers = table[["state", *varied, "value"]]
    figure, grid, used = wrapped_panels(len(varied), _COLUMNS, width=3.3, height=2.6)
    for axes, key in zip(used, varied, strict=True):
        _draw_setting(axes, table.dropna(subset=[key, "value"]), key, len(varied) == 1)
        axes.set_xlabel(shorten(key))
    for axes in grid[:, 0]:
        axes.set_ylabel(text)
    shared_legend(figure, grid, least=1)
    return Drawing("sensitivity", figure, numbers)


def _draw_setting(axes: Axes, table: pd.DataFrame, key: str, alone: bool) -> None:
    shown = _plottable(table[key])
    names: list[str] = []
    if pd.api.types.is_numeric_dtype(shown):
        at = shown
        if shown.min() > 0 and shown.max() / shown.min() > 20:
            axes.set_xscale("log")
    else:
        names = sorted(shown.unique())
        at = shown.map({value: place for place, value in enumerate(names)})
        axes.set_xticks(range(len(names)), [shorten(value, 10) for value in names])
        axes.set_xlim(-0.5, len(names) - 0.5)
    for place, (title, rows) in enumerate(table.groupby("state")):
        look = line_look(place)
        x, y = at[rows.index], rows["value"]
        marker = "osx^Dv"[place % 6]
        axes.scatter(x, y, s=16, marker=marker, color=look["color"], alpha=0.7, label=str(title))
        runs = y.groupby(x)
        if 1 < len(runs) <= _GRID and alone and not names:
            axes.plot(runs.mean().index, runs.mean(), **look)


def _plottable(values: pd.Series[Any]) -> pd.Series[Any]:
    """Numbers unchanged; choices, which a study stores as JSON, as numbers or text."""
    if pd.api.types.is_bool_dtype(values):
        return values.astype(str)
    if pd.api.types.is_numeric_dtype(values):
        return values
    read = values.map(_from_json)
    if read.map(lambda one: isinstance(one, (int, float)) and not isinstance(one, bool)).all():
        return read.astype(float)
    return read.map(lambda one: one if isinstance(one, str) else json.dumps(one))


def _from_json(value: object) -> object:
    if not isinstance(value, str):
        return value if not isinstance(value, float) or not np.isnan(value) else None
    try:
        return json.loads(value)
    except ValueError:
        return value
