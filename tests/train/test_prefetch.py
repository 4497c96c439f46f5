"""Batches fetched in advance: the same batches, in order."""

import threading

import numpy as np
import pytest
import torch

from halftruth.data import ImageStore
from halftruth.data.transforms import Augment
from halftruth.train.inputs.batches import FETCHED_AHEAD, prefetch
from halftruth.train.inputs.image_inputs import Images


def test_prefetch_keeps_the_order():
    held = threading.Event()

    def fetch(item: int) -> int:
        if item == 0:
            assert held.wait(10)
        elif item == 1:
            held.set()
        return item

    assert list(prefetch(fetch, range(20))) == list(range(20))


def test_prefetch_fetches_a_few_items_in_advance():
    asked = []
    got = prefetch(lambda item: item, (asked.append(i) or i for i in range(100)))
    assert next(got) == 0
    assert len(asked) == FETCHED_AHEAD + 1
    got.close()
    assert len(asked) == FETCHED_AHEAD + 1


def test_prefetch_raises_errors_in_the_reader():
    def fetch(item: int) -> int:
        if item == 2:
            raise OSError("cannot read")
        return item

    got = prefetch(fetch, range(5))
    assert [next(got), next(got)] == [0, 1]
    with pytest.raises(OSError, match="cannot read"):
        next(got)


@pytest.mark.parametrize("kept", ["memory", "disk"])
def test_cached_pixels_are_read_by_row(tmp_path, kept):
    pixels = np.random.default_rng(0).integers(0, 256, (9, 4, 4, 3), dtype=np.uint8)
    if kept == "disk":
        np.save(tmp_path / "pixels.npy", pixels)
        pixels = np.lib.format.open_memmap(tmp_path / "pixels.npy", mode="r")
    images = Images(
        ImageStore(tmp_path), [""] * 9, 4, augment=Augment(4, (0.5,) * 3, (0.5,) * 3), pixels=pixels
    )
    asked = [np.array([3, 1]), np.array([8, 8, 0])]
    for rows, (raw, index) in zip(asked, images.load(asked, torch.device("cpu")), strict=True):
        assert (raw.numpy() == pixels[rows]).all()
        assert (index.numpy() == rows).all()
