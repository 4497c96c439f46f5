"""Tables for the terminal."""

from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from halftruth import losses


def show_methods(console: Console, pattern: str) -> None:
    """All registered losses that match a pattern."""
    names = losses.names(pattern) or [losses.registry.resolve(pattern)]
    table = Table(title="Methods", title_justify="left")
    for column in ("method", "paper", "unknown labels are", "needs", "arguments (defaults)"):
        table.add_column(column, overflow="fold")
    for name in names:
        cls = losses.registry.get(name)
        aliases = losses.registry.aliases(name)
        shown = ", ".join([name, *aliases])
        arguments = {
            key: p.default
            for key, p in losses.registry.signature(name).items()
            if key not in ("reduction", "eps")
        }
        listed = ", ".join(
            key if value is not None and _is_missing(value) else f"{key}={value!r}"
            for key, value in arguments.items()
        )
        table.add_row(shown, cls.paper, cls.unknown_is, needs(name), Text(listed))
    console.print(table)


def needs(name: str) -> str:
    """What a method needs beyond logits and labels, from its class."""
    cls = losses.registry.get(name)
    required = [key for key, p in losses.registry.signature(name).items() if _is_missing(p.default)]
    found = list(required)
    if cls.needs_index:
        found.append("sample index (memory)")
    if cls.needs_scores:
        found.append("a pass over the training set each epoch")
    return ", ".join(found) or "-"


def _is_missing(value: Any) -> bool:
    import inspect

    return value is inspect.Parameter.empty


def show_metrics(
    console: Console, metrics: dict[str, float], classes: pd.DataFrame, bad: list[tuple[str, str]]
) -> None:
    """A run's metrics, class by class and over all."""
    table = Table(title="Classes", title_justify="left")
    for column in classes.columns:
        table.add_column(column, justify="left" if column == "class" else "right")
    for row in classes.itertuples(index=False):
        table.add_row(Text(str(row[0])), f"{row[1]:,}", f"{100 * row[2]:.2f}", f"{row[3]:.3f}")
    console.print(table)
    overall = Table(title="Overall, in percent", title_justify="left")
    for key in metrics:
        overall.add_column(key, justify="right")
    overall.add_row(*(f"{100 * value:.2f}" for value in metrics.values()))
    console.print(overall)
    for name, reason in bad:
        console.print(f"left out: {name}: {reason}", highlight=False, markup=False)
