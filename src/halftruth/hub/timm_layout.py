"""A run on images as timm stores models, for `timm.create_model` and transformers' pipelines."""

import inspect
import json
from pathlib import Path

import torch
from torch import nn

from halftruth.models import import_timm
from halftruth.models.heads import LinearHead
from halftruth.train.results.trained_run import TrainedRun

# Largest difference of a logit to the run's own model.
TOLERANCE = 1e-3


def find_timm_problem(run: TrainedRun) -> str | None:
    """Return why a run cannot be a plain timm model, or None."""
    if run.inputs is not None:
        return "it was trained on features, and timm has models for images"
    if type(run.model.head) is not LinearHead:
        return f"its head is {run.config.head}, and timm's models have a linear one"
    return None


@torch.no_grad()
def write_timm_model(run: TrainedRun, out: str | Path) -> None:
    """Write config.json and model.safetensors, as timm does; their logits equal those of the run.

    timm.create_model("local-dir:" + folder, pretrained=True)
    transformers.pipeline("image-classification", folder)
    """
    if problem := find_timm_problem(run):
        raise ValueError(f"{run.folder}: this run cannot be written as a timm model: {problem}")
    timm = import_timm()
    from timm.models import save_for_hf

    ours, classes = run.model.cpu(), list(run.classes)
    sized = {"img_size": run.config.image_size} if _takes_size(run) else {}
    model = timm.create_model(
        run.config.backbone, pretrained=False, num_classes=len(classes), **sized
    )
    classifier = model.get_classifier()
    if not isinstance(classifier, nn.Linear):
        raise ValueError(f"{run.config.backbone}: its classifier in timm is not a linear layer")
    model.load_state_dict(ours.backbone.state_dict(), strict=False)
    head = ours.head
    assert isinstance(head, LinearHead)
    classifier.weight.copy_(head.linear.weight)
    classifier.bias.copy_(head.linear.bias)
    _compare(model.eval(), ours.eval(), ours.image_size)
    model.pretrained_cfg |= {
        "input_size": (3, ours.image_size, ours.image_size),
        "mean": ours.mean,
        "std": ours.std,
        "interpolation": "bicubic",
        "crop_pct": 1.0,
        "crop_mode": "squash",
        "num_classes": len(classes),
    }
    out = Path(out)
    save_for_hf(model, str(out), {"label_names": classes}, safe_serialization=True)
    # transformers reads from it that the classes are independent.
    path = out / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["problem_type"] = "multi_label_classification"
    path.write_text(json.dumps(config, indent=2), encoding="utf-8")


def _takes_size(run: TrainedRun) -> bool:
    """Whether the network was built for an image size of its own, as vision transformers are."""
    if run.config.image_size is None:
        return False
    return "img_size" in inspect.signature(type(run.model.backbone).__init__).parameters


def _compare(model: nn.Module, ours: nn.Module, size: int) -> None:
    images = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    difference = float((model(images) - ours(images)).abs().max())
    if not difference <= TOLERANCE:
        raise ValueError(
            f"the timm model differs from the run by {difference:.2g} per logit; it is not written"
        )
