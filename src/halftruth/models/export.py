"""Export a trained model to one file for other programs: ONNX or torch.export, then checked."""

import copy
import importlib.util
import json
import os
import warnings
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
from halftruth.models.language_model import PADDING, TextBackbone
from halftruth.presence.decisions import Decisions, Rule

TOLERANCE = 1e-4
SUFFIXES = {"onnx": ".onnx", "torch-export": ".pt2"}
_ONNX_PACKAGES = ("onnx", "onnxruntime", "onnxscript")
# Where a .pt2 file has its description.
NOTES = "halftruth.json"


class ExportError(RuntimeError):
    """A model that cannot be exported; nothing is written, an older file stays."""


@dataclass(frozen=True)
class Exported:
    """The file, its description next to it, and the largest difference to the model's outputs."""

    path: Path
    notes: Path
    difference: float


class CalibratedModel(nn.Module):
    """P(present | x) = σ(offset + slope · logit) of a classifier: the content of the file."""

    offset: Tensor
    slope: Tensor

    def __init__(self, model: nn.Module, curves: tuple[np.ndarray, np.ndarray]) -> None:
        super().__init__()
        self.model = model
        dtype = next(t.dtype for t in model.state_dict().values() if t.is_floating_point())
        for name, values in zip(("offset", "slope"), curves, strict=True):
            self.register_buffer(name, torch.as_tensor(values, dtype=dtype))

    def forward(self, input: Tensor) -> Tensor:
        return torch.sigmoid(self.offset + self.slope * self.model(input))


@dataclass(frozen=True)
class _Source:
    """What is exported: a model, its classes, the curves of its probabilities, its decisions."""

    model: Classifier
    classes: Sequence[object] | None
    curves: tuple[np.ndarray, np.ndarray]
    decisions: Decisions
    # How text and tables become features, if the run has them.
    encoder: Any = None


def export(source: object, path: str | Path, format: str, **names: Any) -> Exported:
    """`export_onnx` or `export_torch` by name: "onnx" or "torch-export"."""
    if format not in SUFFIXES:
        raise ExportError(f"expected the format {' or '.join(SUFFIXES)}, got {format!r}")
    return (export_onnx if format == "onnx" else export_torch)(source, path, **names)


def export_onnx(
    source: object,
    path: str | Path,
    *,
    classes: Sequence[str] | None = None,
    thresholds: Sequence[float] | None = None,
) -> Exported:
    """Write an ONNX file: float32 `input` of any batch size in, P(present | x) (B, K) out.

    `source`: a TrainedRun, a fitted HalftruthClassifier, or a Classifier (with `classes`). Images
    go in as (B, 3, S, S), scaled to 0..1 and normalised, (x − mean) / std; features as (B, D),
    unchanged. The probabilities are calibrated, except those of a bare Classifier. Size, mean, std,
    classes, the rule of decisions with its thresholds, the classes that are not predicted, and the
    curves from logits to probabilities are in the metadata of the file under "halftruth" and next
    to it in FILE.json. The written file is loaded again: its outputs agree with the model to 1e-4,
    or there is an ExportError and no file.

        export_onnx(TrainedRun("runs/first", device="cpu"), "first.onnx")
    """
    missing = [name for name in _ONNX_PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ExportError(
            f'ONNX export needs {", ".join(missing)}: pip install "halftruth[export]"; '
            "torch-export needs no other package"
        )
    return _Export(source, path, ".onnx", classes, thresholds).run(write_onnx, load_onnx)


def export_torch(
    source: object,
    path: str | Path,
    *,
    classes: Sequence[str] | None = None,
    thresholds: Sequence[float] | None = None,
) -> Exported:
    """Write a torch.export file (.pt2) as `export_onnx` does; its notes are "halftruth.json".

    torch.export.load("first.pt2").module()(batch)
    """
    return _Export(source, path, ".pt2", classes, thresholds).run(write_torch, load_torch)


class _Export:
    """One model and the file it is exported to."""

    def __init__(
        self,
        source: object,
        path: str | Path,
        suffix: str,
        classes: Sequence[str] | None,
        thresholds: Sequence[float] | None,
    ) -> None:
        self.path = Path(path)
        if self.path.suffix != suffix:
            raise ExportError(f"expected a file ending in {suffix}, got {self.path}")
        found = _unpack(source)
        self.model, self.curves, decisions = found.model, found.curves, found.decisions
        self.encoder = found.encoder
        names = found.classes if classes is None else classes
        self.classes = [str(name) for name in self._one_per_class("classes", names)]
        # Thresholds that the caller gives follow no rule.
        self.rule = str(decisions.rule) if thresholds is None else None
        # No probability is above the threshold of a class that is not predicted.
        fitted = np.where(decisions.predicted, decisions.thresholds, 1.0)
        limits = fitted if thresholds is None else thresholds
        self.thresholds = self._one_per_class("thresholds", limits)
        left_out = np.flatnonzero(~decisions.predicted).tolist() if thresholds is None else []
        self.not_predicted = [self.classes[k] for k in left_out]

    def _one_per_class(self, what: str, values: object) -> list[object]:
        count = self.model.num_classes
        if values is None:
            raise ExportError(
                f"expected {what}=[...] with {count} names, since a bare model has none"
            )
        listed: list[object] = np.asarray(values).tolist()
        if len(listed) != count:
            raise ExportError(f"expected {count} {what}, one per class, got {len(listed)}")
        return listed

    def run(
        self,
        write: Callable[[nn.Module, Tensor, str, Path], None],
        load: Callable[[Path], Callable[[Tensor], Tensor]],
    ) -> Exported:
        """Write to a temporary file, load it, compare, and only then rename it."""
        notes = self.notes()
        new = self.path.with_name(f".{os.getpid()}.{self.path.name}")
        plain = self.calibrated().float().requires_grad_(False)
        try:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                write(plain, self.example(2), notes, new)
                outputs = load(new)
            except Exception as error:  # tracers and runtimes raise many kinds of errors
                first = str(error).strip().partition("\n")[0]
                raise ExportError(f"{self.path} cannot be written: {first}") from error
            difference = self.compare(outputs)
            os.replace(new, self.path)
        finally:
            new.unlink(missing_ok=True)
        notes_path = self.path.with_name(self.path.name + ".json")
        notes_path.write_text(notes, encoding="utf-8")
        return Exported(self.path, notes_path, difference)

    def calibrated(self) -> CalibratedModel:
        """Return a copy of the model with the curves of its probabilities, on the CPU."""
        return CalibratedModel(copy.deepcopy(self.model).cpu(), self.curves).eval()

    @torch.no_grad()
    def compare(self, outputs: Callable[[Tensor], Tensor]) -> float:
        """Return the largest difference to the outputs of the model, for two batch sizes."""
        own = self.calibrated()
        worst = 0.0
        for size in (1, 5):
            x = self.example(size)
            expected, got = own(x.to(own.offset.dtype)).double(), outputs(x).double()
            if got.shape != expected.shape:
                raise ExportError(
                    f"the exported file returns shape {tuple(got.shape)} for {size} rows, "
                    f"expected {tuple(expected.shape)}; nothing was written"
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
        """Return random inputs with the scale of the training data."""
        random = torch.Generator().manual_seed(size)
        if self.model.image_size:
            side = self.model.image_size
            return torch.randn(size, 3, side, side, generator=random)
        if isinstance(self.model.backbone, TextBackbone):
            return self._example_tokens(size, random)
        standardize = self.standardize()
        noise = torch.randn(size, len(standardize.mean), generator=random, dtype=torch.float64)
        mean, std = standardize.mean.cpu().double(), standardize.std.cpu().double()
        rows = (mean + std * noise).float()
        if (columns := self._columns()) is None:
            return rows
        # Of many sparse features, few are not 0.
        wide = torch.rand(size, self.model.feature_dim, generator=random)
        wide = torch.where(wide > 0.99, wide, 0.0)
        wide[:, columns] = rows
        return wide

    def _example_tokens(self, size: int, random: torch.Generator) -> Tensor:
        """Rows of tokens; some end before the others."""
        width, words = self._count_tokens(), int(self.model.backbone.model.config.vocab_size)  # type: ignore[union-attr, arg-type]
        tokens = torch.randint(0, words, (size, width), generator=random).float()
        tokens[::2, max(width // 2, 1) :] = PADDING
        return tokens

    def _count_tokens(self) -> int:
        if self.encoder is None:
            raise ExportError("a fine-tuned language model is exported from its run, not alone")
        return len(self.encoder.outputs)

    def _columns(self) -> Tensor | None:
        """The columns of many sparse features that are standardised; None for dense features."""
        columns: Tensor | None = getattr(self.model.head, "columns", None)
        return None if columns is None else columns.cpu()

    def standardize(self) -> Standardize:
        found = next((m for m in self.model.modules() if isinstance(m, Standardize)), None)
        if found is None:
            raise ExportError("expected a model from build_image_model or build_feature_model")
        return found

    def notes(self) -> str:
        """Return the description of the file as JSON."""
        model, size = self.model, self.model.image_size
        inputs: dict[str, object] = {"name": "input", "dtype": "float32"}
        if size:
            inputs |= {"kind": "image", "shape": ["batch", 3, size, size]}
            inputs |= {"layout": "NCHW, RGB"}
            inputs |= {"scale": "0..1, then (x - mean) / std"}
            inputs |= {"mean": list(model.mean), "std": list(model.std)}
        elif isinstance(model.backbone, TextBackbone):
            inputs |= {"kind": "tokens", "shape": ["batch", self._count_tokens()]}
            inputs |= {"padding": PADDING, "tokenizer": "the folder encoder of the run"}
        else:
            wide = self._columns() is not None
            width = model.feature_dim if wide else len(self.standardize().mean)
            inputs |= {"kind": "features", "shape": ["batch", width]}
            if self.encoder is not None:
                dense = ".sparse.toarray()" * wide
                inputs["made_by"] = f"halftruth.load(RUN).encoder.transform(tables, texts){dense}"
                inputs["columns"] = "those of the tables, then the terms in encoder.json"
                if not wide:
                    inputs["columns"] = self.encoder.outputs
        output = {"name": "probabilities", "shape": ["batch", model.num_classes]}
        facts: dict[str, object] = {"halftruth": halftruth.__version__}
        facts |= {"input": inputs, "output": output}
        facts |= {"classes": self.classes, "decide": self.rule, "thresholds": self.thresholds}
        facts |= {"not_predicted": self.not_predicted}
        offset, slope = (np.asarray(values).tolist() for values in self.curves)
        facts["curves"] = {
            "offset": offset,
            "slope": slope,
            "meaning": "probability = sigmoid(offset + slope * logit)",
        }
        return json.dumps(facts, indent=1, ensure_ascii=False)


def _unpack(source: Any) -> _Source:
    """Return the model of a run, an estimator or a bare model, with what is known about it."""
    if isinstance(source, Classifier):
        count = source.num_classes
        half = Decisions(Rule("threshold", 0.5), np.full(count, 0.5), np.full(count, True))
        return _Source(source, None, (np.zeros(count), np.ones(count)), half)
    fitted = hasattr(source, "model_")
    model = source.model_ if fitted else getattr(source, "model", None)
    if not isinstance(model, Classifier):
        raise ExportError(
            "expected a TrainedRun, a fitted HalftruthClassifier or a Classifier, got "
            f"{type(source).__name__}"
        )
    if not fitted:
        encoder = getattr(source, "encoder", None)
        return _Source(model, source.classes, source.curves, source.decisions, encoder)
    curves = source.probabilities_.offset, source.probabilities_.slope
    return _Source(model, source.classes_, curves, source.decisions_)


# ---------------------------------------------------------------------- files


def _shapes() -> dict[str, object]:
    return {"input": {0: torch.export.Dim("batch", min=1)}}


def write_torch(model: nn.Module, example: Tensor, notes: str, path: Path) -> None:
    """Write a torch.export program with its notes."""
    program = torch.export.export(model, (example,), dynamic_shapes=_shapes())
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # source lines and paths of this machine
    torch.export.save(program, path, extra_files={NOTES: notes})


def load_torch(path: Path) -> Callable[[Tensor], Tensor]:
    """Load the model of a .pt2 file."""
    return torch.export.load(path).module()


def write_onnx(model: nn.Module, example: Tensor, notes: str, path: Path) -> None:
    """Write an ONNX file with its notes as metadata."""
    import onnx

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (example,),
            path,
            dynamo=True,
            verbose=False,
            external_data=False,
            input_names=["input"],
            output_names=["probabilities"],
            dynamic_shapes=_shapes(),
        )
    proto = onnx.load(path)
    for part in (proto.graph, *proto.graph.node, *proto.graph.value_info, *proto.functions):
        del part.metadata_props[:]  # source lines and paths of this machine
    onnx.helper.set_model_props(proto, {"halftruth": notes})
    onnx.checker.check_model(proto)
    onnx.save(proto, path)


def load_onnx(path: Path) -> Callable[[Tensor], Tensor]:
    """Load the model of an .onnx file."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda x: torch.from_numpy(session.run(["probabilities"], {"input": x.numpy()})[0])
