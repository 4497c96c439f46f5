"""The demo's page: one complete file, names escaped, numbers as given."""

import base64
import io
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from halftruth.demo.demo_page import Album, DemoOutcome, ShownEstimate, write_page
from halftruth.labels import LabelMatrix

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


@pytest.fixture
def album(tmp_path: Path) -> Album:
    """Two training images with a hidden label each, and a test image."""
    names = np.array(["0.png", "1.png", "2.png"])
    for row, name in enumerate(names):
        image(row).save(tmp_path / name)
    split = np.array(["train", "train", "test"])
    complete = np.array([[1, 1], [-1, -1], [1, -1]], np.int8)
    observed = np.array([[1, 0], [0, 0], [0, 0]], np.int8)
    classes = ("two", NASTY)
    return Album(
        tmp_path,
        LabelMatrix(complete, classes, items=names, split=split),
        LabelMatrix(observed, classes, items=names, split=split),
    )


def write(album: Album, path: Path) -> str:
    scores = np.array([[0.9, 0.98], [0.61, 0.2], [np.nan, np.nan]])
    estimates = [
        ShownEstimate(f"{NASTY}, %", 70.1, 63.1, 75.2, 63.4),
        ShownEstimate("labels per image", 1.88, 1.43, 2.49, 1.792),
    ]
    naive = DemoOutcome(
        "assume negative", "bce", 0.5934, 0.114, 0.27, {20: 1.0, 100: 0.97}, 21.4, [], scores
    )
    auto = DemoOutcome(NASTY, "em", 0.7, 0.4, 0.43, {20: 0.95, 100: 0.99}, 22.0, estimates, scores)
    whole = DemoOutcome("complete", "bce", 0.9, 0.8, 0.8, {20: None, 100: None}, 22.0, [], scores)
    code = f"halftruth demo {NASTY}"
    write_page(path, album, [naive, auto, whole], auto, "halftruth train labels.csv", code)
    return path.read_text(encoding="utf-8")


@pytest.fixture
def page(album: Album, tmp_path: Path) -> Reader:
    return Reader(write(album, tmp_path / "index.html"))


def test_every_tag_is_closed(page: Reader) -> None:
    assert page.open == []


def test_names_are_escaped(page: Reader) -> None:
    assert page.having("script") == []
    assert page.text.count(NASTY) >= 8


def test_nothing_is_fetched(album: Album, tmp_path: Path) -> None:
    text = write(album, tmp_path / "index.html")
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
    # Two scenes, and the three unknown labels of the training images.
    assert len(page.having("img")) == 5


def test_numbers_are_shown_as_given(page: Reader) -> None:
    for number in ("59.3", "11.4", "27.0", "97", "21 s", "#2 · 0.61"):
        assert number in page.text
    assert "Of the first 20 of all classes, 19 are present." in page.text


def test_estimates_stand_beside_the_truth(page: Reader) -> None:
    text = page.text.replace("\N{NO-BREAK SPACE}", " ")
    assert "%70.163.1 to 75.263.4" in text
    assert "labels per image1.881.43 to 2.491.79" in text


def test_right_wrong_and_not_applicable_are_marked(page: Reader) -> None:
    assert len(page.having("figure", **{"class": "right"})) == 1
    assert len(page.having("figure", **{"class": "wrong"})) == 2
    assert page.text.count("–") == 2
    assert (page.text.count("✓"), page.text.count("✗")) == (1, 2)


def test_without_more_mistakes_there_is_no_section_for_them(page: Reader) -> None:
    assert "Mistakes" not in page.text
