"""The demo's images: labels are right, no digit is in two splits, a seed repeats."""

from pathlib import Path

import numpy as np
import pytest

from halftruth.data import DataError, ImageStore, named_splits, read_labels
from halftruth.demo import scenes
from halftruth.demo.scenes import CLASSES, make_scenes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scenes")
    make_scenes(path, count=400, size=32, seed=3)
    return path


def test_complete_labels_leave_nothing_unknown(folder: Path) -> None:
    labels = read_labels(folder / "labels.csv")
    assert labels.classes == CLASSES
    assert set(np.unique(labels.values)) == {-1, 1}
    counts = labels.positives_per_class()
    assert counts[0] > 1.5 * counts[9]
    assert 0.25 < labels.empty_rows().mean() < 0.42
    assert labels.positives_per_row().max() <= 4


def test_observed_labels_show_one_label_of_each_image_that_has_any(folder: Path) -> None:
    complete = read_labels(folder / "labels.csv")
    observed = read_labels(folder / "observed.csv")
    assert np.array_equal(complete.items, observed.items)
    assert np.array_equal(observed.positives_per_row(), ~complete.empty_rows())
    assert (complete.values[observed.values == 1] == 1).all()
    assert not (observed.values == -1).any()


def test_images_can_be_read_by_the_image_store(folder: Path) -> None:
    labels = read_labels(folder / "labels.csv")
    store = ImageStore(folder / "images")
    assert len(store) == 400
    image = store.read(str(labels.items[7]))
    assert image.size == (32, 32)
    assert image.mode == "RGB"


def test_splits_have_their_shares(folder: Path) -> None:
    parts = named_splits(read_labels(folder / "labels.csv").split)
    assert (len(parts.train), len(parts.val), len(parts.test)) == (240, 60, 100)


def test_no_digit_is_used_in_two_splits() -> None:
    splits = scenes._digits_by_split(np.random.default_rng(0))
    seen = {
        split: {digit.tobytes() for of_class in shapes for digit in of_class}
        for split, shapes in splits.items()
    }
    assert sum(map(len, seen.values())) == 1797
    assert not seen["train"] & seen["test"]
    assert not seen["train"] & seen["val"]
    assert not seen["val"] & seen["test"]


def test_only_the_given_digits_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[np.ndarray] = []
    monkeypatch.setattr(scenes, "_paste_digit", lambda rng, image, shape, *rest: used.append(shape))
    shapes = [np.full((2, 8, 8), digit / 10) for digit in range(10)]
    rng = np.random.default_rng(1)
    shown = [digit for _ in range(50) for digit in scenes._scene(rng, shapes, 32)[1]]
    assert len(shown) > 50
    assert [round(float(shape[0, 0] * 10)) for shape in used] == shown


def test_the_same_seed_gives_the_same_files(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make_scenes(tmp_path / name, count=20, size=40, seed=seed)
    files = [
        {path.name: path.read_bytes() for path in sorted((tmp_path / name).rglob("*.*"))}
        for name in "abc"
    ]
    assert len(files[0]) == 22
    assert files[0] == files[1]
    assert files[0] != files[2]


def test_a_digit_covers_at_most_a_fifth_of_another() -> None:
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(200):
        taken = [(int(x), int(y), 12) for x, y in rng.integers(0, 20, size=(3, 2))]
        place = scenes._find_place(rng, taken, 10, 32)
        if place is None:
            continue
        found += 1
        canvas = np.zeros((32, 32), dtype=bool)
        canvas[place[1] : place[1] + 10, place[0] : place[0] + 10] = True
        covered = [canvas[y : y + side, x : x + side].sum() for x, y, side in taken]
        assert max(covered) <= 0.2 * 10 * 10
    assert found > 100


@pytest.mark.parametrize("wrong", [{"size": 16}, {"size": 65}, {"count": 5}])
def test_impossible_scenes_are_refused(tmp_path: Path, wrong: dict[str, int]) -> None:
    with pytest.raises(DataError, match=f"got {next(iter(wrong.values()))}"):
        make_scenes(tmp_path / "none", **{"count": 20, "size": 32, **wrong})
    assert not (tmp_path / "none").exists()
