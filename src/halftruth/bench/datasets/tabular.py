"""Feature data sets of MULAN: yeast, scene, corel5k, bibtex, with their train and test rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from halftruth.bench.datasets.dataset import Contents, Dataset, register
from halftruth.data import read_labels
from halftruth.data.feature_columns import read_features


@register("yeast", dataset="yeast")
@register("scene", dataset="scene")
@register("corel5k", dataset="corel5k")
@register("bibtex", dataset="bibtex")
@register("tabular")
class Tabular(Dataset):
    """Features with complete labels: 0 is absent.

    dataset: the stem of the files, as in yeast.npz or yeast-train.arff.
    """

    entry = "tabular"

    def __init__(self, dataset: str) -> None:
        self.dataset = self.variant = dataset

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
        labels = self.join([read_labels(file, zero="absent") for file in files], ("train", "test"))
        return Contents(labels, features=np.concatenate([read_features(file) for file in files]))
