"""Building blocks of pages that are one HTML file: style and images inside, nothing fetched."""

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
    """Text that is HTML already; every other text is escaped."""


def document(title: str, body: str) -> str:
    """A whole page around the HTML of its body.

    The style sheet in page.html has the classes `.facts`, `.scroll` around a table, `.grid` of
    `figure`s, `.plot`, `.note`, `.wide` (not shown on a phone), `.screen` (not printed), `.shown`
    and `.hidden` labels, `.right` and `.wrong` figures, and `.bar` cells.

    >>> "<title>a &amp; b</title>" in document("a & b", "<p>text</p>")
    True
    """
    template = Template((files("halftruth.report") / "page.html").read_text(encoding="utf-8"))
    return template.substitute(title=escape(title), body=body)


def facts(pairs: Iterable[tuple[str, str]]) -> Raw:
    """Boxes side by side, each with a number and its description."""
    boxes = (
        f"<div><b>{_html(number)}</b><span>{_html(text)}</span></div>" for number, text in pairs
    )
    return Raw(f'<div class="facts">{"".join(boxes)}</div>\n')


def make_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Raw:
    """A table whose first column names the row; the other columns are aligned to the right."""
    titles = "".join(
        f'<th class="{"name" if not column else "number"}">{_html(name)}</th>'
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


def card(image: str, caption: str, kind: str = "") -> Raw:
    """An image above its caption, both HTML; `kind` may be "right" or "wrong"."""
    name = f' class="{escape(kind)}"' if kind else ""
    return Raw(f"<figure{name}>{image}<figcaption>{caption}</figcaption></figure>\n")


def grid(cards: Iterable[str]) -> Raw:
    """Cards side by side, as many as fit."""
    return Raw(f'<div class="grid">{"".join(cards)}</div>\n')


def thumbnail(image: Image.Image, text: str, side: int = 160) -> Raw:
    """An <img> with the image itself as JPEG, its longer side at most `side` pixels."""
    small = image.convert("RGB")
    small.thumbnail((side, side))
    file = io.BytesIO()
    small.save(file, "JPEG", quality=72, optimize=True)
    return _img("jpeg", file.getvalue(), small.size, text)


def pixel_image(image: Image.Image, text: str, enlarge: int = 3) -> Raw:
    """An <img> of an image of few pixels, stored larger so that no browser blurs it."""
    from PIL import Image

    size = (image.width * enlarge, image.height * enlarge)
    large = image.convert("RGB").resize(size, Image.Resampling.NEAREST)
    file = io.BytesIO()
    large.save(file, "PNG", optimize=True)
    return _img("png", file.getvalue(), large.size, text, "pixels")


def _img(kind: str, data: bytes, size: tuple[int, int], text: str, style: str = "") -> Raw:
    content, name = base64.b64encode(data).decode("ascii"), f'class="{style}" ' if style else ""
    return Raw(
        f'<img {name}src="data:image/{kind};base64,{content}" alt="{escape(text)}" '
        f'width="{size[0]}" height="{size[1]}" loading="lazy">'
    )


def _html(text: str) -> str:
    return text if isinstance(text, Raw) else escape(text)
