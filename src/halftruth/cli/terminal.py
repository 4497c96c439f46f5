"""Lines and tables for the terminal; heavy packages are imported where a table needs them."""

import fnmatch
import inspect
import shlex
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from halftruth.train.results.evaluate import Evaluation

LEGEND = (
    "CP, CR, CF1: precision, recall and F1 as means over classes; OP, OR, OF1: over all labels "
    "together; F1_neg: F1 of finding the rows without any label."
)


def say(text: str, *, style: str | None = None, error: bool = False) -> None:
    """Print a text unchanged and without wrapping; `error`: to stderr."""
    console = Console(stderr=error)
    console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


def say_next(what: str, *words: object) -> None:
    """Print a command that people need next, to copy."""
    say(f"to {what}: {shlex.join(['halftruth', *map(str, words)])}")


def show_methods(pattern: str) -> None:
    """Print all methods that match a pattern; fits into 80 columns."""
    from halftruth import losses
    from halftruth.train.auto.named_methods import NAMED

    named = [name for name in NAMED if fnmatch.fnmatch(name, pattern)]
    names = losses.names(pattern)
    if not names and not named:
        names = [losses.registry.resolve(pattern)]
    table = Table(title="Methods", title_justify="left", box=SIMPLE_HEAD, show_lines=False)
    table.add_column("method", no_wrap=True)
    table.add_column("paper; how unknown labels are treated; needs", ratio=1)
    table.add_column("arguments (defaults)", no_wrap=True)
    for name in names:
        cls = losses.registry.get(name)
        shown = "\n".join([name, *(f"({alias})" for alias in losses.registry.aliases(name))])
        about = [*filter(None, [cls.paper]), f"unknown: {cls.unknown_is}"]
        if needed := needs(name):
            about.append(f"needs: {', '.join(needed)}")
        listed = [
            key if p.default is p.empty else f"{key}={p.default!r}"
            for key, p in losses.registry.signature(name).items()
            if key not in ("reduction", "eps")
        ]
        table.add_row(Text(shown), Text("\n".join(about)), Text("\n".join([*listed, ""])))
    for name in named:
        text, settings = NAMED[name]
        listed = [f"{key}={value!r}" for key, value in settings.items()]
        table.add_row(Text(name), Text(text), Text("\n".join([*listed, ""])))
    Console().print(table)


def needs(name: str) -> list[str]:
    """What a method needs beyond logits and labels, with its default arguments."""
    from halftruth import losses

    arguments = losses.registry.signature(name)
    found = [key for key, p in arguments.items() if p.default is inspect.Parameter.empty]
    loss = losses.create(name, **dict.fromkeys(found, losses.registry.find_example(name)))
    if loss.needs_index:
        found.append("sample index (memory)")
    if loss.needs_scores:
        found.append("a pass over the training set per epoch")
    if loss.views > 1:
        found.append(f"{loss.views} views per image")
    if loss.teacher_loss({}) is not None:
        found.append("two trainings")
    if loss.needs_maps:
        found.append("class maps (--head cam)")
    return found


def list_not_predicted(names: list[str]) -> None:
    """Print the classes that are not predicted, a few by name."""
    if names:
        from halftruth.data.errors import some

        count = "1 class is" if len(names) == 1 else f"{len(names):,} classes are"
        say(
            f"{count} not predicted, for lack of labels or since no threshold satisfies the rule: "
            f"{some(names)}"
        )


def show_evaluation(found: "Evaluation") -> None:
    """Print the scores of a run per class and overall, each with what it stands on."""
    import pandas as pd

    estimates = "AP_low" in found.classes
    console = Console()
    table = Table(title="Classes", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("class")
    names = {"present": "present", "AP": "AP, estimated" if estimates else "AP"}
    names |= {"AP_low": "90 % interval", "threshold": "threshold"}
    used = {key: text for key, text in names.items() if key in found.classes}
    for text in used.values():
        table.add_column(text, justify="right")
    for row in found.classes.to_dict(orient="records"):
        shown = {
            "present": f"{row['present']:,}",
            "AP": "-" if pd.isna(row.get("AP")) else f"{100 * row['AP']:.2f}",
            "threshold": f"{row['threshold']:.3f}",
        }
        if estimates:
            low, high = (100 * row[key] for key in ("AP_low", "AP_high"))
            shown["AP_low"] = "-" if pd.isna(low) else f"{low:.0f} to {high:.0f}"
        table.add_row(Text(str(row["class"])), *(shown[key] for key in used))
    console.print(table)
    if found.metrics:
        overall = Table(title="Overall, in percent", title_justify="left", box=SIMPLE_HEAD)
        overall.add_column("metric")
        overall.add_column(found.basis, justify="right")
        for key, value in found.metrics.items():
            overall.add_row(key, "-" if pd.isna(value) else f"{100 * value:.2f}")
        console.print(overall)
        say(f"These scores are measured {found.basis}. {LEGEND}")
    if found.out_of_sample:
        say(
            f"{found.out_of_sample:,} rows are training rows: their scores are out of sample, by "
            "members of the ensemble that were not fitted on them."
        )
    show_estimates(found.estimated, found.verified_cells)
    if found.estimated and found.estimated_classes:
        say(f"The estimates are for the {found.estimated_classes:,} most frequent classes.")
    if not found.metrics and not found.estimated:
        say(
            "Labels are incomplete, and scores are not estimated: this needs at least 30 rows, a "
            "present label, and scores that rank the labels; --unknown absent counts unknown "
            "labels as absent."
        )
    list_not_predicted(found.not_predicted)
    for name, reason in found.bad:
        say(f"left out: {name}: {reason}")


def show_estimates(estimated: dict[str, list[float]], cells: int = 0) -> None:
    """Print estimated scores with their intervals, and how many verified cells they use."""
    if not estimated:
        return
    title = "Estimated for complete labels, in percent"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("metric")
    for text in ("estimate", "90 % interval"):
        table.add_column(text, justify="right")
    words = {"OP": "OP (precision)", "OR": "OR (recall)"}
    for name, (value, low, high) in estimated.items():
        ends = f"{100 * low:.1f} to {100 * high:.1f}"
        table.add_row(words.get(name, name), f"{100 * value:.1f}", ends)
    Console().print(table)
    if cells:
        say(f"The estimates use {cells:,} verified cells.")


def tell(text: str) -> None:
    """Print a message; a warning stands out."""
    say(text, style="bold yellow" if text.startswith("WARNING") else None)
