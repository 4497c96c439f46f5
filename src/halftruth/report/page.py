"""Building blocks of pages that are one HTML file: style and images inside, nothing fetched."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from PIL import Image


class Raw(str):
    """Text that is HTML already; every other text is escaped."""


class Section(NamedTuple):
    """A part of a page with its title, as HTML; a folded one is opened by a click."""

    title: str
    body: str
    folded: bool = False

    @property
    def anchor(self) -> str:
        """The name of the part in a link."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")

    def to_html(self) -> str:
        """Return the part; a browser opens it when it follows a link into it."""
        title = f"<h2>{escape(self.title)}</h2>"
        if not self.folded:
            return f'<section id="{self.anchor}">{title}{self.body}</section>\n'
        return (
            f"<details><summary>{title}</summary>"
            f'<section id="{self.anchor}">{self.body}</section></details>\n'
        )


def arrange(head: str, sections: Iterable[Section]) -> str:
    """The body of a page: its head, its sections that have a body, and a list of contents."""
    parts = [one for one in sections if one.body]
    links = "".join(f'<li><a href="#{one.anchor}">{escape(one.title)}</a></li>' for one in parts)
    return (
        f'<nav class="contents screen" aria-label="Contents"><ul>{links}</ul></nav>\n'
        f"<main>{head}{''.join(one.to_html() for one in parts)}</main>\n"
    )


def document(title: str, body: str) -> str:
    """A whole page around the HTML of its body.

    The style sheet in page.html has the classes `.facts`, `.scroll` around a table, `.grid` of
    `figure`s, `.plot`, `.note`, `.wide` (not shown on a phone), `.screen` (not printed), `.shown`
    and `.hidden` labels, `.right` and `.wrong` figures, `.marks` (lists of labels, `.yes`, `.no`
    and `.new`), and `.bar` cells.

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


def make_table(head: Sequence[str], rows: Iterable[Sequence[str]], words: int = 0) -> Raw:
    """A table whose first column names the row; the other columns are aligned to the right.

    words: how many of the last columns hold words, aligned to the left.
    """
    first = len(head) - words
    titles = "".join(
        f'<th class="{"number" if 0 < column < first else "name"}">{_html(name)}</th>'
        for column, name in enumerate(head)
    )
    lines = "".join(
        f'<tr><th scope="row">{_html(row[0])}</th>'
        + "".join(f"<td>{_html(cell)}</td>" for cell in row[1:first])
        + "".join(f'<td class="name">{_html(cell)}</td>' for cell in row[first:])
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
