"""Augmentation: plain formulas and loops, statistics, independence of the batch."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from halftruth.data.transforms import PRESETS, Augment, keyed_uniform, resampling

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def random_images(batch: int = 4, height: int = 12, width: int = 12, seed: int = 0) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (batch, height, width, 3), generator=g, dtype=torch.uint8)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def plain(images: torch.Tensor) -> torch.Tensor:
    scaled = images.double() / 255
    return ((scaled - torch.tensor(MEAN).double()) / torch.tensor(STD).double()).permute(0, 3, 1, 2)


def bytes_of(normalised: torch.Tensor) -> torch.Tensor:
    """Back to 0..255."""
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (MEAN, STD))
    return (normalised * std + mean) * 255


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_gives_finite_images_of_the_size_in_the_layout(name, channels_last):
    augment = Augment.preset(name, 8, MEAN, STD, channels_last=channels_last)
    out = augment(random_images(), generator())
    assert out.shape == (4, 3, 8, 8)
    assert out.dtype == torch.float32
    assert out.isfinite().all()
    layout = torch.channels_last if channels_last else torch.contiguous_format
    assert out.is_contiguous(memory_format=layout)
    other = Augment.preset(name, 8, MEAN, STD, channels_last=not channels_last)
    torch.testing.assert_close(other(random_images(), generator()).contiguous(), out.contiguous())


def test_normalising_equals_the_plain_formula():
    out = Augment(12, MEAN, STD)(random_images())
    torch.testing.assert_close(out.double(), plain(random_images()), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", PRESETS)
def test_without_training_nothing_is_augmented(name):
    out = Augment.preset(name, 12, MEAN, STD)(random_images(), train=False)
    torch.testing.assert_close(out.double(), plain(random_images()), rtol=1e-6, atol=1e-6)


def test_resizing_is_antialiased_and_normalising_comes_after():
    images = random_images(height=20, width=16)
    expected = F.interpolate(plain(images), (8, 8), mode="bilinear", antialias=True)
    out = Augment(8, MEAN, STD)(images)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


def test_the_input_is_not_changed():
    images = random_images()
    Augment.preset("strong", 12, MEAN, STD)(images, generator())
    assert torch.equal(images, random_images())


def test_flips_mirror_the_columns_of_about_half_the_images():
    images = random_images(batch=400, height=4, width=4)
    out = Augment(4, MEAN, STD, flip=True)(images, generator())
    straight = Augment(4, MEAN, STD)(images)
    kept = (out == straight).flatten(1).all(1)
    mirrored = (out == straight.flip(3)).flatten(1).all(1)
    assert (kept ^ mirrored).all()
    assert 150 < mirrored.sum() < 250


def test_cropping_flips_too():
    images = random_images(batch=400, height=4, width=4)
    whole = Augment(4, MEAN, STD, flip=True, crop_scale=(1.0, 1.0))(images, generator())
    flipped = Augment(4, MEAN, STD, flip=True)(images, generator())
    torch.testing.assert_close(whole, flipped, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("pixels", "size"), [(16, 8), (8, 16), (20, 7), (9, 9)])
def test_resampling_the_whole_side_is_torchs_antialiased_interpolation(pixels, size):
    line = torch.randn(5, 1, 1, pixels, generator=generator())
    weights = resampling(torch.zeros(5), torch.ones(5), pixels, size)
    expected = F.interpolate(line, (1, size), mode="bilinear", antialias=True)
    torch.testing.assert_close(weights @ line[:, 0, 0, :, None], expected[:, 0, 0, :, None])


@given(
    start=st.floats(0, 0.6),
    length=st.floats(0.05, 0.4),
    pixels=st.integers(1, 20),
    size=st.integers(1, 20),
    backwards=st.booleans(),
)
def test_resampling_equals_loops(start, length, pixels, size, backwards):
    if backwards:
        start, length = start + length, -length
    weights = resampling(torch.tensor([start]), torch.tensor([length]), pixels, size)
    for i in range(size):
        centre = (start + length * (i + 0.5) / size) * pixels
        reach = max(1.0, abs(length) * pixels / size)
        row = [max(0.0, 1 - abs(j + 0.5 - centre) / reach) for j in range(pixels)]
        expected = torch.tensor([w / sum(row) for w in row])
        torch.testing.assert_close(weights[0, i], expected, rtol=0, atol=2e-5)


def test_boxes_lie_inside_with_the_wanted_areas_and_aspects():
    # An image whose channels are its coordinates shows where each output pixel was taken.
    side, count = 32, 2000
    ramp = torch.arange(side, dtype=torch.uint8)
    image = torch.zeros(side, side, 3, dtype=torch.uint8)
    image[:, :, 0], image[:, :, 1] = ramp[None, :], ramp[:, None]
    augment = Augment(side, MEAN, STD, crop_scale=(0.3, 0.9))
    out = bytes_of(augment(image.expand(count, -1, -1, -1), generator()))
    spans = []
    for line in (out[:, 0, 16, :], out[:, 1, :, 16]):
        # The ends are left out: the ramp is flat beyond the border of the image.
        length = (line[:, 30] - line[:, 1]) / 29
        start = (line[:, 1] + 0.5) / side - length * 1.5 / side
        spans.append((start, length))
        assert start.min() > -1e-4
        assert (start + length).max() < 1 + 1e-4
        assert abs((start + length / 2).mean() - 0.5) < 0.02
    (left, width), (top, height) = spans
    area, aspect = width * height, width / height
    assert 0.2999 < area.min() < 0.31
    assert 0.89 < area.max() < 0.9001
    assert abs(area.mean() - 0.6) < 0.02
    assert 0.7499 < aspect.min() < 0.76
    assert 1.32 < aspect.max() < 1.3334
    assert abs(aspect.log().mean()) < 0.02
    corners = torch.corrcoef(torch.stack([left / (1 - width), top / (1 - height), area]))
    assert (corners - torch.eye(3)).abs().max() < 0.08


def test_colours_equal_the_plain_formula():
    images = random_images(batch=6)
    out = Augment(12, MEAN, STD, brightness=0.3, contrast=0.4, saturation=0.5)(
        images, keys=torch.arange(6)
    )
    drawn = keyed_uniform(torch.arange(6), 10)[:, 5:8].double()
    pixels = images.permute(0, 3, 1, 2).double()
    for row, (u, v, w) in enumerate(drawn.tolist()):
        b, c, s = 1 + 0.3 * (2 * u - 1), 1 + 0.4 * (2 * v - 1), 1 + 0.5 * (2 * w - 1)
        x = pixels[row] * b
        grey = 0.299 * x[0] + 0.587 * x[1] + 0.114 * x[2]
        x = c * x + (1 - c) * grey.mean()
        grey = 0.299 * x[0] + 0.587 * x[1] + 0.114 * x[2]
        expected = (s * x + (1 - s) * grey).clamp(0, 255)
        shown = bytes_of(out[row : row + 1])[0].double()
        torch.testing.assert_close(shown, expected, rtol=0, atol=1e-3)


def test_brightness_alone_scales_each_image_by_its_own_factor():
    grey = torch.full((500, 2, 2, 3), 100, dtype=torch.uint8)
    factors = bytes_of(Augment(2, MEAN, STD, brightness=0.2)(grey, generator())) / 100
    assert factors.flatten(1).std(1).max() < 1e-4
    one_each = factors[:, 0, 0, 0]
    assert 0.799 < one_each.min() < 0.81
    assert 1.19 < one_each.max() < 1.201


def test_erasing_covers_one_square_of_the_share_with_the_mean_colour():
    out = Augment(16, MEAN, STD, erase=0.25)(random_images(200, 16, 16), generator())
    erased = (out == 0).all(1)
    assert (erased.sum((1, 2)) == 64).all()
    assert (erased.any(1).sum(1) == 8).all()
    assert erased.any(0).all(), "every place is covered in some image"
    kept = ~erased[:, None].expand_as(out)
    assert torch.equal(out[kept], Augment(16, MEAN, STD)(random_images(200, 16, 16))[kept])


def test_the_same_generator_state_gives_the_same_images_and_another_seed_others():
    augment = Augment.preset("strong", 12, MEAN, STD)
    first, again = augment(random_images(), generator(3)), augment(random_images(), generator(3))
    assert torch.equal(first, again)
    assert not torch.equal(first, augment(random_images(), generator(4)))
    state = generator(3)
    augment(random_images(), state)
    assert not torch.equal(first, augment(random_images(), state)), "the generator advances"


def test_options_do_not_change_the_random_numbers_of_each_other():
    crop = Augment(12, MEAN, STD, crop_scale=(0.5, 1.0))
    both = Augment(12, MEAN, STD, crop_scale=(0.5, 1.0), erase=0.1)
    a, b = crop(random_images(), generator()), both(random_images(), generator())
    assert torch.equal(a[b != 0], b[b != 0])


def test_with_keys_an_image_does_not_depend_on_its_batch():
    augment = Augment.preset("strong", 12, MEAN, STD)
    images, keys = random_images(8), torch.tensor([5, 2, 9, 1, 77, 3, 0, 10**12])
    whole = augment(images, keys=keys)
    order = torch.tensor([6, 1, 7])
    part = augment(images[order], keys=keys[order])
    torch.testing.assert_close(part, whole[order], rtol=0, atol=1e-5)


def test_keyed_numbers_are_uniform_and_uncorrelated():
    u = keyed_uniform(torch.arange(20_000), 10)
    assert u.min() >= 0
    assert u.max() < 1
    counts = torch.stack([torch.histc(column, 20, 0, 1) for column in u.T])
    chi2 = ((counts - 1000) ** 2 / 1000).sum(1)
    assert chi2.max() < 43.8, "0.1 % point of chi-square with 19 degrees of freedom"
    correlation = torch.corrcoef(torch.cat([u[1:], u[:-1]], dim=1).T)
    assert (correlation - torch.eye(20)).abs().max() < 0.03


def test_keyed_numbers_are_splitmix64():
    # The generator's published first outputs for the seed 1234567.
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    expected = torch.tensor([(value >> 40) / 2**24 for value in published])
    assert torch.equal(keyed_uniform(torch.tensor([1234567]), 3)[0], expected)


def test_views_start_with_the_plain_image_and_differ():
    augment = Augment.preset("weak", 12, MEAN, STD)
    views = augment.views(random_images(), 3, generator())
    assert views.shape == (3, 4, 3, 12, 12)
    assert torch.equal(views[0], augment(random_images(), train=False))
    assert not torch.equal(views[1], views[2])
    drawn = augment.views(random_images(), 2, generator(), plain_first=False)
    assert not torch.equal(drawn[0], views[0])
    one = augment.views(random_images(), 1, generator(), plain_first=False)
    assert torch.equal(one[0], augment(random_images(), generator()))


def test_autocast_does_not_change_the_pixels():
    augment = Augment(12, MEAN, STD, crop_scale=(0.5, 1.0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = augment(random_images(), generator())
    assert torch.equal(inside, augment(random_images(), generator()))


def test_an_empty_batch_stays_empty():
    assert Augment.preset("strong", 8, MEAN, STD)(random_images(0)).shape == (0, 3, 8, 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size"),
        ({"mean": (0.5,)}, "3 means"),
        ({"std": (0.0, 1.0, 1.0)}, "std > 0"),
        ({"crop_scale": (0.9, 0.5)}, "crop_scale"),
        ({"crop_scale": (0.5, 1.5)}, "crop_scale"),
        ({"erase": 2.0}, "erase"),
        ({"brightness": -0.1}, "brightness"),
        ({"contrast": math.nan}, "contrast"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Augment(**{"size": 8, "mean": MEAN, "std": STD, **options})


def test_invalid_input_is_refused():
    augment = Augment(8, MEAN, STD)
    with pytest.raises(ValueError, match=r"expected uint8.*float32 of shape \(2, 3, 8, 8\)"):
        augment(torch.zeros(2, 3, 8, 8))
    with pytest.raises(ValueError, match="expected 4 keys"):
        augment(random_images(), keys=torch.arange(3))
    with pytest.raises(ValueError, match="at least 2 views"):
        augment.views(random_images(), 1)
    with pytest.raises(ValueError, match="'flip', 'weak', 'strong'"):
        Augment.preset("hard", 8, MEAN, STD)
