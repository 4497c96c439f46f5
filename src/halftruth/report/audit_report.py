"""The report of an audit: one HTML file that contains all images and styles."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import pandas as pd

from halftruth.audit.audit_folder import CLASSES, AuditFolder
from halftruth.audit.audit_state import CODES, AuditState, read_audit_state
from halftruth.audit.repair import describe_doubt
from halftruth.audit.rows import ShownRows
from halftruth.data import BadImage
from halftruth.train.run_folder import write_text

_SIDE = 160


def write_audit_report(audit: AuditFolder, path: str | Path | None = None, each: int = 4) -> Path:
    """Write report.html: counts, expected precision, and the first `each` candidates per class.

    All numbers take account of the decisions of the review so far.
    """
    path = Path(path) if path is not None else audit.path / "report.html"
    info, rows, current = audit.info, ShownRows(audit), read_audit_state(audit)
    missing, wrong = current.missing_left.total, current.wrong_left.total
    facts = [
        (f"{info['rows']:,}", "audited rows"),
        (f"{int((audit.scored.labels > 0).sum()):,}", "present labels"),
        *_reviewed(current),
        (f"{missing.value:,.0f}", "estimated missing labels"),
        (f"{missing.low:,.0f} – {missing.high:,.0f}", "90 % interval"),
        (
            f"{wrong.value:,.0f}",
            f"present labels that may be wrong (estimated, {wrong.low:,.0f} – {wrong.high:,.0f})",
        ),
    ]
    warnings = [*info["warnings"], *describe_limits(audit, current)]
    table = audit.candidates.assign(
        probability=current.shown, at_least=current.least, at_most=current.most
    )
    likely = table.iloc[current.undecided()]
    doubtful = table.iloc[current.undecided(missing=False)]
    template = Template(
        (files("halftruth.report") / "audit_report.html").read_text(encoding="utf-8")
    )
    text = template.substitute(
        labels=escape(Path(info["labels"]).name),
        origin=escape(info["origin"]),
        made=escape(info["made"].replace("T", " ").replace("+00:00", " UTC")),
        warnings="".join(f'<p class="warning">{escape(text)}</p>' for text in warnings),
        facts="".join(
            f"<div><b>{escape(number)}</b><span>{escape(words)}</span></div>"
            for number, words in facts
        ),
        selection=_SELECTION[info["selection"]],
        precision="".join(_precision_rows(current.precision_table())),
        classes="".join(_class_rows(_count_classes(audit, current))),
        missing="".join(_groups(likely, rows, each)),
        wrong_words=escape(current.describe_wrong() or "None is listed."),
        wrong="".join(_cards(doubtful.head(3 * each), rows)),
    )
    write_text(path, text)
    return path


def _reviewed(current: AuditState) -> list[tuple[str, str]]:
    """The number of decisions, after a review."""
    accepted, rejected = (int((current.codes == CODES[one]).sum()) for one in ("accept", "reject"))
    if not accepted + rejected:
        return []
    return [(f"{accepted:,}", "accepted in the review"), (f"{rejected:,}", "rejected")]


def describe_limits(audit: AuditFolder, current: AuditState) -> list[str]:
    """Say which candidates are not listed, and what limits the repair and its precision."""
    left_out, problem = audit.info.get("not_listed", {}), audit.info.get("repair_problem")
    doubt = describe_doubt(audit, current)
    return [
        *([doubt] if doubt else []),
        *([f"`halftruth repair` cannot write this file: {problem}"] if problem else []),
        *(
            f"{count:,} more labels that are probably {kind} are not listed, since the list was "
            "limited (--most). The counts and expected_precision.csv include them; the table of "
            "precisions and `repair --precision` do not."
            for kind, count in left_out.items()
            if count
        ),
    ]


def _count_classes(audit: AuditFolder, current: AuditState) -> pd.DataFrame:
    """classes.csv with the current numbers of missing and wrong labels."""
    left = current.missing_left.per_class
    return pd.read_csv(audit.path / CLASSES).assign(
        missing=[count.value for count in left],
        missing_low=[count.low for count in left],
        missing_high=[count.high for count in left],
        wrong=[count.value for count in current.wrong_left.per_class],
    )


_SELECTION = {
    "single_positive": "each row shows one of its labels, all equally likely",
    "missing_at_random": "all positives of a class are equally likely to be labelled",
}


def _precision_rows(table: pd.DataFrame) -> Iterator[str]:
    for one in table.to_dict("records"):
        yield (
            f"<tr><th>{100 * one['precision']:.0f} %</th><td>{one['candidates']:,}</td>"
            f"<td>{one['expected_right']:,.0f}</td></tr>"
        )


def _class_rows(table: pd.DataFrame) -> Iterator[str]:
    most = max(float(table["missing"].max()), 1.0)
    for one in table.sort_values("missing", ascending=False).to_dict("records"):
        # The table has an apostrophe before names that a spreadsheet would run as a formula.
        name = escape(str(one["class"]).removeprefix("'"))
        yield (
            f"<tr><th>{name}</th><td>{one['present']:,}</td>"
            f'<td class="bar" style="--share:{one["missing"] / most:.4f}">'
            f"<span>{one['missing']:,.0f}</span></td>"
            f"<td>{one['missing_low']:,.0f} – {one['missing_high']:,.0f}</td>"
            f'<td class="wide">{one["wrong"]:,.1f}</td></tr>'
        )


def _groups(table: pd.DataFrame, rows: ShownRows, each: int) -> Iterator[str]:
    """The first candidates per class; classes in the order of their best candidate."""
    for name in table["class"].drop_duplicates():
        some = table[table["class"] == name].head(each)
        yield f"<h3>{escape(str(name))}</h3>"
        yield f'<div class="grid">{"".join(_cards(some, rows))}</div>'


def _cards(table: pd.DataFrame, rows: ShownRows) -> Iterator[str]:
    for one in table.to_dict("records"):
        yield (
            f"<figure>{_content(one['item'], one['row'], rows)}<figcaption>"
            f"<span>{_likely(one)} %</span><b>{escape(str(one['class']))}</b>"
            f"<small>{escape(str(one['item']))}</small></figcaption></figure>"
        )


def _likely(one: Mapping[object, Any]) -> str:
    """The probability in percent: for a wrong label a range, since hard examples look the same."""
    ends = [f"{100 * one[name]:.0f}" for name in ("at_least", "at_most")]
    if one["kind"] == "missing" or ends[0] == ends[1]:
        return f"{100 * one['probability']:.0f}"
    return " to ".join(ends)


def _content(item: str, row: int, rows: ShownRows) -> str:
    try:
        data = base64.b64encode(rows.image(item, _SIDE)).decode("ascii")
        return f'<img src="data:image/jpeg;base64,{data}" alt="{escape(item)}" loading="lazy">'
    except BadImage:
        cells = (
            f"<dt>{escape(name)}</dt><dd>{escape(text[:200])}</dd>"
            for name, text in rows.columns(row)
        )
        return f"<dl>{''.join(cells)}</dl>"
