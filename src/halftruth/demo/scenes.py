"""Images with several of scikit-learn's handwritten digits; many of their labels are hidden.

The digits are divided before any image is made: no digit of a training image appears in a test
image. A third of the images show no digit, only shapes that resemble one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from halftruth.data import write_labels
from halftruth.data.errors import DataError
from halftruth.labels import ABSENT, PRESENT, LabelMatrix
from halftruth.labels.hiding import single_positive
from halftruth.seeds import check_seed

CLASSES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
# How often each digit is drawn: the most frequent three times as often as the rarest.
FREQUENCY = np.array([0.16, 0.14, 0.12, 0.11, 0.10, 0.09, 0.08, 0.08, 0.07, 0.05])
# Shares of the images with one to four digits, among those that are not empty.
HOW_MANY = np.array([0.10, 0.20, 0.35, 0.35])
EMPTY = 1 / 3
SPLITS = {"train": 0.60, "val": 0.15, "test": 0.25}
SIDES = (32, 64)
# Strokes of letters, as points in a unit square.
LETTERS = (
    ((0, 0), (0, 1), (1, 1)),
    ((0, 0), (1, 0), (0.5, 0), (0.5, 1)),
    ((0, 0), (0.5, 1), (1, 0)),
    ((0, 1), (0.5, 0), (1, 1)),
    ((0, 0), (1, 1), (0.5, 0.5), (1, 0), (0, 1)),
    ((0, 1), (0, 0), (0.5, 0.6), (1, 0), (1, 1)),
    ((0, 0), (0, 1), (0, 0.5), (1, 0), (0, 0.5), (1, 1)),
    ((1, 0), (0, 0), (0, 1), (0, 0.5), (0.8, 0.5)),
)


def make_scenes(
    folder: str | Path, *, count: int = 6000, size: int = 48, seed: int = 0
) -> tuple[Path, Path]:
    """Write `count` images of `size` x `size` pixels and two label files; return the two paths.

    `labels.csv` is complete (1 present, -1 absent). In `observed.csv` an image with digits shows
    one of them, and all other labels are unknown (0). Both have one row per image, one column per
    class, and a `split` column: 60 % of the images are for training, 15 % for validation and 25 %
    for the test. The images are `images/train-00000.png` and so on.
    """
    if not SIDES[0] <= size <= SIDES[1]:
        raise DataError(f"expected a size of {SIDES[0]} to {SIDES[1]} pixels, got {size}")
    if count < 20:
        raise DataError(f"expected at least 20 images, so that no split is empty, got {count}")
    rng = np.random.default_rng(check_seed(seed))
    folder = Path(folder)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    shapes = _digits_by_split(rng)

    ends = np.round(np.cumsum([0, *SPLITS.values()]) * count).astype(int)
    split = np.repeat(list(SPLITS), np.diff(ends))
    values = np.full((count, len(CLASSES)), ABSENT, dtype=np.int8)
    names = [f"{name}-{row:05d}.png" for row, name in enumerate(split)]
    for row, name in enumerate(split):
        image, shown = _scene(rng, shapes[name], size)
        values[row, shown] = PRESENT
        image.save(folder / "images" / names[row])

    complete = LabelMatrix(values, classes=CLASSES, items=np.array(names), split=split)
    seen = LabelMatrix(
        single_positive(values, seed=seed), classes=CLASSES, items=np.array(names), split=split
    )
    paths = folder / "labels.csv", folder / "observed.csv"
    write_labels(complete, paths[0])
    write_labels(seen, paths[1])
    return paths


def _digits_by_split(rng: np.random.Generator) -> dict[str, list[np.ndarray]]:
    """For each split and class the 8 x 8 digits (0..1) that only this split uses."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    ends = np.cumsum([0, *SPLITS.values()])
    splits: dict[str, list[np.ndarray]] = {name: [] for name in SPLITS}
    for digit in range(len(CLASSES)):
        own = rng.permutation(np.flatnonzero(digits.target == digit))
        bounds = np.round(ends * len(own)).astype(int)
        for name, start, end in zip(SPLITS, bounds[:-1], bounds[1:], strict=True):
            splits[name].append(digits.images[own[start:end]] / 16.0)
    return splits


def _scene(
    rng: np.random.Generator, shapes: list[np.ndarray], size: int
) -> tuple[Image.Image, list[int]]:
    """An image and its digits."""
    corners = rng.integers(0, 90, size=(2, 2, 3)).astype(np.uint8)
    image = Image.fromarray(corners).resize((size, size), Image.Resampling.BILINEAR)
    for _ in range(rng.integers(1, 4)):
        _draw_distractor(rng, image)
    digits: list[int] = []
    if rng.random() >= EMPTY:
        wanted = rng.choice(len(CLASSES), size=1 + rng.choice(4, p=HOW_MANY), p=FREQUENCY)
        taken: list[tuple[int, int, int]] = []
        for digit in wanted:
            side = int(rng.integers(round(size * 0.34), round(size * 0.44)))
            place = _find_place(rng, taken, side, size)
            if place is not None:
                taken.append((*place, side))
                shape = shapes[digit][rng.integers(len(shapes[digit]))]
                _paste_digit(rng, image, shape, place, side, _random_colour(rng))
                digits.append(int(digit))
    noisy = np.asarray(image, dtype=np.float64) + rng.normal(0, 6, size=(size, size, 3))
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)), digits


def _find_place(
    rng: np.random.Generator, taken: list[tuple[int, int, int]], side: int, size: int
) -> tuple[int, int] | None:
    """A random corner for a square that covers at most a fifth of any other, or None."""
    for _ in range(30):
        x, y = (int(value) for value in rng.integers(0, size - side + 1, size=2))
        covered = (
            max(0, min(x + side, left + other) - max(x, left))
            * max(0, min(y + side, top + other) - max(y, top))
            / min(side, other) ** 2
            for left, top, other in taken
        )
        if all(share <= 0.2 for share in covered):
            return x, y
    return None


def _paste_digit(
    rng: np.random.Generator,
    image: Image.Image,
    shape: np.ndarray,
    place: tuple[int, int],
    side: int,
    ink: tuple[int, ...],
) -> None:
    mask = Image.fromarray((shape * 255).astype(np.uint8))
    mask = mask.resize((side, side), Image.Resampling.BICUBIC)
    mask = mask.rotate(rng.uniform(-8, 8), Image.Resampling.BILINEAR)
    image.paste(ink, (*place, place[0] + side, place[1] + side), mask)


def _draw_distractor(rng: np.random.Generator, image: Image.Image) -> None:
    """Draw a line, a ring, a disc or a letter."""
    draw, size = ImageDraw.Draw(image), image.width
    ink = _random_colour(rng)
    x, y = (float(value) for value in rng.integers(0, size, size=2))
    kind = rng.integers(4)
    if kind == 0:
        angle, length = rng.uniform(0, np.pi), rng.uniform(0.15, 0.6) * size
        end = (x + length * np.cos(angle), y + length * np.sin(angle))
        draw.line([(x, y), end], fill=ink, width=int(rng.integers(1, 3)))
    elif kind in (1, 2):
        width, height = rng.uniform(0.05, 0.25, size=2) * size
        box = (x, y, x + width, y + height)
        draw.ellipse(box, fill=ink if kind == 1 else None, outline=ink)
    else:
        side = rng.uniform(0.15, 0.3) * size
        strokes = LETTERS[rng.integers(len(LETTERS))]
        points = [(x + side * across, y + side * down) for across, down in strokes]
        draw.line(points, fill=ink, width=int(rng.integers(1, 3)))


def _random_colour(rng: np.random.Generator) -> tuple[int, ...]:
    """A random colour that stands out from a dark background."""
    colour = rng.integers(140, 256, size=3)
    colour[rng.integers(3)] = 255
    return tuple(int(value) for value in colour)
