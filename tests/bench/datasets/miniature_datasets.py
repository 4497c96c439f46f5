"""A few rows of every data set in its official layout, including irregular lines.

Each writer returns the root and the files that `load` cannot do without.
"""

import csv
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from halftruth.bench.datasets import chestxray14, nuswide, sewerml, voc2012
from halftruth.bench.datasets.coco import CLASSES as COCO_41


@dataclass
class Miniature:
    root: Path
    needed: list[Path]
    options: dict[str, Any] = field(default_factory=dict)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def write_rows(path: Path, rows: list[list[Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    return path


VOC = {
    "train": {"2008_000015": {"bottle": 1}, "2008_000008": {"horse": 1, "person": 1},
              "2008_000019": {"dog": 1, "cat": 0}, "2008_000023": {"tvmonitor": 1, "person": 1},
              "2008_000028": {"boat": 1}},
    "val": {"2008_000002": {"tvmonitor": 1}, "2008_000003": {"train": 1, "person": 1}},
}  # fmt: skip


def voc(root: Path) -> Miniature:
    """Class lists with `name -1` and `name  1`, and the list of the test archive next to them."""
    folder = root / "VOCdevkit" / "VOC2012"
    lists = folder / "ImageSets" / "Main"
    needed = []
    for part, images in VOC.items():
        needed.append(write(lists / f"{part}.txt", "\n".join(sorted(images)) + "\n"))
        for name in voc2012.CLASSES:
            lines = [f"{image} {marks.get(name, -1):2d}" for image, marks in images.items()]
            needed.append(write(lists / f"{name}_{part}.txt", "\n".join(lines) + "\n"))
        for image, marks in images.items():
            # The first object of an image is in the centre, the others grow towards a corner.
            objects = "".join(
                f"<object><name>{name}</name><difficult>{1 - mark}</difficult><bndbox>"
                f"<xmin>{80 - 80 * (k > 0)}</xmin><ymin>40</ymin><xmax>{120 - 20 * (k > 0)}</xmax>"
                f"<ymax>{60 + 40 * (k > 0)}</ymax></bndbox></object>"
                for k, (name, mark) in enumerate(marks.items())
            )
            size = "<size><width>200</width><height>100</height></size>"
            text = f"<annotation><filename>{image}.jpg</filename>{size}{objects}</annotation>"
            write(folder / "Annotations" / f"{image}.xml", text)
    write(lists / "test.txt", "2008_000001\n")
    (folder / "JPEGImages").mkdir()
    return Miniature(root, needed)


def coco_json(images: dict[int, list[str]], prefix: str, names: list[str]) -> str:
    """An instances file; category ids have gaps, and every object has an outline."""
    ids = {name: 3 * k + 1 for k, name in enumerate(names)}
    objects = [(image, name) for image, held in images.items() for name in held]
    return json.dumps(
        {
            "info": {},
            "licenses": [],
            "images": [{"id": i, "file_name": f"{prefix}{i:012d}.jpg"} for i in images],
            "annotations": [
                {"id": k, "image_id": image, "category_id": ids[name], "iscrowd": k % 2,
                 "segmentation": [[1.0, 2.0, 3.0, 4.0]], "bbox": [0, 0, 1, 1], "area": 1}
                for k, (image, name) in enumerate(objects)
            ],
            "categories": [
                {"supercategory": "x", "id": ids[name], "name": name} for name in reversed(names)
            ],
        }
    )  # fmt: skip


COCO_TRAIN = {9: ["dog", "person"], 25: ["person"], 10: ["cat", "cat"], 34: [], 100: ["dog"],
              30: ["cat", "dog", "person"]}  # fmt: skip
COCO_VAL = {42: ["dog"], 139: ["person", "cat"], 73: []}


def coco(root: Path) -> Miniature:
    names = ["person", "dog", "cat"]
    folder = root / "annotations"
    train = coco_json(COCO_TRAIN, "COCO_train2014_", names)
    val = coco_json(COCO_VAL, "COCO_val2014_", names)
    needed = [
        write(folder / "instances_train2014.json", train),
        write(folder / "instances_val2014.json", val),
    ]
    (root / "val2014").mkdir()
    return Miniature(root, needed)


def coco_41_images(first: int, repeats: int) -> dict[int, list[str]]:
    """Images by their first annotation; dropped classes are ignored."""
    kinds = [["person", "cat", "dog"], ["dog", "cat"], ["car", "person"], [], ["pizza"]]
    return {first + 7 * k: kinds[k % len(kinds)] for k in range(repeats * len(kinds))}


def coco_41(root: Path) -> Miniature:
    names = ["person", "car", *COCO_41]
    folder = root / "annotations"
    train = coco_json(coco_41_images(1, 12), "", names)
    val = coco_json(coco_41_images(3, 2), "", names)
    needed = [
        write(folder / "instances_train2017.json", train),
        write(folder / "instances_val2017.json", val),
    ]
    return Miniature(root, needed)


NUS = {
    "Train": {"actor\\0001_2124494179.jpg": ["person"], "actor\\0002_174174086.jpg": [],
              "zoos\\0771_2.jpg": ["animal", "zebra"], "sky\\0003_5.jpg": ["clouds", "sky"],
              "sky\\0004_6.jpg": ["sky"]},
    "Test": {"beach\\0001_77.jpg": ["beach", "ocean", "sky"], "cars\\0009_78.jpg": ["cars"]},
}  # fmt: skip


def nus_official(root: Path) -> Miniature:
    """Windows paths and line ends; labels with blanks around them."""
    needed = []
    for part, images in NUS.items():
        text = "\r\n".join(images) + "\r\n"
        needed.append(write(root / "ImageList" / f"{part}Imagelist.txt", text))
        for name in nuswide.CONCEPTS:
            lines = [f"{int(name in held)} " for held in images.values()]
            path = root / "Groundtruth" / "TrainTestLabels" / f"Labels_{name}_{part}.txt"
            needed.append(write(path, "\n".join(lines) + "\n"))
    return Miniature(root, needed, {"split": "official"})


def nus_drawn(root: Path) -> Miniature:
    official = nus_official(root)
    return Miniature(root, official.needed, {"split": "drawn"})


def nus_cole(root: Path) -> Miniature:
    needed = []
    for part, rows in (("train", 10), ("val", 4)):
        values = np.zeros((rows, len(nuswide.CONCEPTS)))
        values[np.arange(rows) % 3 > 0, 42] = 1.0
        values[::2, 55] = 1.0
        names = np.array([f"actor/{k:04d}_{part}.jpg" for k in range(rows)])
        for what, array in (("images", names), ("labels", values)):
            needed.append(root / f"formatted_{part}_{what}.npy")
            np.save(needed[-1], array)
    (root / "Flickr").mkdir()
    return Miniature(root, needed, {"split": "cole"})


def nus_asl(root: Path) -> Miniature:
    rows = [
        ["filepath", "label", "split_name"],
        ["0_2124494179_b039ddccac_m.jpg", "['clouds', 'sky']", "train"],
        ["1_174174086_bf6bfce1d1_m.jpg", "['person']", "train"],
        ["2_2.jpg", "['zebra', 'animal', 'grass']", "val"],
        ["3_3.jpg", "['sky']", "train"],
        ["4_4.jpg", "['water']", "train"],
    ]
    return Miniature(root, [write_rows(root / "nus_wid_data.csv", rows)], {"split": "asl"})


CUB = """\
1 1 0 3 27.7080
1 2 1 4 27.7080
1 3 0 1 0
2 1 1 4 3.2 1.5
2 2 0 1 0
2 3 1 2 7 8 9.25
3 1 0 1 0
3 2 0 1  0
3 3 1 3 2.5
4 1 0 1 0
4 2 0 1 0
4 3 0 4 11.0
5 1 1 4 1
5 2 1 4 1
5 3 1 4 1
"""


def cub(root: Path) -> Miniature:
    """Some lines of the attribute table have six or seven fields, or two blanks."""
    folder = root / "CUB_200_2011"
    images = "".join(f"{k} 00{k}.Bird/Bird_{k:04d}.jpg\n" for k in range(1, 6))
    names = "1 has_bill_shape::dagger\n2 has_wing_color::blue\n3 has_wing_color::brown\n"
    needed = [
        write(root / "attributes.txt", names),
        write(folder / "images.txt", images),
        write(folder / "train_test_split.txt", "1 0\n2 1\n3 1\n4 1\n5 0\n"),
        write(folder / "attributes" / "image_attribute_labels.txt", CUB),
    ]
    (folder / "images").mkdir()
    return Miniature(root, needed)


OPEN_TRAIN = """\
ImageID,Source,LabelName,Confidence
000002b66c9c498e,verification,/m/014j1m,0
000002b66c9c498e,verification,/m/0bt9lr,1
000002b66c9c498e,crowdsource-verification,/m/01yrx,1
0000c64e1253d68f,verification,/m/01yrx,1
0000c64e1253d68f,crowdsource-verification,/m/01yrx,0
0000c64e1253d68f,verification,/m/014j1m,1
000026e7ee790996,verification,/m/01yrx,0
00009e5b390986a0,verification,/m/0bt9lr,1
00009e5b390986a0,verification,/m/09nowhere,1
0000a16e4b057580,verification,/m/014j1m,1
0000b86e2fd18333,verification,/m/014j1m,1
"""
OPEN_VALIDATION = """\
ImageID,Source,LabelName,Confidence
0001eeaf4aed83f9,verification,/m/01yrx,1
0001eeaf4aed83f9,verification,/m/0bt9lr,0
"""


def openimages(root: Path) -> Miniature:
    """Conflicting raters, an image without present labels, a label outside the boxable classes."""
    end = "annotations-human-imagelabels-boxable.csv"
    names = "/m/014j1m,Apple\n/m/01yrx,Cat\n/m/0bt9lr,Dog\n"
    needed = [
        write(root / "class-descriptions-boxable.csv", names),
        write(root / f"train-{end}", OPEN_TRAIN),
        write(root / f"validation-{end}", OPEN_VALIDATION),
    ]
    return Miniature(root, needed)


SEWER_COLUMNS = ["Filename", "WaterLevel", "VA", *sewerml.CODES, "ND", "Defect"]


def sewer_row(name: str, held: set[str], defect: int | None = None) -> list[Any]:
    marks = [int(code in held) for code in sewerml.CODES]
    nothing = int(not held)
    return [name, 0, 1, *marks, nothing, 1 - nothing if defect is None else defect]


def sewer(root: Path) -> Miniature:
    train = [
        sewer_row("00000001.png", {"FS"}),
        sewer_row("00000002.png", set()),
        sewer_row("00000010.png", {"RB", "OB"}),
        sewer_row("00000011.png", set()),
        sewer_row("00000012.png", {"OK"}),
    ]
    val = [sewer_row("00000048.png", {"AF"}), sewer_row("00000049.png", set())]
    needed = [
        write_rows(root / "SewerML_Train.csv", [SEWER_COLUMNS, *train]),
        write_rows(root / "SewerML_Val.csv", [SEWER_COLUMNS, *val]),
    ]
    write_rows(root / "SewerML_Test.csv", [["Filename"], ["00000100.png"]])
    return Miniature(root, needed)


CHEST_HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]"
)


def chest_table(patients: int) -> str:
    """A header with commas inside brackets, and one to three images per patient."""
    lines = [CHEST_HEADER]
    for patient in range(1, patients + 1):
        for visit in range(1 + patient % 3):
            drawn = np.random.RandomState(10 * patient + visit).rand(14) < 0.06
            found = np.array(chestxray14.CLASSES)[drawn].tolist()
            cell = "|".join(found) or "No Finding"
            name = f"{patient:08d}_{visit:03d}.png"
            lines.append(f"{name},{cell},{visit},{patient},57,M,PA,2682,2749,0.143,0.143")
    return "\n".join(lines) + "\n"


def chest(root: Path) -> Miniature:
    return Miniature(root, [write(root / "Data_Entry_2017_v2020.csv", chest_table(40))])


def chest_official(root: Path) -> Miniature:
    table = chest(root).needed[0]
    names = [line.split(",")[0] for line in table.read_text().splitlines()[1:]]
    test = [name for name in names if int(name[:8]) > 30]
    train = [name for name in names if int(name[:8]) <= 30]
    needed = [
        table,
        write(root / "train_val_list.txt", "\n".join(train)),
        write(root / "test_list.txt", "\n".join(test)),
    ]
    return Miniature(root, needed, {"split": "official"})


def yeast(root: Path) -> Miniature:
    """MULAN's dense ARFF files, with the label names in an XML file."""
    header = "@relation yeast\n\n@attribute Att1 numeric\n@attribute Class1 {0,1}\n"
    header += "@attribute Class2 {0,1}\n\n@data\n"
    labels = '<?xml version="1.0" ?>\n<labels xmlns="http://mulan.sourceforge.net/labels">\n'
    labels += '<label name="Class1"></label>\n<label name="Class2"></label>\n</labels>\n'
    train = "0.5,1,0\n-1.25,0,1\n2,1,1\n3,0,0\n4,1,0\n"
    needed = [
        write(root / "yeast.xml", labels),
        write(root / "yeast-train.arff", header + train),
        write(root / "yeast-test.arff", header + "7,0,1\n"),
    ]
    return Miniature(root, needed)


def scene(root: Path) -> Miniature:
    rng = np.random.RandomState(0)
    path = root / "scene.npz"
    np.savez(
        path,
        X_train=rng.rand(8, 3).astype(np.float32),
        Y_train=(rng.rand(8, 4) < 0.5).astype(np.uint8),
        X_test=rng.rand(3, 3).astype(np.float32),
        Y_test=np.eye(4, dtype=np.uint8)[:3],
        label_names=np.array(["Beach", "Sunset", "Field", "Urban"]),
    )
    return Miniature(path, [path])


FEATURE_IDS = np.array([9, 10, 25, 100, 30, 7, 8, 11])
FEATURE_SPLIT = np.array([0, 0, 1, 0, 0, 0, 1, 0], dtype=np.uint8)


def features(root: Path) -> Miniature:
    labels = np.random.RandomState(1).rand(8, 11) < 0.4
    np.savez(
        root / "features.npz",
        features=np.arange(16, dtype=np.int8).reshape(8, 2),
        scale=np.float32(0.5),
        labels=np.packbits(labels, axis=1),
        names=np.array([f"c{k}" for k in range(11)]),
        split=FEATURE_SPLIT,
        image_id=FEATURE_IDS,
    )
    return Miniature(root, [root / "features.npz"])


def table(root: Path) -> Miniature:
    lines = ["image,split,cat,dog", "a.jpg,train,1,0", "b.jpg,train,1,1", "c.jpg,test,0,1",
             "d.jpg,train,0,0", "e.jpg,train,0,1", "f.jpg,train,1,1"]  # fmt: skip
    path = write(root / "labels.csv", "\n".join(lines) + "\n")
    return Miniature(path, [path])


# Name, writer: every registered data set, some in several layouts.
ALL = [
    ("voc2012", voc),
    ("coco2014", coco),
    ("coco-41", coco_41),
    ("nuswide", nus_official),
    ("nuswide", nus_drawn),
    ("nuswide", nus_cole),
    ("nuswide", nus_asl),
    ("cub", cub),
    ("openimages", openimages),
    ("sewer-ml", sewer),
    ("chestxray14", chest),
    ("chestxray14", chest_official),
    ("yeast", yeast),
    ("scene", scene),
    ("features", features),
    ("table", table),
]
