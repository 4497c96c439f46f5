"""What a report says first: examples, weak classes with their reasons, and what to do next."""

from __future__ import annotations

from html import escape

import numpy as np
import pandas as pd

from halftruth.labels import ABSENT, PRESENT
from halftruth.presence.decisions import Decisions
from halftruth.report.gallery import HeldOut, show_content
from halftruth.report.page import Raw, card, grid, make_table
from halftruth.train.results.next_steps import Step

_EXAMPLES, _WEAK = 8, 6
# Fewer labelled rows than this are named as the reason why a class is weak.
_FEW_LABELS = 20
# The share of a class's highest scores that must show another class before the two look alike.
_ALIKE = 0.5


def show_examples(held_out: HeldOut) -> str:
    """Rows as they come, evenly spaced, with their labels and the decisions about them."""
    count = len(held_out.names)
    known = held_out.labels if held_out.complete is None else held_out.complete
    rows = np.flatnonzero((known == PRESENT).any(axis=1) | held_out.predicted.any(axis=1))
    if not len(rows):
        return ""
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(_EXAMPLES, len(rows))).astype(int))]
    marks = {int(row): _mark_labels(held_out, int(row)) for row in rows}
    what = (
        "predicted and present (✓), predicted and absent (✗), and present but missed"
        if held_out.complete is not None
        else "predicted and labelled (✓), predicted but not labelled (+, with the probability "
        "that the class is present), predicted but labelled as absent (✗), and labelled but missed"
    )
    text = (
        f"<p>{len(rows)} of {count:,} {held_out.part} rows, evenly spaced and not picked: classes "
        f"{what}.</p>"
    )
    if not held_out.can_be_seen:
        table = [(held_out.names[row], Raw(marked)) for row, marked in marks.items()]
        return text + make_table(["row", "labels"], table, words=1)
    cards = [
        card(
            show_content(held_out, row),
            f'{marked}<p class="note">{escape(held_out.names[row])}</p>',
        )
        for row, marked in marks.items()
    ]
    return text + grid(cards)


def _mark_labels(held_out: HeldOut, row: int) -> str:
    """The classes of a row that are predicted or present, each marked right or wrong."""
    shown, predicted = held_out.labels[row], held_out.predicted[row]
    truth = shown if held_out.complete is None else held_out.complete[row]
    parts = []
    for k in np.argsort(-held_out.probabilities[row], kind="stable"):
        name, likely = escape(held_out.classes[k]), f"{100 * held_out.probabilities[row, k]:.0f} %"
        if predicted[k] and truth[k] == PRESENT:
            hidden = "" if shown[k] == PRESENT else " <small>not labelled</small>"
            parts.append(f'<li class="yes">✓ {name}{hidden}</li>')
        elif predicted[k] and (held_out.complete is not None or truth[k] == ABSENT):
            parts.append(f'<li class="no">✗ {name}</li>')
        elif predicted[k]:
            parts.append(f'<li class="new">+ {name} <small>{likely}</small></li>')
        elif truth[k] == PRESENT:
            parts.append(f'<li class="no">missed: {name} <small>{likely}</small></li>')
    return f'<ul class="marks">{"".join(parts) or "<li>nothing predicted</li>"}</ul>'


def show_weak_classes(
    held_out: HeldOut, decisions: Decisions, table: pd.DataFrame, part: str
) -> str:
    """The classes with the lowest AP, below the mean, each with the likely reason."""
    ap = table[f"{part}_AP"].to_numpy(dtype=float)
    if np.isnan(ap).all():
        return ""
    order = [int(k) for k in np.argsort(ap, kind="stable") if ap[k] < np.nanmean(ap)][:_WEAK]
    if not order:
        return ""
    labelled = table["train_present"].to_numpy()
    rows = [
        (
            held_out.classes[k],
            f"{100 * ap[k]:.1f}",
            f"{labelled[k]:,.0f}",
            _explain_weakness(held_out, decisions, k, int(labelled[k])),
        )
        for k in order
    ]
    return make_table(["class", "AP, %", "labelled", "likely reason"], rows, words=1)


def _explain_weakness(held_out: HeldOut, decisions: Decisions, k: int, labelled: int) -> str:
    """Return why a class is predicted badly, as far as labels and scores tell."""
    reasons = []
    if labelled < _FEW_LABELS:
        reasons.append(f"only {labelled} labelled row{'s' * (labelled != 1)}")
    if not decisions.predicted[k]:
        reasons.append("never predicted, see Decisions")
    known = held_out.labels if held_out.complete is None else held_out.complete
    other = find_look_alike(held_out.probabilities[:, k], known == PRESENT, k)
    if other is not None:
        reasons.append(f"rows with {held_out.classes[other]} score as high")
    return "; ".join(reasons) or "hard to tell from these inputs"


def find_look_alike(scores: np.ndarray, present: np.ndarray, k: int) -> int | None:
    """Return the class that most of a class's highest-scored other rows have, or None.

    scores: (n,) of class `k`. present: (n, K). The class must be twice as frequent there as in all
    rows, since a frequent class is found everywhere.
    """
    others = np.flatnonzero(~present[:, k])
    top = others[np.argsort(-scores[others], kind="stable")][: max(int(present[:, k].sum()), 5)]
    if not len(top):
        return None
    share, usual = present[top].mean(axis=0), present.mean(axis=0)
    share[k] = 0.0
    found = int(np.argmax(share))
    return found if share[found] >= max(_ALIKE, 2 * usual[found]) else None


def show_next_steps(steps: list[Step]) -> str:
    """The next commands, to copy."""
    lines = [
        f"<dt>{escape(one.what[0].upper() + one.what[1:])}</dt>"
        f"<dd><pre>{escape(one.command)}</pre></dd>"
        for one in steps
    ]
    return f'<dl class="steps">{"".join(lines)}</dl>'
