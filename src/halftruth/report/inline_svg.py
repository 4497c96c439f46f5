"""Figures inside a page: SVG that takes the page's colours, light or dark."""

from __future__ import annotations

import io
import re
from html import escape

from halftruth.plots.style import GRID, INK, Drawing, styled
from halftruth.report.page import Raw


@styled
def inline_svg(drawing: Drawing, words: str) -> Raw:
    """A figure as <svg>, as wide as the page lets it be; `words` say what it shows."""
    file = io.StringIO()
    drawing.figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' (?:width|height)="[\d.]+pt"', "", text, count=2)
    # Ink and grid follow the page; the colours of the lines can be read on both.
    text = re.sub(re.escape(INK), "currentColor", text, flags=re.IGNORECASE)
    text = re.sub(re.escape(GRID), "currentColor", text, flags=re.IGNORECASE)
    # Letters as large as the page's small print; on a phone smaller, and the rest by scrolling.
    width = drawing.figure.get_figwidth()
    size = f"width: {100 * width:.0f}px; min-width: {66 * width:.0f}px"
    text = text.replace("<svg ", f'<svg role="img" aria-label="{escape(words)}" style="{size}" ', 1)
    return Raw(f'<figure class="plot">{text}</figure>\n')
