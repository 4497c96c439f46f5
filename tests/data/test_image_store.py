"""Images by name: folders, zips, inexact names, names that lead outside, other processes."""

import io
import multiprocessing
import os
import pickle
import zipfile

import pytest
from PIL import Image

from halftruth.data import BadImage, DataError, ImageStore, check_images


def png(colour=(255, 0, 0)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 3), colour).save(buffer, "PNG")
    return buffer.getvalue()


def fill(folder, names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(png())
    return folder


def pack(path, contents):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return path


NAMES = ["a.png", "deep/er/b.png", "train/1.png", "test/1.png", "two.jpg", "two.png"]


@pytest.fixture(params=["folder", "zip"])
def store(request, tmp_path):
    if request.param == "folder":
        return ImageStore(fill(tmp_path / "images", NAMES))
    return ImageStore(pack(tmp_path / "images.zip", {name: png() for name in NAMES}))


def test_images_are_listed_and_read(store):
    assert store.names() == sorted(NAMES)
    assert len(store) == len(NAMES)
    image = store.read("deep/er/b.png")
    assert (image.mode, image.size) == ("RGB", (4, 3))
    assert image.getpixel((0, 0)) == (255, 0, 0)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("a.png", "a.png"),
        ("a", "a.png"),
        ("./a.png", "a.png"),
        ("images/a.png", "a.png"),
        ("b.png", "deep/er/b.png"),
        ("er/b", "deep/er/b.png"),
        ("deep\\er\\b.png", "deep/er/b.png"),
        ("train/1", "train/1.png"),
        ("data/test/1.png", "test/1.png"),
    ],
)
def test_inexact_names_that_fit_one_image_are_found(store, asked, found):
    assert store.resolve(asked) == found
    assert asked in store
    assert store.read(asked).size == (4, 3)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ("1.png", "more than one image fits: 'test/1.png', 'train/1.png'"),
        ("two", "more than one image fits"),
        ("val/1.png", "there is no such image"),
        ("er2/b.png", "there is no such image"),
        ("a.jpg", "no such image.*but there is 'a.png'"),
        ("gone.png", "there is no such image"),
        ("../images/a.png", "points outside the image folder"),
        ("deep/../../x.png", "points outside the image folder"),
        ("/etc/passwd", "points outside the image folder"),
        ("C:\\images\\a.png", "points outside the image folder"),
        ("", "is not a file name"),
        ("a\0.png", "is not a file name"),
        ("x" * 5000, "there is no such image"),
    ],
)
def test_names_that_are_refused(store, asked, reason):
    assert asked not in store
    with pytest.raises(BadImage, match=reason) as caught:
        store.read(asked)
    assert caught.value.name == asked


def test_absolute_names_inside_the_folder_are_found(tmp_path):
    store = ImageStore(fill(tmp_path / "images", ["a.png"]))
    assert store.resolve(str(tmp_path / "images" / "a.png")) == "a.png"
    assert str(tmp_path / "other" / "a.png") not in store


def test_symbolic_links_are_followed(tmp_path):
    folder = fill(tmp_path / "images", ["a.png"])
    fill(tmp_path / "elsewhere", ["b.png", "more/c.png"])
    os.symlink(tmp_path / "elsewhere" / "b.png", folder / "out.png")
    os.symlink(folder / "a.png", folder / "in.png")
    os.symlink(tmp_path / "elsewhere" / "more", folder / "linked")
    os.symlink(tmp_path, folder / "above")
    store = ImageStore(folder)
    assert store.names() == ["a.png", "in.png", "linked/c.png", "out.png"]
    for name in ("in.png", "out", "linked/c.png", "c.png"):
        assert store.read(name).size == (4, 3)


@pytest.mark.parametrize("asked", ["gone.png", "gone", "deep/er/lost.png", "lost"])
def test_a_broken_symbolic_link_is_a_bad_image_with_its_target(tmp_path, asked):
    folder = fill(tmp_path / "images", ["deep/er/b.png"])
    os.symlink(tmp_path / "nowhere.png", folder / "gone.png")
    os.symlink(tmp_path / "nowhere.png", folder / "deep" / "er" / "lost.png")
    store = ImageStore(folder)
    with pytest.raises(BadImage, match=r"broken symbolic link: its target '.*nowhere\.png'"):
        store.read(asked)
    assert asked not in store
    assert [name for name, _ in check_images(store, store.names())] == [
        "deep/er/lost.png",
        "gone.png",
    ]


def test_zip_entries_that_lead_outside_are_not_listed(tmp_path):
    contents = {"../evil.png": png(), "/abs.png": png(), "ok.png": png(), "__MACOSX/ok.png": b"x"}
    store = ImageStore(pack(tmp_path / "i.zip", contents))
    assert store.names() == ["ok.png"]
    assert "evil.png" not in store
    assert "../evil.png" not in store


def test_several_sources_act_as_one(tmp_path):
    first = pack(tmp_path / "1.zip", {"a.png": png(), "both.png": png()})
    second = pack(tmp_path / "2.zip", {"b.png": png((0, 255, 0)), "both.png": png()})
    folder = fill(tmp_path / "more", ["c.png"])
    store = ImageStore([first, second, folder])
    assert store.names() == ["a.png", "b.png", "both.png", "c.png"]
    assert store.read("b").getpixel((0, 0)) == (0, 255, 0)
    assert store.read("c.png").getpixel((0, 0)) == (255, 0, 0)
    with pytest.raises(BadImage, match="is in more than one place"):
        store.read("both.png")


def test_sources_must_exist(tmp_path):
    with pytest.raises(DataError, match="there is no such folder, zip file or shard"):
        ImageStore(tmp_path / "none")
    (tmp_path / "text.zip").write_text("no zip")
    with pytest.raises(DataError, match="neither a folder nor a zip file"):
        ImageStore(tmp_path / "text.zip")
    with pytest.raises(DataError, match="was given"):
        ImageStore([])


def test_a_damaged_zip_entry_is_a_bad_image(tmp_path):
    path = tmp_path / "i.zip"
    data = os.urandom(64) * 20
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.png", data)
    raw = bytearray(path.read_bytes())
    raw[45:60] = b"\xff" * 15
    path.write_bytes(raw)
    with pytest.raises(BadImage, match="cannot be read"):
        ImageStore(path).read("a.png")


def test_a_pickled_store_has_no_open_files(store):
    store.names()
    copy = pickle.loads(pickle.dumps(store))
    assert len(pickle.dumps(store)) < 1000
    assert copy.read("a").size == (4, 3)


def _read_many(store, results):
    try:
        pixels = [store.read(f"{k}.png").getpixel((0, 0)) for _ in range(3) for k in range(40)]
        [archive] = store._archives.values()
        results.put((pixels, archive._process == os.getpid()))
    except Exception as error:
        results.put(error)


@pytest.mark.parametrize(("method", "processes"), [("fork", 2), ("spawn", 1)])
def test_other_processes_read_the_same_zip(tmp_path, method, processes):
    """A shared file position would mix up the bytes of two readers."""
    colours = [(k, 2 * k, 255 - k) for k in range(40)]
    store = ImageStore(
        pack(tmp_path / "i.zip", {f"{k}.png": png(colour) for k, colour in enumerate(colours)})
    )
    store.read("0.png")
    context = multiprocessing.get_context(method)
    results = context.Queue()
    workers = [context.Process(target=_read_many, args=(store, results)) for _ in range(processes)]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    assert found == [(colours * 3, True)] * processes
