"""A small audit of pictures: names that bite, scores that know the truth, some labels left out."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from halftruth.audit.folder import AuditFolder
from halftruth.audit.make_audit import make_audit

CLASSES = ("<b>cat</b>", "=dog", "bird")


@dataclass
class Pictures:
    """Files on disk, and what is true about them."""

    folder: Path
    labels: Path
    probs: Path
    truth: np.ndarray
    observed: np.ndarray

    def audit(self, out: str = "audit", **options: Any) -> AuditFolder:
        options.setdefault("images", [self.folder / "photos"])
        return make_audit(self.probs, self.labels, out=self.folder / out, draws=4, **options)


def knowing_scores(truth: np.ndarray, seed: int = 0, noise: float = 1.0) -> np.ndarray:
    """Probabilities of a model that sees the truth through noise."""
    random = np.random.default_rng([seed, 3])
    return 1 / (1 + np.exp(-(4.0 * truth - 2.0 + noise * random.normal(size=truth.shape))))


def hide(truth: np.ndarray, share: float, seed: int = 0) -> np.ndarray:
    """Each positive is left out with this chance."""
    kept = np.random.default_rng([seed, 7]).random(truth.shape) >= share
    return np.where(kept, truth, 0).astype(np.int8)


def write_rows(path: Path, header: tuple[str, ...], rows: list[list[Any]]) -> Path:
    lines = [",".join(header), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def make_pictures(folder: Path) -> Pictures:
    """Ninety pictures, their labels and the probabilities of a model that nearly knows them."""
    truth = (np.random.default_rng(1).random((90, 3)) < (0.5, 0.4, 0.3)).astype(np.int8)
    observed, scores = hide(truth, 0.4), knowing_scores(truth)
    # Two labels that are wrong: where the model is surest that there is nothing.
    observed[scores[:, 0].argsort()[:2], 0] = 1
    (folder / "photos").mkdir()
    names = [f"p{row}.png" for row in range(len(truth))]
    for name, there in zip(names, truth, strict=True):
        red, green, blue = (60 + 180 * int(one) for one in there)
        Image.new("RGB", (40, 30), (red, green, blue)).save(folder / "photos" / name)
    header = ("image", *CLASSES)
    rows = [[name, *labels] for name, labels in zip(names, observed, strict=True)]
    labels = write_rows(folder / "labels.csv", header, rows)
    rows = [[name, *score.round(6)] for name, score in zip(names, scores, strict=True)]
    # In another order: rows are matched by name.
    probs = write_rows(folder / "probs.csv", header, rows[::-1])
    return Pictures(folder, labels, probs, truth, observed)
