"""Figures of benchmark results: a comparison of methods, and metrics over the values of options."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from halftruth.bench.paper_items import Sweep
from halftruth.bench.result_tables import COLUMN, summarise
from halftruth.bench.results import Record, read_results
from halftruth.data import DataError
from halftruth.plots.style import (
    COLOURS,
    INK,
    Drawing,
    line_look,
    panels,
    shared_legend,
    styled,
    wrapped_panels,
)


def draw_bench(
    results: str | Path | Sequence[str | Path], metric: str = "mAP", methods: Sequence[str] = ()
) -> Drawing:
    """Draw the comparison of methods on test rows."""
    records = read_results([results] if isinstance(results, str | Path) else results)
    known = list(dict.fromkeys(record["method"] for record in records))
    if unknown := [name for name in methods if name not in known]:
        raise DataError(f"there are no results of {unknown}; the methods are: {', '.join(known)}")
    found = summarise([r for r in records if not methods or r["method"] in methods], [metric])
    if not len(found):
        raise DataError(f"{results}: no run has been evaluated on test rows yet")
    return draw_comparison(found)


@styled
def draw_sweep(
    records: Sequence[Record],
    sweeps: Mapping[str, Sequence[Sweep]],
    metrics: Sequence[str],
    names: Mapping[str, str],
) -> Drawing:
    """Draw a metric of test rows over an option: 000 Fig. 4, 002 Fig. 2, 004 Fig. 1.

    One panel per data set, sweep and metric, one curve per value of a second option; rows that are
    in no sweep are lines. A sweep over epochs has validation rows.
    """
    tables = []
    for data, several in sweeps.items():
        runs: dict[str, list[Record]] = {}
        for run in records:
            if run["data"] == data and not run["trial"]:
                runs.setdefault(run["method"], []).append(run)
        swept = {row for sweep in several for rows in sweep.rows.values() for row in rows.values()}
        baselines = {names.get(row, row): {np.nan: row} for row in runs if row not in swept}
        for sweep, metric in itertools.product(several, metrics):
            place = {"data": data, "x": sweep.x, "metric": metric}
            by_epoch = sweep.x == "epoch"
            for curve, rows in (sweep.rows | ({} if by_epoch else baselines)).items():
                for x, row in rows.items():
                    values: dict[Any, Any] = {x: [run["test"][metric] for run in runs[row]]}
                    if by_epoch:
                        values = dict(
                            enumerate(zip(*(r["val_by_epoch"] for r in runs[row]), strict=False), 1)
                        )
                    for at, found in values.items():
                        point = {"at": at, "value": 100 * np.mean(found), "runs": len(found)}
                        tables.append({**place, "curve": curve, **point})
    numbers = pd.DataFrame(tables)
    parts = list(numbers.groupby(["data", "x", "metric"], sort=False))
    figure, _, used = wrapped_panels(len(parts), 4, width=3.3, height=2.9)
    for axes, (key, part) in zip(used, parts, strict=True):
        title, x, metric = map(str, cast(tuple[Any, ...], key))
        for number, (name, points) in enumerate(part.groupby("curve", sort=False)):
            if points["at"].isna().all():
                style = (":", "-.")[number % 2]
                height = float(points["value"].iloc[0])
                axes.axhline(height, label=str(name), color=INK, linestyle=style, linewidth=1.0)
                continue
            at = points["at"].to_numpy(dtype=float)
            look = {"marker": "o", "markersize": 3, **line_look(number)}
            axes.plot(at, points["value"], label=str(name), **look)
            if x != "epoch" and at.min() >= 0 and at.max() > 20 * np.min(at[at > 0]):
                axes.set_xscale("symlog", linthresh=np.min(at[at > 0]))
        axes.set_title(title)
        axes.set_xlabel(names.get(x, x))
        kind = "validation" if x == "epoch" else "test"
        axes.set_ylabel(f"{names.get(metric, metric)}, %, {kind} rows")
        if part["curve"].any():
            axes.legend(fontsize=6)
    return Drawing("sweep", figure, numbers)


@styled
def draw_comparison(found: pd.DataFrame) -> Drawing:
    """Draw mean and deviation over seeds, one panel per data set and label setting."""
    numbers = found[[*COLUMN, "method", "mean", "std", "label_std", "seeds", "published"]]
    parts = list(numbers.groupby(COLUMN, sort=False))
    most = max(len(part) for _, part in parts)
    figure, grid = panels(1, len(parts), width=3.6, height=1.2 + 0.2 * most)
    for axes, (key, part) in zip(grid[0], parts, strict=True):
        setup, data, labels, metric = cast(tuple[Any, ...], key)
        part = part.sort_values("mean", ascending=False, kind="stable").reset_index(drop=True)
        places = np.arange(len(part))
        if part["label_std"].notna().any():
            wide = {"elinewidth": 5, "alpha": 0.35, "label": "± over label samples"}
            spread = part["label_std"].fillna(0)
            axes.errorbar(part["mean"], places, xerr=spread, fmt="none", color=COLOURS[0], **wide)
        axes.errorbar(
            part["mean"], places, xerr=part["std"].fillna(0), fmt="o", markersize=5, capsize=2,
            color=COLOURS[0], label="measured, mean ± standard deviation over training seeds",
        )  # fmt: skip
        if part["published"].notna().any():
            axes.plot(part["published"], places, "|", color=INK, markersize=9, label="published")
        axes.set_yticks(places, part["method"])
        axes.set_ylim(len(part) - 0.5, -0.5)
        axes.set_xlabel(f"{metric}, %, test rows")
        axes.set_title(f"{data}, {labels}" + f", set-up {setup + 1}" * bool(setup))
    shared_legend(figure, grid)
    return Drawing("comparison", figure, numbers)
