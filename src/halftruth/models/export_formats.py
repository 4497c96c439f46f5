"""The files that a model is exported to: written by torch, and loaded again as their users do."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

NOTES = "halftruth.json"


def _shapes() -> dict[str, Any]:
    return {"input": {0: torch.export.Dim("batch", min=1)}}


def write_torch(model: nn.Module, example: Tensor, notes: str, path: Path) -> None:
    """A torch.export program with its notes."""
    program = torch.export.export(model, (example,), dynamic_shapes=_shapes())
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # lines of source code and the paths of this machine
    torch.export.save(program, path, extra_files={NOTES: notes})


def load_torch(path: Path) -> Callable[[Tensor], Tensor]:
    """The model of a .pt2 file."""
    return torch.export.load(path).module()


def write_onnx(model: nn.Module, example: Tensor, notes: str, path: Path) -> None:
    """An ONNX file with its notes as metadata."""
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
        del part.metadata_props[:]  # lines of source code and the paths of this machine
    onnx.helper.set_model_props(proto, {"halftruth": notes})
    onnx.checker.check_model(proto)
    onnx.save(proto, path)


def load_onnx(path: Path) -> Callable[[Tensor], Tensor]:
    """The model of an .onnx file."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda x: torch.from_numpy(session.run(["probabilities"], {"input": x.numpy()})[0])
