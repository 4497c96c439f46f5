"""A tiny stand-in of every image data set of the papers, in its official layout, with images."""

from pathlib import Path

import miniature_datasets as mini
import numpy as np
from PIL import Image

from halftruth.bench import datasets as benchmarks
from halftruth.bench.datasets import nuswide, voc2012

TRAIN, TEST = 20, 6


def draw_labels(rows: int, classes: int) -> np.ndarray:
    """Labels in which the first classes are frequent and every row has one of them."""
    labels = np.zeros((rows, classes), dtype=int)
    for row in range(rows):
        labels[row, row % 3] = 1
        labels[row, (row // 2) % 4] = 1
    return labels


def write_voc(root: Path) -> Path:
    folder = root / "VOCdevkit" / "VOC2012"
    lists = folder / "ImageSets" / "Main"
    for part, rows in (("train", TRAIN), ("val", TEST)):
        labels = draw_labels(rows, 20)
        names = [f"{part}_{row:06d}" for row in range(rows)]
        mini.write(lists / f"{part}.txt", "\n".join(names) + "\n")
        for k, name in enumerate(voc2012.CLASSES):
            lines = [f"{item} {1 if labels[row, k] else -1}" for row, item in enumerate(names)]
            mini.write(lists / f"{name}_{part}.txt", "\n".join(lines) + "\n")
    return folder / "JPEGImages"


COCO = ["person", "dog", "cat", "car"]


def write_coco(root: Path) -> Path:
    for part, rows in (("train", TRAIN), ("val", TEST)):
        held = {
            row + 1: [COCO[k] for k in np.flatnonzero(labels)]
            for row, labels in enumerate(draw_labels(rows, 4))
        }
        text = mini.coco_json(held, f"COCO_{part}2014_", COCO)
        mini.write(root / "annotations" / f"instances_{part}2014.json", text)
    return root / "train2014"


def write_nus(root: Path) -> Path:
    """Two of its layouts: the arrays of Cole et al., and the file of ASL."""
    for part, rows in (("train", TRAIN), ("val", TEST)):
        np.save(root / f"formatted_{part}_labels.npy", draw_labels(rows, 81).astype(float))
        names = np.array([f"{part}/{row:04d}.jpg" for row in range(rows)])
        np.save(root / f"formatted_{part}_images.npy", names)
    lines = [["filepath", "label", "split_name"]]
    for row, labels in enumerate(draw_labels(TRAIN + TEST, 81)):
        held = [nuswide.CONCEPTS[k] for k in np.flatnonzero(labels)]
        lines.append([f"{row}_asl.jpg", str(held), "train" if row < TRAIN else "val"])
    mini.write_rows(root / "nus_wid_data.csv", lines)
    write_images(root / "images", [line[0] for line in lines[1:]])
    return root / "Flickr"


def write_cub(root: Path) -> Path:
    folder, rows = root / "CUB_200_2011", TRAIN + TEST
    labels = draw_labels(rows, 4)
    mini.write(root / "attributes.txt", "".join(f"{k + 1} has::{k}\n" for k in range(4)))
    numbers = range(1, rows + 1)
    mini.write(folder / "images.txt", "".join(f"{n} bird/{n:04d}.jpg\n" for n in numbers))
    split = "".join(f"{n} {int(n <= TRAIN)}\n" for n in numbers)
    mini.write(folder / "train_test_split.txt", split)
    lines = [f"{n} {k + 1} {labels[n - 1, k]} 4 1.0\n" for n in numbers for k in range(4)]
    mini.write(folder / "attributes" / "image_attribute_labels.txt", "".join(lines))
    return folder / "images"


def write_openimages(root: Path) -> Path:
    names = ["/m/0a", "/m/0b", "/m/0c", "/m/0d"]
    mini.write(root / "class-descriptions-boxable.csv", "".join(f"{n},{n[3:]}\n" for n in names))
    for part, rows in (("train", TRAIN), ("validation", TEST)):
        lines = ["ImageID,Source,LabelName,Confidence"]
        for row, labels in enumerate(draw_labels(rows, 4)):
            marks = zip(names, labels, strict=True)
            lines += [f"{part}{row:04d},verification,{name},{there}" for name, there in marks]
        text = "\n".join(lines) + "\n"
        mini.write(root / f"{part}-annotations-human-imagelabels-boxable.csv", text)
    return root / "train"


def write_sewer(root: Path) -> Path:
    codes = ("RB", "OB", "PF", "DE")
    for part, rows in (("Train", TRAIN), ("Val", TEST)):
        lines = [mini.SEWER_COLUMNS]
        for row, labels in enumerate(draw_labels(rows, 4)):
            held = {code for code, there in zip(codes, labels, strict=True) if there and row % 2}
            lines.append(mini.sewer_row(f"{part}{row:08d}.png", held))
        mini.write_rows(root / f"SewerML_{part}.csv", lines)
    return root / "images"


def write_chest(root: Path) -> Path:
    mini.chest(root)
    return root / "images"


def write_coco_41(root: Path) -> Path:
    mini.coco_41(root)
    return root / "train2017"


WRITERS = {
    "voc2012": write_voc,
    "coco2014": write_coco,
    "coco-41": write_coco_41,
    "nuswide": write_nus,
    "cub": write_cub,
    "openimages": write_openimages,
    "sewer-ml": write_sewer,
    "chestxray14": write_chest,
}


def write_images(folder: Path, names: list[str]) -> None:
    random = np.random.default_rng(0)
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 255, (32, 32, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(path)


def make_standins(data: Path) -> Path:
    """Write all stand-ins below a folder, as `halftruth bench paper --data` expects them."""
    for name, writer in WRITERS.items():
        root = data / name
        root.mkdir(parents=True)
        folder = writer(root)
        folder.mkdir(parents=True, exist_ok=True)
        write_images(folder, [str(item) for item in benchmarks.load(name, root).observed.items])
    return data
