"""Images and texts in a report: best and worst of each class, and probably missing labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

import numpy as np
import pandas as pd

from halftruth.data import BadImage, ImageStore
from halftruth.labels import PRESENT
from halftruth.report.page import Raw, card, grid, thumbnail

# These limits keep the page below a few megabytes.
MOST_CLASSES, EACH, MOST_FOUND = 24, 2, 24
_SIDE, _MOST_LETTERS = 150, 300


@dataclass(frozen=True)
class HeldOut:
    """Rows that a model was not trained on, with its probabilities, decisions and their labels.

    `complete` are the complete labels, where they are known. `store` has the images and `texts` the
    texts of the rows, if they have any. `part`: what these rows are called.
    """

    names: Sequence[str]
    classes: Sequence[str]
    probabilities: np.ndarray
    predicted: np.ndarray
    labels: np.ndarray
    complete: np.ndarray | None
    store: ImageStore | None
    texts: Sequence[str] | None = None
    part: str = "validation"

    @property
    def can_be_seen(self) -> bool:
        """Whether there is an image or a text to show per row."""
        return self.store is not None or self.texts is not None

    def at_most(self, labels: int) -> HeldOut:
        """Evenly spaced rows, as many as have at most `labels` labels together."""
        count = max(labels // max(len(self.classes), 1), 1)
        if count >= len(self.names):
            return self
        rows = np.linspace(0, len(self.names) - 1, count).round().astype(int)
        return replace(
            self,
            names=[self.names[row] for row in rows],
            probabilities=self.probabilities[rows],
            predicted=self.predicted[rows],
            labels=self.labels[rows],
            complete=None if self.complete is None else self.complete[rows],
            texts=None if self.texts is None else [self.texts[row] for row in rows],
        )


def best_and_worst(held_out: HeldOut, ap: np.ndarray) -> Raw:
    """Rows of the classes with the lowest AP first; see `pick_rows`."""
    known = held_out.complete
    judged = held_out.labels if known is None else known
    order = [int(k) for k in np.argsort(ap, kind="stable") if not np.isnan(ap[k])]
    parts = []
    for k in order[:MOST_CLASSES]:
        rows = pick_rows(held_out.probabilities[:, k], judged[:, k] == PRESENT)
        cards = []
        for row in rows:
            is_present, is_predicted = judged[row, k] == PRESENT, held_out.predicted[row, k]
            text, kind = describe_decision(is_present, is_predicted, complete=known is not None)
            cards.append(_card(held_out, row, k, text, kind))
        title = f"{escape(held_out.classes[k])} <small>AP {100 * ap[k]:.1f}</small>"
        parts.append(f'<section class="case"><h3>{title}</h3>{grid(cards)}</section>\n')
    return Raw("".join(parts))


def pick_rows(scores: np.ndarray, present: np.ndarray) -> list[int]:
    """Rows of a class: the best and the worst positives, and the best-scored others."""
    order = np.argsort(-scores, kind="stable")
    positives, others = order[present[order]], order[~present[order]]
    worst = positives[EACH:][::-1][:EACH]
    return [int(row) for row in np.concatenate([positives[:EACH], worst, others[:EACH]])]


def describe_decision(
    is_present: bool, is_predicted: bool, *, complete: bool = True
) -> tuple[str, str]:
    """Caption and kind of a decision; an unlabelled class is wrong only if labels are `complete`.

    >>> describe_decision(True, False), describe_decision(False, True, complete=False)
    (('missed', 'wrong'), ('predicted, not labelled', ''))
    """
    if is_present:
        return ("found", "right") if is_predicted else ("missed", "wrong")
    if not complete:
        return f"{'' if is_predicted else 'not '}predicted, not labelled", ""
    return ("predicted, absent", "wrong") if is_predicted else ("absent", "right")


def show_missing(held_out: HeldOut, found: pd.DataFrame) -> Raw:
    """Unknown labels that are probably present; right or wrong where complete labels are known."""
    column = {name: k for k, name in enumerate(held_out.classes)}
    cards = []
    for rank, row, name, probability in found[["rank", "row", "class", "probability"]].itertuples(
        index=False
    ):
        k, kind, mark = column[name], "", ""
        if held_out.complete is not None:
            right = held_out.complete[row, k] == PRESENT
            kind, mark = ("right", "✓ ") if right else ("wrong", "✗ ")
        text = f"#{rank} · probability {100 * probability:.0f} %"
        cards.append(_card(held_out, int(row), k, text, kind, title=f"{mark}{name}"))
    return grid(cards)


def _card(held_out: HeldOut, row: int, k: int, text: str, kind: str, title: str = "") -> Raw:
    given = [held_out.classes[int(j)] for j in np.flatnonzero(held_out.labels[row] == PRESENT)]
    caption = (
        f'<p class="found"><b>{escape(title or text)}</b>'
        f"<span>score {held_out.probabilities[row, k]:.2f}</span></p>"
        + (f"<p>{escape(text)}</p>" if title else "")
        + f"<dl><dt>labelled</dt><dd>{escape(', '.join(given) or 'nothing')}</dd></dl>"
        f'<p class="note">{escape(held_out.names[row])}</p>'
    )
    return card(show_content(held_out, row), caption, kind)


def show_content(held_out: HeldOut, row: int) -> str:
    """The image or the text of a row."""
    if held_out.store is None:
        text = "" if held_out.texts is None else held_out.texts[row]
        shown = text if len(text) <= _MOST_LETTERS else text[:_MOST_LETTERS] + " …"
        return f"<blockquote>{escape(shown)}</blockquote>"
    name = held_out.names[row]
    try:
        return thumbnail(held_out.store.read(name, _SIDE), name, _SIDE)
    except BadImage as error:
        return f'<p class="note">{escape(str(error))}</p>'
