"""Pages that are one HTML file: style and pictures inside, nothing fetched, light and dark."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image


class Raw(str):
    """HTML that is shown as it is; every other text is escaped."""


def document(title: str, body: str) -> str:
    """A whole page around the HTML of its body.

    The style sheet, in page.html beside this file, knows `.facts`, `.scroll` around a table,
    `.grid` of `figure`s, `.plot`, `.note`, `.wide` (not on a phone), `.screen` (not on paper),
    `.shown` and `.hidden` labels, `.right` and `.wrong` figures, and `.bar` cells.

    >>> "<title>a &amp; b</title>" in document("a & b", "<p>text</p>")
    True
    """
    template = Template((files("halftruth.report") / "page.html").read_text(encoding="utf-8"))
    return template.substitute(title=escape(title), body=body)


def facts(pairs: Iterable[tuple[str, str]]) -> Raw:
    """Numbers with what they mean, in a row of boxes."""
    boxes = (f"<div><b>{_html(what)}</b><span>{_html(why)}</span></div>" for what, why in pairs)
    return Raw(f'<div class="facts">{"".join(boxes)}</div>\n')


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Raw:
    """A table whose first column names the row; the other columns stand to the right."""
    titles = "".join(
        f'<th class="{"way" if not column else "number"}">{_html(name)}</th>'
        for column, name in enumerate(head)
    )
    lines = "".join(
        f'<tr><th scope="row">{_html(row[0])}</th>'
        + "".join(f"<td>{_html(cell)}</td>" for cell in row[1:])
        + "</tr>\n"
        for row in rows
    )
    return Raw(
        f'<div class="scroll"><table><thead><tr>{titles}</tr></thead>\n'
        f"<tbody>{lines}</tbody></table></div>\n"
    )


def card(picture: str, caption: str, kind: str = "") -> Raw:
    """A picture over its caption, both HTML; `kind` may be "right" or "wrong"."""
    name = f' class="{escape(kind)}"' if kind else ""
    return Raw(f"<figure{name}>{picture}<figcaption>{caption}</figcaption></figure>\n")


def grid(cards: Iterable[str]) -> Raw:
    """Cards side by side, as many as fit."""
    return Raw(f'<div class="grid">{"".join(cards)}</div>\n')


def thumbnail(picture: Image.Image, words: str, side: int = 160) -> Raw:
    """A photograph, its longer side at most `side` pixels, as an <img> that holds it."""
    small = picture.convert("RGB")
    small.thumbnail((side, side))
    file = io.BytesIO()
    small.save(file, "JPEG", quality=72, optimize=True)
    return _img("jpeg", file.getvalue(), small.size, words)


def pixel_picture(picture: Image.Image, words: str, enlarge: int = 3) -> Raw:
    """A picture of few pixels as an <img>, stored larger so that no browser blurs it."""
    from PIL import Image

    size = (picture.width * enlarge, picture.height * enlarge)
    large = picture.convert("RGB").resize(size, Image.Resampling.NEAREST)
    file = io.BytesIO()
    large.save(file, "PNG", optimize=True)
    return _img("png", file.getvalue(), large.size, words, "pixels")


def _img(kind: str, data: bytes, size: tuple[int, int], words: str, style: str = "") -> Raw:
    text, name = base64.b64encode(data).decode("ascii"), f'class="{style}" ' if style else ""
    return Raw(
        f'<img {name}src="data:image/{kind};base64,{text}" alt="{escape(words)}" '
        f'width="{size[0]}" height="{size[1]}" loading="lazy">'
    )


def _html(text: str) -> str:
    return text if isinstance(text, Raw) else escape(text)
