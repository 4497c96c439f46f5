"""Feature data sets of MULAN: yeast, scene, corel5k, bibtex, with their train and test rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from halftruth.bench.datasets.dataset import Contents, Dataset, Published, join, register
from halftruth.data import read_labels
from halftruth.data.feature_columns import read_features

MULAN = "MULAN's table of data sets"
WHAT = ("images_train_and_val", "images_test", "features", "classes", "cardinality")
TABLE = {
    "yeast": ("1,500", "917", "103", "14", "4.237"),
    "scene": ("1,211", "1,196", "294", "6", "1.074"),
    "corel5k": ("4,500", "500", "499", "374", "3.522"),
    "bibtex": ("4,880", "2,515", "1,836", "159", "2.402"),
}


@register("yeast", dataset="yeast")
@register("scene", dataset="scene")
@register("corel5k", dataset="corel5k")
@register("bibtex", dataset="bibtex")
@register("tabular")
class Tabular(Dataset):
    """Features with complete labels: 0 is absent.

    dataset: the stem of the files, as in yeast.npz or yeast-train.arff.
    """

    title = "yeast, scene, corel5k, bibtex (MULAN)"
    homepage = "the MULAN page of multi-label data sets (mulan.sourceforge.net)"
    tree = """
        yeast-train.arff, yeast-test.arff, yeast.xml (as MULAN has them; likewise the others)
        or yeast.npz with X_train, Y_train, X_test, Y_test, label_names
    """

    def __init__(self, dataset: str) -> None:
        self.dataset = dataset

    def read(self, root: Path) -> Contents:
        if not root.exists():
            raise self.incomplete(f"{root}: there is no such folder")
        packed = root if root.suffix == ".npz" else root / f"{self.dataset}.npz"
        if packed.is_file():
            labels = read_labels(packed, zero="absent")
            if labels.split is None or not {"train", "test"} <= set(labels.split.tolist()):
                raise self.incomplete(f"{packed}: has no Y_train and Y_test")
            return Contents(labels, features=read_features(packed, labels=labels))
        files = [root / f"{self.dataset}-{part}.arff" for part in ("train", "test")]
        self.require_files(root / f"{self.dataset}.xml", *files)
        labels = join([read_labels(file, zero="absent") for file in files], ("train", "test"))
        return Contents(labels, features=np.concatenate([read_features(file) for file in files]))

    def published(self) -> tuple[Published, ...]:
        if self.dataset not in TABLE:
            return ()
        numbers = zip(WHAT, TABLE[self.dataset], strict=True)
        return tuple(Published(key, number, MULAN) for key, number in numbers)
