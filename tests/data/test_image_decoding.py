"""Decoding of image files: every mode and format, and every kind of damage."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from halftruth.data import BadImage, DataError, ImageStore, check_images, decode_all
from halftruth.data.image_file import decode_image, resize


def encode(image, kind="PNG", **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def noise(width=64, height=48, seed=0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def first_pixel(data: bytes) -> tuple:
    image = decode_image(data, "x")
    assert image.mode == "RGB"
    return image.getpixel((0, 0))


def test_modes_become_rgb():
    assert first_pixel(encode(Image.new("L", (2, 2), 100))) == (100, 100, 100)
    assert first_pixel(encode(Image.new("1", (2, 2), 1))) == (255, 255, 255)
    palette = Image.new("RGB", (2, 2), (10, 200, 30)).convert("P", palette=Image.Palette.ADAPTIVE)
    assert first_pixel(encode(palette)) == (10, 200, 30)
    cmyk = first_pixel(encode(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG"))
    assert cmyk[0] > 240
    assert max(cmyk[1:]) < 15


def test_sixteen_bit_images_are_scaled_to_eight_bits():
    ramp = np.array([[0, 257 * 100, 65535]], dtype=np.uint16)
    for kind in ("PNG", "TIFF"):
        image = decode_image(encode(Image.fromarray(ramp), kind), "x")
        assert np.asarray(image)[0, :, 0].tolist() == [0, 100, 255]


def test_pixels_of_unknown_range_are_refused():
    data = encode(Image.fromarray(np.ones((2, 2), dtype=np.float32)), "TIFF")
    with pytest.raises(BadImage, match="32-bit numbers"):
        decode_image(data, "x")


def test_transparency_is_put_over_white():
    assert first_pixel(encode(Image.new("RGBA", (2, 2), (0, 0, 0, 0)))) == (255, 255, 255)
    assert first_pixel(encode(Image.new("RGBA", (2, 2), (9, 8, 7, 255)))) == (9, 8, 7)
    palette = Image.new("P", (2, 2), 0)
    palette.putpalette([0, 0, 0, 255, 0, 0])
    assert first_pixel(encode(palette, transparency=0)) == (255, 255, 255)
    assert first_pixel(encode(palette)) == (0, 0, 0)


def test_animations_give_their_first_frame():
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    for kind in ("GIF", "WEBP"):
        data = encode(frames[0], kind, save_all=True, append_images=frames[1:], lossless=True)
        assert first_pixel(data) == (255, 0, 0)


def test_exif_orientation_is_applied():
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encode(noise(64, 48), "JPEG", exif=exif)
    image = decode_image(data, "x")
    assert image.size == (48, 64)
    plain = Image.open(io.BytesIO(data)).convert("RGB")
    assert np.array_equal(np.asarray(image), np.rot90(np.asarray(plain), -1))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("options", [{}, {"progressive": True}], ids=["baseline", "progressive"])
@pytest.mark.parametrize("size", [None, 16])
def test_a_truncated_jpeg_is_refused(share, options, size):
    data = encode(noise(), "JPEG", quality=95, **options)
    with pytest.raises(BadImage, match="damaged or truncated"):
        decode_image(data[: int(len(data) * share)], "x", size=size)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "zero bytes"),
        (b"hello, this is text", "not an image of a known format; it starts with b'hello"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 30, "known format|damaged"),
        (encode(noise())[:200], "damaged or truncated"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image of a known format"),
    ],
    ids=["empty", "text", "png header", "half a png", "postscript"],
)
def test_files_that_are_not_images_are_refused(data, reason):
    with pytest.raises(BadImage, match=reason) as caught:
        decode_image(data, "x.jpg")
    assert str(caught.value).startswith("image 'x.jpg': ")


def png_that_claims(width: int, height: int) -> bytes:
    """A small PNG whose header says that it is large."""
    data = bytearray(encode(Image.new("L", (1, 1))))
    data[16:24] = struct.pack(">II", width, height)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    return bytes(data)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_images_beyond_the_pixel_limit_are_refused():
    with pytest.raises(BadImage, match="10400 x 10000 pixels are more than the limit of 100"):
        decode_image(png_that_claims(10_400, 10_000), "x")
    with pytest.raises(BadImage, match="Pillow's own limit"):
        decode_image(png_that_claims(20_000, 20_000), "x")


def test_large_jpeg_is_read_smaller_when_a_size_is_given():
    data = encode(Image.new("RGB", (800, 640), (200, 30, 30)), "JPEG")
    with pytest.raises(BadImage, match=r"limit of 0\.1 megapixels"):
        decode_image(data, "x", max_megapixels=0.1)
    image = decode_image(data, "x", size=64, max_megapixels=0.1)
    assert image.size == (100, 80)
    assert decode_image(data, "x", size=400).size == (800, 640)


def test_resize_squashes_or_crops():
    image = Image.new("RGB", (60, 20), "red")
    image.paste((0, 0, 255), (20, 0, 40, 20))
    squashed, cropped = resize(image, 12), resize(image, 12, "crop")
    assert squashed.size == cropped.size == (12, 12)
    assert squashed.getpixel((0, 6)) == (255, 0, 0)
    assert cropped.getpixel((1, 6)) == (0, 0, 255)
    with pytest.raises(ValueError, match="squash"):
        resize(image, 12, "stretch")


@pytest.fixture
def mixed(tmp_path):
    for k in range(6):
        noise(20 + k, 30, seed=k).save(tmp_path / f"{k}.png")
    (tmp_path / "text.jpg").write_text("not an image")
    (tmp_path / "zero.png").write_bytes(b"")
    return ImageStore(tmp_path)


def test_check_images_lists_every_bad_image(mixed):
    seen = []
    names = ["0.png", "text.jpg", "1", "gone.png", "zero.png"]
    bad = check_images(mixed, names, workers=2, progress=seen.append)
    assert [name for name, _ in bad] == ["text.jpg", "gone.png", "zero.png"]
    assert seen == [1] * 5


def test_decode_all_equals_single_reads(mixed, tmp_path):
    names = [f"{k}.png" for k in range(6)]
    decoded = decode_all(mixed, names, 16, workers=3)
    for row, name in enumerate(names):
        with Image.open(tmp_path / name) as image:
            alone = image.resize((16, 16), Image.Resampling.BICUBIC)
        assert np.array_equal(decoded.pixels[row], np.asarray(alone))
    assert decoded.good.all()
    with Image.open(tmp_path / "3.png") as image:
        middle = ImageOps.fit(image, (16, 16), Image.Resampling.BICUBIC)
    cropped = decode_all(mixed, ["3.png"], 16, fit="crop").pixels[0]
    assert np.array_equal(cropped, np.asarray(middle))


def test_decode_all_into_a_memory_map(mixed, tmp_path):
    out = np.lib.format.open_memmap(
        tmp_path / "cache.npy", mode="w+", dtype=np.uint8, shape=(2, 8, 8, 3)
    )
    assert decode_all(mixed, ["0", "1"], 8, out=out).pixels is out
    assert np.array_equal(out, decode_all(mixed, ["0", "1"], 8).pixels)
    with pytest.raises(ValueError, match="out must be uint8 of shape"):
        decode_all(mixed, ["0"], 8, out=out)


def test_bad_images_fail_or_are_listed(mixed):
    names = ["0.png", "text.jpg", "gone", "1.png"]
    with pytest.raises(DataError, match=r"2 of 4 images cannot be read:\n  text.jpg: not an image"):
        decode_all(mixed, names, 8)
    decoded = decode_all(mixed, names, 8, on_bad="skip")
    assert decoded.good.tolist() == [True, False, False, True]
    assert [name for name, _ in decoded.bad] == ["text.jpg", "gone"]


def test_if_all_images_are_bad_the_message_does_not_advise_to_skip_them(mixed):
    with pytest.raises(DataError, match="none of the 2 images can be read") as caught:
        decode_all(mixed, ["zero.png", "text.jpg"], 8)
    assert "  zero.png: the file is empty (zero bytes)\n" in str(caught.value)
    assert "skip" not in str(caught.value)


def test_12_bit_values_in_16_bit_images_are_scaled_by_12_bits():
    ramp = np.array([[0, 2048, 4095]], dtype=np.uint16)
    for kind in ("PNG", "TIFF"):
        with pytest.warns(UserWarning, match="read as 12-bit images"):
            pixels = np.asarray(decode_image(encode(Image.fromarray(ramp), kind), "x"))
        assert pixels[0, :, 0].tolist() == [0, 128, 255]


def test_files_of_a_folder_that_may_be_images_are_listed(tmp_path):
    for name in ("a.png", "b", "c.HEIC", "labels.csv", ".hidden", "d.jpg"):
        (tmp_path / name).write_bytes(encode(Image.new("RGB", (8, 8)), "PNG"))
    store = ImageStore(tmp_path)
    assert store.names() == ["a.png", "b", "c.HEIC", "d.jpg"]
