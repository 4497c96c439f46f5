"""The untrained model of a run, by its settings and inputs."""

import torch
from torch import Tensor

from halftruth.data.wide_matrix import WideMatrix
from halftruth.models import (
    Classifier,
    build_feature_model,
    build_image_model,
    set_standardization,
)
from halftruth.models.language_model import build_text_model
from halftruth.train.config import Config
from halftruth.train.inputs.batches import share_scale
from halftruth.train.task import Task


def build_model(config: Config, task: Task) -> Classifier:
    """Return the untrained model of a run."""
    torch.manual_seed(config.seed)
    if config.tunes_encoder:
        assert task.encoder is not None
        return build_text_model(
            task.encoder.text, len(task.classes), head=config.head, dropout=config.dropout
        )
    if isinstance(task.features, WideMatrix):
        # Only an ensemble is fitted to it, which makes its own model.
        return build_head(config, len(task.features.columns), len(task.classes))
    if task.features is not None:
        return build_standardized_head(config, task, torch.from_numpy(task.features))
    return build_image_model(
        config.backbone,
        len(task.classes),
        weights=config.weights,
        image_size=config.image_size,
        head=config.head,
        dropout=config.dropout,
    )


def build_head(config: Config, dim: int, classes: int) -> Classifier:
    """Return a head on features, initialised from torch's random state."""
    return build_feature_model(
        dim, classes, hidden=config.hidden, head=config.head, dropout=config.dropout
    )


def build_standardized_head(config: Config, task: Task, features: Tensor) -> Classifier:
    """Return a head on features that are standardised by the training rows."""
    torch.manual_seed(config.seed)
    model = build_head(config, features.shape[1], len(task.classes))
    set_standardization(model, features, torch.from_numpy(task.splits.train))
    if task.encoder is not None and not config.tunes_encoder:
        share_scale(model.backbone[0], task.encoder.one_scale)  # type: ignore[index, arg-type]
    return model
