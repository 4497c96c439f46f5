"""A head on features in memory: what the estimator, trials, benches and the ensemble train."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from halftruth import losses
from halftruth.labels.soft_labels import scale_weights
from halftruth.models import Classifier
from halftruth.train.build_models import build_head
from halftruth.train.config import Config
from halftruth.train.devices import OneProcess
from halftruth.train.inputs.batches import Inputs
from halftruth.train.teacher import make_teacher, make_teacher_config
from halftruth.train.trainer import Teacher, Trainer


@dataclass(frozen=True)
class HeadData:
    """Standardised features, their number per row, labels (N, K), and weights of labels."""

    inputs: Inputs
    dim: int
    labels: Tensor
    weights: np.ndarray | None = None


@dataclass(frozen=True)
class FittedHead:
    """A head with its best weights, the number of its epochs, and the best one (from 1).

    history: what epochs were compared by, where there are rows that choose the epoch.
    """

    model: Classifier
    epochs: int
    best_epoch: int
    history: list[float]


def fit_head(
    config: Config, data: HeadData, train: np.ndarray, val: np.ndarray, process: object = None
) -> FittedHead:
    """Train a head on some rows, after the teacher that its method may need.

    `val`: the rows that choose the epoch, if there are any.
    """
    process = OneProcess(config.device) if process is None else process
    first, teacher = make_teacher_config(config), None
    if first is not None:
        model = _train(first, data, train, val, process).model
        teacher = make_teacher(model, data.inputs, process, 2 * config.batch_size)
    return _train(config, data, train, val, process, teacher)


def make_head_trainer(
    config: Config,
    model: Classifier,
    data: HeadData,
    train: np.ndarray,
    val: np.ndarray,
    process: object,
    loss: losses.Loss | None = None,
    teacher: Teacher | None = None,
    epochs: int | None = None,
) -> Trainer:
    """Return the stage that trains a head; `loss`, `epochs`: others than those of the settings."""
    if loss is None:
        loss = losses.create(config.method, **config.options)
    if data.weights is not None:
        loss = losses.LabelValues(loss, weights=scale_weights(data.weights[train]))
    return Trainer(
        name="all", model=model, inputs=data.inputs, loss=loss, labels=data.labels,
        train_rows=train, val_rows=val, config=config, accelerator=process,
        epochs=config.epochs if epochs is None else epochs,
        lr=config.head_lr, head_lr=config.head_lr, teacher=teacher,
    )  # fmt: skip


def _train(
    config: Config,
    data: HeadData,
    train: np.ndarray,
    val: np.ndarray,
    process: object,
    teacher: Teacher | None = None,
) -> FittedHead:
    torch.manual_seed(config.seed)
    model = build_head(config, data.dim, data.labels.shape[1])
    # The features are standardised already.
    model.backbone[0] = nn.Identity()  # type: ignore[operator]
    stage = make_head_trainer(config, model, data, train, val, process, teacher=teacher)
    history: list[float] = []
    stage.logger.on_epoch = lambda record: history.append(record.get("select", math.nan))
    epochs = stage.run().epoch
    best = stage.best()
    model.load_state_dict(best["model"])
    return FittedHead(model.eval(), epochs, int(best["epoch"]) + 1, history)
