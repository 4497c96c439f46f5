"""The report of an audit: one HTML file with everything inside, to send to a colleague."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

import pandas as pd

from halftruth.audit.folder import AuditFolder
from halftruth.audit.row_views import Rows
from halftruth.data import BadImage

_SIDE = 160


def write_report(audit: AuditFolder, path: str | Path | None = None, each: int = 4) -> Path:
    """Write report.html: counts with intervals, expected precision, the first `each` of a class."""
    path = Path(path) if path is not None else audit.path / "report.html"
    info = audit.info
    missing = info["missing"]
    rows = Rows(audit)
    table = audit.candidates
    facts = [
        (f"{info['rows']:,}", "rows audited"),
        (f"{int((audit.scored['labels'] > 0).sum()):,}", "labels present"),
        (f"{missing['estimate']:,.0f}", "labels estimated to be missing"),
        (f"{missing['low']:,.0f} – {missing['high']:,.0f}", "95 % interval of that"),
        (f"{info['wrong']:,.0f}", "present labels that may be wrong"),
    ]
    template = Template(
        (files("halftruth.report") / "audit_report.html").read_text(encoding="utf-8")
    )
    text = template.substitute(
        labels=escape(Path(info["labels"]).name),
        origin=escape(info["origin"]),
        made=escape(info["made"]),
        warnings="".join(f'<p class="warning">{escape(text)}</p>' for text in info["warnings"]),
        facts="".join(
            f"<div><b>{escape(number)}</b><span>{escape(words)}</span></div>"
            for number, words in facts
        ),
        selection=_SELECTION[info["selection"]],
        cuts="".join(_cuts(pd.read_csv(audit.path / "cuts.csv"))),
        classes="".join(_classes(pd.read_csv(audit.path / "classes.csv"))),
        missing="".join(_groups(table[table["kind"] == "missing"], rows, each)),
        wrong="".join(_cards(table[table["kind"] == "wrong"].head(3 * each), rows)),
    )
    path.write_text(text, encoding="utf-8")
    return path


_SELECTION = {
    "one": "each row shows one of its labels, any with equal chance",
    "random": "of each class, every label that is there is written down with the same chance",
}


def _cuts(table: pd.DataFrame) -> Iterator[str]:
    for cut in table.to_dict("records"):
        yield (
            f"<tr><th>{100 * cut['precision']:.0f} %</th><td>{cut['candidates']:,}</td>"
            f"<td>{cut['expected_right']:,.0f}</td></tr>"
        )


def _classes(table: pd.DataFrame) -> Iterator[str]:
    most = max(float(table["missing"].max()), 1.0)
    for one in table.sort_values("missing", ascending=False).to_dict("records"):
        # An apostrophe in front is how the table keeps a name from being a formula.
        name = escape(str(one["class"]).removeprefix("'"))
        yield (
            f"<tr><th>{name}</th><td>{one['present']:,}</td>"
            f'<td class="bar" style="--share:{one["missing"] / most:.4f}">'
            f"<span>{one['missing']:,.0f}</span></td>"
            f"<td>{one['missing_low']:,.0f} – {one['missing_high']:,.0f}</td>"
            f'<td class="wide">{one["wrong"]:,.1f}</td></tr>'
        )


def _groups(table: pd.DataFrame, rows: Rows, each: int) -> Iterator[str]:
    """The classes by their best candidate, the first few of each."""
    for name in table["class"].drop_duplicates():
        some = table[table["class"] == name].head(each)
        yield f"<h3>{escape(str(name))}</h3>"
        yield f'<div class="grid">{"".join(_cards(some, rows))}</div>'


def _cards(table: pd.DataFrame, rows: Rows) -> Iterator[str]:
    for one in table.to_dict("records"):
        yield (
            f"<figure>{_content(one['item'], one['row'], rows)}<figcaption>"
            f"<b>{escape(str(one['class']))}</b> <span>{100 * one['probability']:.0f} %</span>"
            f"<small>{escape(str(one['item']))}</small></figcaption></figure>"
        )


def _content(item: str, row: int, rows: Rows) -> str:
    try:
        data = base64.b64encode(rows.picture(item, _SIDE)).decode("ascii")
        return f'<img src="data:image/jpeg;base64,{data}" alt="{escape(item)}" loading="lazy">'
    except BadImage:
        cells = (
            f"<dt>{escape(name)}</dt><dd>{escape(text[:200])}</dd>"
            for name, text in rows.columns(row)
        )
        return f"<dl>{''.join(cells)}</dl>"
