"""Class maps remembered in the coordinates of an image, through crops and flips."""

import pytest
import torch

from halftruth import losses
from halftruth.data.transforms import Augment

WHOLE = torch.tensor([[0.0, 0.0, 1.0, 1.0]])
ONE = torch.tensor([0])


def begun(**settings):
    loss = losses.create("scl", **settings)
    loss.begin(torch.zeros(2, 1, dtype=torch.int8))
    loss.start_epoch(1, 3)
    return loss


def shown(p: torch.Tensor) -> torch.Tensor:
    """A map (h, w) of probabilities as the logits of a batch of one image and one class."""
    return torch.logit(p)[None, None]


def remembered(loss) -> torch.Tensor:
    """The map of the first image; NaN for cells not seen yet."""
    kept = loss.memory.values[0, 0].double()
    return torch.where(kept > 0, (kept - 1) / 254, torch.nan)


def test_the_distance_is_to_the_average_of_earlier_maps():
    loss = begun(side=2, decay=0.75, weight=3.0)
    first = torch.tensor([[50.0, 100.0], [150.0, 200.0]]).double() / 254
    second = torch.tensor([[90.0, 60.0], [150.0, 240.0]]).double() / 254
    third = torch.full((2, 2), 0.5).double()
    assert loss.map_term(shown(first), ONE, WHOLE) == 0, "nothing to compare with"
    got = loss.map_term(shown(second), ONE, WHOLE)
    torch.testing.assert_close(got.double(), 3 * (first - second).abs().mean(), atol=1e-6, rtol=0)
    average = 0.75 * first + 0.25 * second
    torch.testing.assert_close(remembered(loss), average, atol=0.51 / 254, rtol=0)
    kept = remembered(loss)
    maps = shown(third).requires_grad_()
    loss.map_term(maps, ONE, WHOLE).backward()
    slope = 3 * torch.sign(third - kept) * third * (1 - third) / 4
    torch.testing.assert_close(maps.grad[0, 0], slope, atol=1e-6, rtol=0)


def test_a_flipped_crop_is_compared_and_remembered_at_its_place():
    """The right half, flipped: its first column is the last of the image."""
    loss = begun(side=4)
    image = torch.arange(1, 17).double().view(4, 4) / 20
    loss.map_term(shown(image), ONE, WHOLE)
    right = torch.tensor([[1.0, 0.0, -0.5, 1.0]])
    seen = image[:, [3, 2]]
    assert loss.map_term(shown(seen), ONE, right) < 1 / 254, "the same image agrees"
    assert loss.map_term(shown(image[:, [2, 3]]), ONE, right) > 0.04
    fresh = begun(side=4)
    fresh.map_term(shown(seen), ONE, right)
    assert remembered(fresh)[:, :2].isnan().all()
    torch.testing.assert_close(remembered(fresh)[:, 2:], image[:, 2:], atol=0.51 / 254, rtol=0)
    left = torch.tensor([[0.0, 0.0, 0.5, 1.0]])
    assert fresh.map_term(shown(1 - image[:, :2]), ONE, left) == 0, "not seen before"


def test_no_term_before_its_epoch_and_no_memory_in_evaluation():
    loss = begun(side=2)
    loss.map_term(shown(torch.full((2, 2), 0.9).double()), ONE, WHOLE)
    loss.start_epoch(0, 3)
    assert loss.map_term(shown(torch.full((2, 2), 0.1).double()), ONE, WHOLE) == 0
    before = loss.memory.values.clone()
    loss.eval().map_term(shown(torch.full((2, 2), 0.5).double()), ONE, WHOLE)
    assert torch.equal(loss.memory.values, before)


def test_invalid_maps_are_refused(monkeypatch):
    monkeypatch.setattr("halftruth.losses.consistency.MOST_BYTES", 1000.0)
    with pytest.raises(ValueError, match=r"scl would keep .* 10 samples of 6 classes.*side=4 or"):
        losses.create("scl").begin(torch.zeros(10, 6))
    losses.create("scl", side=4).begin(torch.zeros(10, 6))
    with pytest.raises(ValueError, match=r"expected maps \(B, K, h, w\).*\(1, 4\)"):
        begun().map_term(torch.zeros(2, 1, 3, 3), torch.tensor([0, 1]), WHOLE)


@pytest.mark.parametrize("preset", ["none", "flip", "weak", "strong"])
def test_boxes_are_those_of_the_augmented_images(preset):
    """The colours of the image are its coordinates, so a view shows its own box."""
    size, keys = 64, torch.arange(40)
    place = (torch.arange(size) + 0.5) / size
    image = torch.stack([*torch.meshgrid(place, place, indexing="ij"), torch.zeros(size, size)])
    images = (255 * image).round().to(torch.uint8).permute(1, 2, 0).expand(40, -1, -1, -1)
    plain = {"brightness": 0.0, "contrast": 0.0, "saturation": 0.0, "erase": 0.0}
    augment = Augment.preset(preset, size, (0.0,) * 3, (1.0,) * 3, **plain)
    views = augment(images.contiguous(), keys=keys)
    left, top, width, height = augment.crop_boxes(keys).T
    for at in (16, 32, 48):
        x, y = left + width * place[at], top + height * place[at]
        torch.testing.assert_close(views[:, 0, at, at], y, atol=0.012, rtol=0)
        torch.testing.assert_close(views[:, 1, at, at], x, atol=0.012, rtol=0)
