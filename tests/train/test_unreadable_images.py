"""Unreadable images and wrong label files, through the whole command."""

import csv
import io

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_data import IMAGES, arguments, command, outcome

from halftruth.data import ImageStore
from halftruth.data.transforms import Augment
from halftruth.train.inputs.image_inputs import Images, decode_images


def encode(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def noise(mode="RGB", size=(40, 30)):
    shape = (size[1], size[0], len(Image.new(mode, (1, 1)).getbands()))
    pixels = np.random.default_rng(0).integers(60, 200, shape, dtype=np.uint8)
    return Image.fromarray(pixels.squeeze(), mode=mode if mode != "RGB" else None)


BAD = {
    "truncated.jpg": lambda: encode(noise(size=(200, 200)), "JPEG")[:3000],
    "words.jpg": lambda: b"this is not an image",
    "empty.png": lambda: b"",
    "huge.png": lambda: encode(Image.new("1", (10_001, 10_000)), "PNG"),
}
GOOD = {
    "grey.jpg": lambda: encode(noise("L"), "JPEG"),
    "cmyk.jpg": lambda: encode(noise("CMYK"), "JPEG"),
    "deep.png": lambda: encode(Image.fromarray(np.full((30, 40), 40_000, np.uint16)), "PNG"),
    "moving.gif": lambda: encode(noise(), "GIF", save_all=True, append_images=[noise().rotate(90)]),
}
# Named in the label file, but not readable.
ABSENT = ("missing.png", "../outside.png", "/etc/hostname.png")


@pytest.fixture
def folder(tmp_path):
    photos = tmp_path / "photos"
    photos.mkdir()
    (tmp_path / "outside.png").write_bytes(encode(noise(), "PNG"))
    for name, content in {**BAD, **GOOD}.items():
        (photos / name).write_bytes(content())
    for row in range(12):
        (photos / f"p{row}.png").write_bytes(encode(noise(), "PNG"))
    names = [*BAD, *GOOD, *ABSENT, *(f"p{row}.png" for row in range(12))]
    rows = [f"{name},{row % 2},{(row + 1) % 2}" for row, name in enumerate(names)]
    (tmp_path / "labels.csv").write_text("\n".join(["image,a,b", *rows]) + "\n")
    return tmp_path


def train(folder, out, *more):
    settings = {**IMAGES, "images": folder / "photos", "tune": "all", "epochs": 1}
    return command("train", folder / "labels.csv", *arguments(settings), "--out", out, *more)


@pytest.mark.parametrize("cache", ["memory", "disk", "none"])
def test_unreadable_images_are_listed_and_nothing_is_trained(folder, capsys, cache):
    assert train(folder, folder / "run", "--cache", cache) == 2
    error = capsys.readouterr().err
    assert "7 of 23 images cannot be read" in error
    for name in (*BAD, *ABSENT):
        assert name in error
    for name in GOOD:
        assert name not in error
    assert "--bad-images skip" in error
    assert len((folder / "run" / "bad_images.csv").read_text().splitlines()) == 8
    assert not (folder / "run" / "last.safetensors").exists()


@pytest.mark.parametrize("cache", ["memory", "disk", "none"])
def test_unreadable_images_are_skipped_and_listed(folder, cache):
    assert train(folder, folder / "run", "--cache", cache, "--bad-images", "skip", "-q") == 0
    with (folder / "run" / "bad_images.csv").open() as file:
        listed = {line["image"]: line["reason"] for line in csv.DictReader(file)}
    assert listed.keys() == {*BAD, *ABSENT}
    assert "100 megapixels" in listed["huge.png"]
    assert "zero bytes" in listed["empty.png"]
    assert "truncated" in listed["truncated.jpg"]
    assert "points outside" in listed["../outside.png"]
    assert {name for name, _ in outcome(folder / "run")["bad_images"]} == listed.keys()


@pytest.mark.parametrize("cache", ["memory", "disk", "none"])
def test_readable_images_have_pixels(folder, tmp_path, cache):
    """The inputs of the model are bright, as all images here are."""
    store, names = ImageStore(folder / "photos"), [*BAD, *GOOD, "p0.png"]
    options = {"cache": cache, "folder": tmp_path / "cache", "workers": 1}
    for _ in range(2):
        pixels, bad = decode_images(store, names, 32, **options)
        assert [name for name, _ in bad] == list(BAD)
        augment = Augment.preset("none", 32, (0.0,) * 3, (1.0,) * 3)
        images = Images(store, names, 32, augment=augment, workers=0, pixels=pixels)
        rows = np.array([row for row, name in enumerate(names) if name not in BAD])
        for raw, _ in images.load([rows], torch.device("cpu")):
            assert (images.prepare(raw).mean(dim=(1, 2, 3)) > 0.2).all()


def test_all_rows_of_an_unreadable_image_are_skipped(folder):
    with (folder / "labels.csv").open("a") as file:
        file.write("empty.png,0,1\n")
    done = train(
        folder, folder / "run", "--duplicates", "keep", "--bad-images", "skip", "--cache", "none"
    )
    # Without a cache, training on a row of this image would be an error.
    assert done == 0


def test_predictions_skip_unreadable_images_and_report_them(folder, capsys):
    assert train(folder, folder / "run", "--bad-images", "skip", "-q") == 0
    out = folder / "predictions.csv"
    line = ("predict", folder / "run", "--images", folder / "photos", "--out", out)
    assert command(*line) == 0
    shown = capsys.readouterr().out
    with out.open() as file:
        items = {row["item"] for row in csv.DictReader(file)}
    assert items == {*GOOD, *(f"p{row}.png" for row in range(12))}
    for name in BAD:
        assert f"left out: {name}: " in shown
    assert command(*line, "--overwrite", "--bad-images", "fail") == 2
    assert "4 of 20 images cannot be read" in capsys.readouterr().err


LABEL_FILES = {
    "a label of 2": ("image,a,b\np0.png,1,2\np1.png,0,1\n", "got '2'"),
    "mixed codes": ("image,a,b\np0.png,1,true\np1.png,0,false\n", "mixed codes"),
    "an empty file": ("", "empty"),
    "no rows": ("image,a,b\n", "no rows"),
    "columns twice": ("image,a,a\np0.png,1,0\n", "more than once"),
    "no positives": ("image,a,b\np0.png,0,0\np1.png,0,0\np2.png,0,0\n", "nothing to learn"),
    "another folder": ("image,a,b\nq0.png,1,0\nq1.png,0,1\nq2.png,1,1\n", "none of the 3 images"),
    "wrong delimiter": ("image;a;b\np0.png;1;0\n", "looks like semicolon-separated"),
}


@pytest.mark.parametrize("kind", LABEL_FILES)
def test_wrong_label_files_are_refused(folder, capsys, kind):
    text, message = LABEL_FILES[kind]
    (folder / "labels.csv").write_text(text)
    more = ("--delimiter", ",") if kind == "wrong delimiter" else ()
    assert train(folder, folder / "run", *more) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not (folder / "run").exists()


def test_a_byte_order_mark_is_not_part_of_a_column_name(folder):
    rows = [f"p{row}.png,{row % 2},{(row + 1) % 2}" for row in range(12)]
    text = "\ufeff" + "\n".join(["image,a,b", *rows]) + "\n"
    (folder / "labels.csv").write_text(text, encoding="utf-8")
    assert train(folder, folder / "run", "-q") == 0
    assert outcome(folder / "run")["classes"] == ["a", "b"]
