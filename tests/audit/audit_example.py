"""A small audit of images: class names with special characters, good scores, missing labels."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from halftruth.audit.audit_folder import AuditFolder
from halftruth.audit.make_audit import make_audit
from halftruth.report.audit_report import write_audit_report

CLASSES = ("<b>cat</b>", "=dog", "bird")


@dataclass
class Example:
    """Files on disk, and their complete labels."""

    folder: Path
    labels: Path
    probs: Path
    truth: np.ndarray
    observed: np.ndarray

    def audit(self, out: str = "audit", **options: Any) -> AuditFolder:
        options.setdefault("images", [self.folder / "photos"])
        audit = make_audit(self.probs, self.labels, out=self.folder / out, **options)
        write_audit_report(audit)
        return audit


def noisy_scores(truth: np.ndarray, seed: int = 0, noise: float = 1.0) -> np.ndarray:
    """Probabilities of a good model: the complete labels plus noise."""
    random = np.random.default_rng([seed, 3])
    return 1 / (1 + np.exp(-(4.0 * truth - 2.0 + noise * random.normal(size=truth.shape))))


def hide(truth: np.ndarray, share: float, seed: int = 0) -> np.ndarray:
    """Hide each positive with this probability."""
    kept = np.random.default_rng([seed, 7]).random(truth.shape) >= share
    return np.where(kept, truth, 0).astype(np.int8)


def write_rows(path: Path, header: tuple[str, ...], rows: list[list[Any]]) -> Path:
    lines = [",".join(header), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def make_example(folder: Path) -> Example:
    """Ninety images, their labels and the probabilities of a good model."""
    truth = (np.random.default_rng(1).random((90, 3)) < (0.5, 0.4, 0.3)).astype(np.int8)
    observed, scores = hide(truth, 0.4), noisy_scores(truth)
    # Two wrong labels, where the model is most certain that the class is absent.
    observed[scores[:, 0].argsort()[:2], 0] = 1
    (folder / "photos").mkdir()
    names = [f"p{row}.png" for row in range(len(truth))]
    for name, present in zip(names, truth, strict=True):
        red, green, blue = (60 + 180 * int(one) for one in present)
        Image.new("RGB", (40, 30), (red, green, blue)).save(folder / "photos" / name)
    header = ("image", *CLASSES)
    rows = [[name, *labels] for name, labels in zip(names, observed, strict=True)]
    labels = write_rows(folder / "labels.csv", header, rows)
    rows = [[name, *score.round(6)] for name, score in zip(names, scores, strict=True)]
    # In another order, since rows are matched by name.
    probs = write_rows(folder / "probs.csv", header, rows[::-1])
    return Example(folder, labels, probs, truth, observed)
