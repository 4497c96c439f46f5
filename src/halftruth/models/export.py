"""A trained model as one file for other programs: ONNX or torch.export, checked after writing."""

import copy
import importlib.util
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import halftruth
from halftruth.models import Classifier
from halftruth.models.classifier import Standardize
from halftruth.models.export_formats import load_onnx, load_torch, write_onnx, write_torch

TOLERANCE = 1e-4
SUFFIXES = {"onnx": ".onnx", "torch-export": ".pt2"}
_ONNX_PACKAGES = ("onnx", "onnxruntime", "onnxscript")


class ExportError(RuntimeError):
    """A model that cannot be exported; no file is left behind, and an older one is untouched."""


@dataclass(frozen=True)
class Exported:
    """The file, its description beside it, and how far its outputs are from the model's."""

    path: Path
    notes: Path
    difference: float


class Probabilities(nn.Module):
    """The classifier with its sigmoid: what the file holds."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input: Tensor) -> Tensor:
        return torch.sigmoid(self.model(input))


def export(source: Any, path: str | Path, format: str, **names: Any) -> Exported:
    """`export_onnx` or `export_torch` by name: "onnx" or "torch-export"."""
    if format not in SUFFIXES:
        raise ExportError(f"expected the format {' or '.join(SUFFIXES)}, got {format!r}")
    return (export_onnx if format == "onnx" else export_torch)(source, path, **names)


def export_onnx(
    source: Any,
    path: str | Path,
    *,
    classes: Sequence[str] | None = None,
    thresholds: Sequence[float] | None = None,
) -> Exported:
    """Write an ONNX file: float32 `input` of any batch size in, `probabilities` (B, K) out.

    `source`: a TrainedRun, a fitted HalftruthClassifier, or a Classifier (with `classes`). Images
    go in as (B, 3, S, S), scaled to 0..1 and normalised, (x − mean) / std; features as (B, D), as
    they are. What a user has to know (size, mean, std, classes, thresholds) is in the file's
    metadata under "halftruth" and beside it as FILE.json. The written file is loaded again: its
    outputs agree with the model's to 1e-4, or an ExportError says so and nothing is written.

        export_onnx(TrainedRun("runs/first", device="cpu"), "first.onnx")
    """
    missing = [name for name in _ONNX_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ExportError(
            f'ONNX export needs {", ".join(missing)}: pip install "halftruth[export]"; '
            "torch-export needs nothing more"
        )
    return _Export(source, path, ".onnx", classes, thresholds).go(write_onnx, load_onnx)


def export_torch(
    source: Any,
    path: str | Path,
    *,
    classes: Sequence[str] | None = None,
    thresholds: Sequence[float] | None = None,
) -> Exported:
    """Write a torch.export file (.pt2) like `export_onnx`; the notes are its "halftruth.json".

    torch.export.load("first.pt2").module()(batch)
    """
    return _Export(source, path, ".pt2", classes, thresholds).go(write_torch, load_torch)


class _Export:
    """One model on its way into a file."""

    def __init__(
        self,
        source: Any,
        path: str | Path,
        suffix: str,
        classes: Sequence[str] | None,
        thresholds: Sequence[float] | None,
    ) -> None:
        self.path = Path(path)
        if self.path.suffix != suffix:
            raise ExportError(f"expected a file ending in {suffix}, got {self.path}")
        self.model, given_classes, given_thresholds = _opened(source)
        count = self.model.num_classes
        self.classes = _checked("classes", given_classes if classes is None else classes, count)
        cuts = given_thresholds if thresholds is None else thresholds
        self.thresholds = _checked("thresholds", [0.5] * count if cuts is None else cuts, count)

    def go(
        self,
        write: Callable[[nn.Module, Tensor, str, Path], None],
        load: Callable[[Path], Callable[[Tensor], Tensor]],
    ) -> Exported:
        """Write, load again, compare; only then does the file get its name."""
        notes = self.notes()
        new = self.path.with_name(f".{os.getpid()}.{self.path.name}")
        plain = Probabilities(copy.deepcopy(self.model).cpu().float()).eval().requires_grad_(False)
        try:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                write(plain, self.example(2), notes, new)
                answers = load(new)
            except Exception as error:  # what a tracer or a runtime raises depends on the model
                first = str(error).strip().partition("\n")[0]
                raise ExportError(f"{self.path} cannot be written: {first}") from error
            difference = self.compare(answers)
            os.replace(new, self.path)
        finally:
            new.unlink(missing_ok=True)
        beside = self.path.with_name(self.path.name + ".json")
        beside.write_text(notes, encoding="utf-8")
        return Exported(self.path, beside, difference)

    @torch.no_grad()
    def compare(self, answers: Callable[[Tensor], Tensor]) -> float:
        """The largest difference to the model's own answers, for two batch sizes."""
        own = Probabilities(copy.deepcopy(self.model).cpu()).eval()
        dtype = next(own.parameters()).dtype
        worst = 0.0
        for size in (1, 5):
            x = self.example(size)
            expected, got = own(x.to(dtype)).double(), answers(x).double()
            if got.shape != expected.shape:
                raise ExportError(
                    f"the exported file answers {size} rows with shape {tuple(got.shape)} instead "
                    f"of {tuple(expected.shape)}; nothing was written"
                )
            worst = max(worst, float((got - expected).abs().nan_to_num(torch.inf).max()))
        if worst > TOLERANCE:
            raise ExportError(
                f"the exported file's probabilities differ from the model's by {worst:.2g} (at "
                f"most {TOLERANCE:g} is allowed); nothing was written. Features far from 0 for "
                "their spread, such as dates in seconds, need rescaling before training"
            )
        return worst

    def example(self, size: int) -> Tensor:
        """Random inputs of the kind the model has seen."""
        random = torch.Generator().manual_seed(size)
        if self.model.image_size:
            side = self.model.image_size
            return torch.randn(size, 3, side, side, generator=random)
        standardize = self.standardize()
        noise = torch.randn(size, len(standardize.mean), generator=random, dtype=torch.float64)
        mean, std = standardize.mean.cpu().double(), standardize.std.cpu().double()
        return (mean + std * noise).float()

    def standardize(self) -> Standardize:
        found = next((m for m in self.model.modules() if isinstance(m, Standardize)), None)
        if found is None:
            raise ExportError("expected a model from build_image_model or build_feature_model")
        return found

    def notes(self) -> str:
        """What a user of the file has to know, as JSON."""
        model, size = self.model, self.model.image_size
        looks: dict[str, Any] = {"name": "input", "dtype": "float32"}
        if size:
            looks |= {"kind": "image", "shape": ["batch", 3, size, size], "layout": "NCHW, RGB"}
            looks |= {"scale": "0..1, then (x - mean) / std"}
            looks |= {"mean": list(model.mean), "std": list(model.std)}
        else:
            looks |= {"kind": "features", "shape": ["batch", len(self.standardize().mean)]}
        output = {"name": "probabilities", "shape": ["batch", model.num_classes]}
        facts = {"halftruth": halftruth.__version__, "input": looks, "output": output}
        facts |= {"classes": self.classes, "thresholds": self.thresholds}
        return json.dumps(facts, indent=1, ensure_ascii=False)


def _opened(source: Any) -> tuple[Classifier, Any, Any]:
    """(model, classes, thresholds) of anything that holds a classifier."""
    if isinstance(source, Classifier):
        return source, None, None
    model = getattr(source, "model_", None) or getattr(source, "model", None)
    if not isinstance(model, Classifier):
        raise ExportError(
            "expected a TrainedRun, a fitted HalftruthClassifier or a Classifier, got "
            f"{type(source).__name__}"
        )
    end = "_" if hasattr(source, "model_") else ""
    return model, getattr(source, f"classes{end}"), getattr(source, f"thresholds{end}")


def _checked(what: str, values: Any, count: int) -> list[Any]:
    if values is None:
        raise ExportError(
            f"a bare model does not know its classes: give {what}=[...], {count} names"
        )
    listed = np.asarray(values).tolist()
    if len(listed) != count:
        raise ExportError(f"expected {count} {what}, one a class, got {len(listed)}")
    return listed if what == "thresholds" else [str(name) for name in listed]
