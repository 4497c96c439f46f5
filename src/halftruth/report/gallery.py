"""Which pictures a report shows: the best and the worst of each class, missing labels found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

import numpy as np
import pandas as pd

from halftruth.data import BadImage, ImageStore
from halftruth.labels import PRESENT
from halftruth.report.page import Raw, card, grid, thumbnail

# A page of a few megabytes at most: so many classes with pictures, so many findings.
MOST_CLASSES, EACH, MOST_FOUND = 24, 2, 24
_SIDE = 150


@dataclass(frozen=True)
class Seen:
    """Rows that a model was not trained on: probabilities, labels given, labels to judge by."""

    names: Sequence[str]
    classes: Sequence[str]
    probabilities: np.ndarray
    labels: np.ndarray
    truth: np.ndarray | None
    store: ImageStore | None

    def at_most(self, labels: int) -> Seen:
        """So many rows, evenly picked, that they have no more labels than that."""
        count = max(labels // max(len(self.classes), 1), 1)
        if count >= len(self.names):
            return self
        rows = np.linspace(0, len(self.names) - 1, count).round().astype(int)
        return replace(
            self,
            names=[self.names[row] for row in rows],
            probabilities=self.probabilities[rows],
            labels=self.labels[rows],
            truth=None if self.truth is None else self.truth[rows],
        )

    @property
    def judged(self) -> np.ndarray:
        return self.labels if self.truth is None else self.truth


def best_and_worst(seen: Seen, ap: np.ndarray) -> Raw:
    """Pictures of the classes with the lowest AP first: surest, overlooked, wrongly found."""
    order = [int(k) for k in np.argsort(ap, kind="stable") if not np.isnan(ap[k])]
    parts = []
    for k in order[:MOST_CLASSES]:
        cards = "".join(
            _card(seen, row, k, text, kind)
            for text, kind, rows in _picked(
                seen.probabilities[:, k], seen.judged[:, k] == PRESENT, seen.truth is not None
            )
            for row in rows
        )
        title = f"{escape(seen.classes[k])} <small>AP {100 * ap[k]:.1f}</small>"
        parts.append(f'<section class="case"><h3>{title}</h3>{grid([cards])}</section>\n')
    return Raw("".join(parts))


def _picked(
    score: np.ndarray, there: np.ndarray, certain: bool
) -> list[tuple[str, str, list[int]]]:
    """Rows of a class: its surest, its most overlooked, and the surest wrong ones."""
    order = np.argsort(-score, kind="stable")
    right, wrong = order[there[order]], order[~there[order]]
    best, worst = right[:EACH], right[EACH:][::-1][:EACH]
    return [
        ("found", "right", best.tolist()),
        ("overlooked", "wrong", worst.tolist()),
        ("not there", "wrong", wrong[:EACH].tolist())
        if certain
        else ("not labelled so", "", wrong[:EACH].tolist()),
    ]


def findings(seen: Seen, found: pd.DataFrame) -> Raw:
    """Unknown labels that are probably there, with their pictures; by the truth, right or wrong."""
    place = {name: k for k, name in enumerate(seen.classes)}
    cards = []
    for number, row, name, chance in found[["rank", "row", "class", "probability"]].itertuples(
        index=False
    ):
        k, kind, mark = place[name], "", ""
        if seen.truth is not None:
            right = seen.truth[row, k] == PRESENT
            kind, mark = ("right", "✓ ") if right else ("wrong", "✗ ")
        text = f"#{number} · probably there: {100 * chance:.0f} %"
        cards.append(_card(seen, int(row), k, text, kind, title=f"{mark}{name}"))
    return grid(cards)


def _card(seen: Seen, row: int, k: int, text: str, kind: str, title: str = "") -> Raw:
    given = [seen.classes[int(j)] for j in np.flatnonzero(seen.labels[row] == PRESENT)]
    shown = ", ".join(given) or "nothing"
    caption = (
        f'<p class="found"><b>{escape(title or text)}</b>'
        f"<span>p {seen.probabilities[row, k]:.2f}</span></p>"
        + (f"<p>{escape(text)}</p>" if title else "")
        + f"<dl><dt>labelled</dt><dd>{escape(shown)}</dd></dl>"
        f'<p class="note">{escape(seen.names[row])}</p>'
    )
    return card(_picture(seen, row), caption, kind)


def _picture(seen: Seen, row: int) -> str:
    if seen.store is None:
        return ""
    try:
        return thumbnail(seen.store.read(seen.names[row], _SIDE), seen.names[row], _SIDE)
    except BadImage as error:
        return f'<p class="note">{escape(str(error))}</p>'
