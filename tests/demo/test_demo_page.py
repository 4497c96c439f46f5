"""The demo's page: one complete file, names escaped, numbers as given."""

import base64
import io
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from halftruth.demo.demo_page import (
    Bin,
    Estimate,
    Finding,
    Row,
    Scene,
    calibration_error,
    make_bins,
    write_page,
)

NASTY = '<script>alert("x")</script> & co'


class Reader(HTMLParser):
    """Tags with attributes, and the text, of a page; unclosed tags stay in `open`."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def having(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        return [
            found
            for name, found in self.tags
            if name == tag and all(found.get(key) == value for key, value in attributes.items())
        ]


def image(value: int = 0) -> Image.Image:
    pixels = np.arange(32 * 32 * 3, dtype=np.uint32).reshape(32, 32, 3) * 7 + value
    return Image.fromarray((pixels % 256).astype(np.uint8))


def contents(**changes: object) -> dict[str, Any]:
    finding = Finding(image(1), 1, NASTY, 0.98, True, ["two"], ["two", NASTY])
    values = {
        "rows": [
            Row(
                "assume negative",
                "bce",
                "unknown = absent",
                0.5934,
                0.114,
                0.27,
                {50: 1.0, 100: 0.97},
                21.4,
            ),
            Row(NASTY, "em", "", 0.7, 0.4, 0.43, {50: 1.0, 100: 0.99}, 22.0),
            Row("complete", "bce", "", 0.9, 0.8, 0.8, {50: None, 100: None}, 22.0, kind="complete"),
        ],
        "estimates": [
            Estimate(NASTY, 0.701, 0.631, 0.752, 0.634),
            Estimate("labels per image", 1.88, 1.43, 2.49, 1.792, is_share=False),
        ],
        "calibration": "0.67 labels per image",
        "bins": [Bin(0.8, 1.0, 1234, 0.913, 0.887)],
        "scenes": [Scene(image(), ["one"], [NASTY]), Scene(image(), [], [])],
        "findings": [finding],
        "mistakes": [Finding(image(2), 77, "six", 0.61, False, [], [])],
        "found_by": NASTY,
        "numbers": [("3,600", "training images")],
        "first": "Of the first 20, 19 are present.",
        "commands": "halftruth train labels.csv",
        "code": f"halftruth demo {NASTY}",
    }
    return {**values, **changes}


@pytest.fixture
def page(tmp_path: Path) -> Reader:
    return Reader(write_page(tmp_path / "index.html", **contents()).read_text(encoding="utf-8"))


def test_every_tag_is_closed(page: Reader) -> None:
    assert page.open == []


def test_names_are_escaped(page: Reader) -> None:
    assert page.having("script") == []
    assert page.text.count(NASTY) == 8


def test_nothing_is_fetched(tmp_path: Path) -> None:
    text = write_page(tmp_path / "index.html", **contents()).read_text(encoding="utf-8")
    page = Reader(text)
    assert all(str(one["src"]).startswith("data:image/png;base64,") for one in page.having("img"))
    assert not page.having("link")
    assert "http" not in text
    assert "url(" not in text
    assert "$" not in text


def test_images_are_stored_without_loss(page: Reader) -> None:
    first = str(page.having("img")[0]["src"]).partition(",")[2]
    shown = Image.open(io.BytesIO(base64.b64decode(first)))
    assert np.array_equal(np.asarray(shown)[::3, ::3], np.asarray(image()))
    assert len(page.having("img")) == 4


def test_numbers_are_shown_as_given(page: Reader) -> None:
    for number in ("59.3", "11.4", "27.0", "97%", "21 s", "3,600", "#77 · 0.61"):
        assert number in page.text


def test_estimates_stand_beside_the_truth(page: Reader) -> None:
    text = page.text.replace("\N{NO-BREAK SPACE}", " ")
    assert "%70.163.1 to 75.263.4" in text
    assert "labels per image1.881.43 to 2.491.79" in text
    assert "80 to 1001,2349189" in text


def test_bins_compare_probabilities_with_the_share_that_is_present() -> None:
    probabilities = np.array([[0.05, 0.15], [0.5, 0.95], [1.0, 0.9]])
    present = np.array([[False, True], [True, True], [False, True]])
    bins = make_bins(probabilities, present)
    assert bins == [
        Bin(0.0, 0.2, 2, pytest.approx(0.1), 0.5),
        Bin(0.4, 0.6, 1, 0.5, 1.0),
        Bin(0.8, 1.0, 3, pytest.approx(0.95), pytest.approx(2 / 3)),
    ]
    # 2 labels at a distance of 0.4, one of 0.5, three of 0.95 - 2 / 3.
    assert calibration_error(bins) == pytest.approx((0.8 + 0.5 + 0.85) / 6)


def test_right_wrong_and_not_applicable_are_marked(page: Reader) -> None:
    assert len(page.having("figure", **{"class": "right"})) == 1
    assert len(page.having("figure", **{"class": "wrong"})) == 1
    assert page.text.count("–") == 2
    assert page.text.count("✓") == page.text.count("✗") == 1


def test_without_mistakes_there_is_no_section_for_them(tmp_path: Path) -> None:
    path = write_page(tmp_path / "index.html", **contents(mistakes=[]))
    assert "Mistakes</h3>" not in path.read_text(encoding="utf-8")
