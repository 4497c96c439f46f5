"""Tables for the terminal."""

import inspect

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from halftruth import losses
from halftruth.losses.pseudo_label import PseudoLabel
from halftruth.losses.spatial import SpatialConsistency


def show_methods(console: Console, pattern: str) -> None:
    """All registered losses that match a pattern; fits into 80 columns."""
    names = losses.names(pattern) or [losses.registry.resolve(pattern)]
    table = Table(title="Methods", title_justify="left", box=SIMPLE_HEAD, show_lines=False)
    table.add_column("method", no_wrap=True)
    table.add_column("paper; what it makes of unknown labels; needs", ratio=1)
    table.add_column("arguments (defaults)", no_wrap=True)
    for name in names:
        cls = losses.registry.get(name)
        shown = "\n".join([name, *(f"({alias})" for alias in losses.registry.aliases(name))])
        about = [cls.paper, f"unknown: {cls.unknown_is}"]
        if needed := needs(name):
            about.append(f"needs: {', '.join(needed)}")
        listed = [
            key if p.default is p.empty else f"{key}={p.default!r}"
            for key, p in losses.registry.signature(name).items()
            if key not in ("reduction", "eps")
        ]
        table.add_row(Text(shown), Text("\n".join(about)), Text("\n".join([*listed, ""])))
    console.print(table)


def needs(name: str) -> list[str]:
    """What a method needs beyond logits and labels, as it is built by default."""
    arguments = losses.registry.signature(name)
    found = [key for key, p in arguments.items() if p.default is inspect.Parameter.empty]
    loss = losses.create(name, **dict.fromkeys(found, 1))
    if loss.needs_index:
        found.append("sample index (memory)")
    if loss.needs_scores:
        found.append("a pass over the training set each epoch")
    if loss.views > 1:
        found.append(f"{loss.views} views of an image")
    if isinstance(loss, PseudoLabel):
        found.append("two trainings")
    if isinstance(loss, SpatialConsistency):
        found.append("class maps (--head cam)")
    return found


def show_metrics(
    console: Console, metrics: dict[str, float], classes: pd.DataFrame, bad: list[tuple[str, str]]
) -> None:
    """A run's metrics, class by class and over all."""
    table = Table(title="Classes", title_justify="left", box=SIMPLE_HEAD)
    for column in classes.columns:
        table.add_column(str(column), justify="left" if column == "class" else "right")
    for name, present, ap, cut in classes.itertuples(index=False):
        shown = "-" if pd.isna(ap) else f"{100 * ap:.2f}"
        table.add_row(Text(str(name)), f"{present:,}", shown, f"{cut:.3f}")
    console.print(table)
    overall = Table(title="Overall, in percent", title_justify="left", box=SIMPLE_HEAD)
    overall.add_column("metric")
    overall.add_column("value", justify="right")
    for key, value in metrics.items():
        overall.add_row(key, "-" if pd.isna(value) else f"{100 * value:.2f}")
    console.print(overall)
    for name, reason in bad:
        console.print(f"left out: {name}: {reason}", highlight=False, markup=False, soft_wrap=True)
