"""Figures of benchmark results: a comparison of methods, and the effect of their settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from halftruth.bench.result_tables import COLUMN, summarise
from halftruth.bench.results import Record, read_results
from halftruth.data import DataError
from halftruth.losses import registry
from halftruth.plots.search_figures import draw_sensitivity
from halftruth.plots.style import COLOURS, INK, Drawing, panels, shared_legend, styled


def draw_bench(
    results: str | Path | Sequence[str | Path] | Sequence[Record],
    metric: str = "mAP",
    methods: Sequence[str] = (),
) -> tuple[list[Drawing], list[str]]:
    """Draw the comparison on test rows, and one figure per method with several settings tried.

    results: files, or records. Also return which figures were left out, and why.
    """
    several = [results] if isinstance(results, str | Path) else list(results)
    records = [one for one in several if isinstance(one, dict)]
    records = records or read_results(one for one in several if not isinstance(one, dict))
    known = list(dict.fromkeys(record["method"] for record in records))
    if unknown := [name for name in methods if name not in known]:
        raise DataError(f"there are no results of {unknown}; the methods are: {', '.join(known)}")
    records = [record for record in records if not methods or record["method"] in methods]
    drawings: list[Drawing] = []
    left_out: list[str] = []
    measured = summarise(records, [metric])
    if len(measured):
        drawings.append(draw_comparison(measured))
    else:
        left_out.append("comparison: no run has been evaluated on test rows yet")
    for method in methods or known:
        table = tried_settings(records, method, metric)
        settings = [str(key) for key in table if key not in ("data", "seed", "trial", "value")]
        if any(table[key].astype(str).nunique() > 1 for key in settings):
            text = f"validation {metric}, %"
            name = f"sensitivity-{method}"
            drawings.append(draw_sensitivity(name, table, settings, "data", text))
    if not drawings:
        raise DataError(f"{results}: there is nothing to draw: {'; '.join(left_out)}")
    return drawings, left_out


def tried_settings(records: Iterable[dict[str, Any]], method: str, metric: str) -> pd.DataFrame:
    """One row per run of a method: data, seed, whether it is a trial, settings, and the value."""
    rows = []
    for record in records:
        value = record.get("val", {}).get(metric)
        if record["method"] == method and value is not None:
            settings = {**_defaults(record["loss"]), **record["training"], **record["options"]}
            about = {"data": f"{record['data']}, {record['column']}", "seed": record["seed"]}
            plain = {key: _list_as_text(setting) for key, setting in settings.items()}
            rows.append({**about, "trial": record["trial"], **plain, "value": 100 * value})
    return pd.DataFrame(rows)


def _defaults(loss: str) -> dict[str, Any]:
    """Default values of the arguments of a loss; auto has none, and other classes stay unread."""
    if loss not in registry.names():
        return {}
    arguments = registry.signature(loss).items()
    return {name: one.default for name, one in arguments if one.default is not one.empty}


def _list_as_text(setting: Any) -> Any:
    """A list as one text with its numbers in one format; other settings unchanged."""
    if not isinstance(setting, (list, tuple)):
        return setting
    shown = (f"{one:g}" if isinstance(one, (int, float)) else str(one) for one in setting)
    return f"[{', '.join(shown)}]"


@styled
def draw_comparison(found: pd.DataFrame) -> Drawing:
    """Draw mean and deviation over seeds, one panel per data set and label setting."""
    numbers = found[[*COLUMN, "method", "mean", "std", "seeds", "published"]]
    parts = list(numbers.groupby(COLUMN, sort=False))
    most = max(len(part) for _, part in parts)
    figure, grid = panels(1, len(parts), width=3.6, height=1.2 + 0.2 * most)
    for axes, ((setup, data, labels, metric), part) in zip(grid[0], parts, strict=True):
        part = part.sort_values("mean", ascending=False, kind="stable").reset_index(drop=True)
        places = np.arange(len(part))
        axes.errorbar(
            part["mean"], places, xerr=part["std"].fillna(0), fmt="o", markersize=5, capsize=2,
            color=COLOURS[0], label="measured, mean ± standard deviation over seeds",
        )  # fmt: skip
        if part["published"].notna().any():
            axes.plot(part["published"], places, "|", color=INK, markersize=9, label="published")
        axes.set_yticks(places, part["method"])
        axes.set_ylim(len(part) - 0.5, -0.5)
        axes.set_xlabel(f"{metric}, %, test rows")
        axes.set_title(f"{data}, {labels}" + f", set-up {setup + 1}" * bool(setup))
    shared_legend(figure, grid)
    return Drawing("comparison", figure, numbers)
