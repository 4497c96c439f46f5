"""Tables as text: Markdown, CSV, LaTeX."""

import csv
import io
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halftruth.bench.result_tables import Column, Value

Marks = dict[int, tuple[str, str]]


def markdown(columns: "list[Column]") -> str:
    """A GitHub table."""
    head, rows, notes = _layout(columns, "±", {1: ("**", "**"), 2: ("<u>", "</u>")})
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join([*lines, "", *notes]) + "\n"


def latex(columns: "list[Column]") -> str:
    """A tabular environment, for booktabs."""
    marks = {1: (r"\textbf{", "}"), 2: (r"\underline{", "}")}
    head, rows, notes = _layout(columns, r"$\pm$", marks)
    body = [" & ".join(_escaped(cell) for cell in row) + r" \\" for row in rows]
    return "\n".join([
        *(f"% {note}" for note in notes),
        r"\begin{tabular}{l" + "r" * (len(head) - 1) + "}",
        r"\toprule",
        " & ".join(map(_escaped, head)) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        "",
    ])  # fmt: skip


def comma_separated(columns: "list[Column]") -> str:
    """One line for each method and column, every number by itself."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([
        "method", "data", "labels", "metric", "mean", "std", "seeds", "rank", "published",
        "difference", "source",
    ])  # fmt: skip
    for column in columns:
        for method, value in column.values.items():
            of = value.published
            writer.writerow([
                method, column.data, column.labels, column.metric, f"{value.mean:.4f}",
                "" if math.isnan(value.std) else f"{value.std:.4f}", value.seeds,
                value.rank or "", "" if of is None else of.value,
                "" if value.difference is None else f"{value.difference:.4f}",
                "" if of is None else of.source,
            ])  # fmt: skip
    return file.getvalue()


WRITERS: "dict[str, Callable[[list[Column]], str]]" = {
    "markdown": markdown,
    "csv": comma_separated,
    "latex": latex,
}


def _layout(
    columns: "list[Column]", plus_minus: str, marks: Marks
) -> tuple[list[str], list[list[str]], list[str]]:
    head, notes = ["method"], []
    several = len({column.metric for column in columns}) > 1
    for column in columns:
        title = f"{column.data}, {column.labels}" + (f", {column.metric}" if several else "")
        head.append(title)
        if _has_published(column):
            head += ["published", "difference"]
            notes += _notes(column, title)
    methods = dict.fromkeys(method for column in columns for method in column.values)
    rows = []
    for method in methods:
        row = [f"`{method}`" if plus_minus == "±" else method]
        for column in columns:
            value = column.values.get(method)
            row.append("–" if value is None else _cell(value, plus_minus, marks))
            if _has_published(column):
                row += _beside(value)
        rows.append(row)
    seeds = sorted({value.seeds for column in columns for value in column.values.values()})
    notes.append(
        f"{columns[0].metric if not several else 'Metrics'} in percent, mean {plus_minus} standard "
        f"deviation over {' or '.join(map(str, seeds))} seeds; best bold, second underlined."
    )
    return head, rows, notes


def _has_published(column: "Column") -> bool:
    return any(value.published is not None for value in column.values.values())


def _notes(column: "Column", title: str) -> list[str]:
    sources = dict.fromkeys(
        value.published.source for value in column.values.values() if value.published is not None
    )
    notes = [f"{title}: published numbers from {'; '.join(sources)}."]
    if found := column.correlation():
        notes.append(
            f"{title}: rank correlation (Spearman) with the published column {found[0]:.2f} over "
            f"{found[1]} methods."
        )
    return notes


def _cell(value: "Value", plus_minus: str, marks: Marks) -> str:
    before, after = marks.get(value.rank, ("", ""))
    spread = "" if math.isnan(value.std) else f" {plus_minus} {value.std:.2f}"
    return f"{before}{value.mean:.2f}{after}{spread}"


def _beside(value: "Value | None") -> list[str]:
    if value is None or value.published is None or value.difference is None:
        return ["–", "–"]
    return [f"{value.published.value:.2f}", f"{value.difference:+.2f}"]


def _escaped(text: str) -> str:
    return text.replace("_", r"\_").replace("–", "--")
