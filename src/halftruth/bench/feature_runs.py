"""One run on features in memory: the library's own stage of training, without files."""

import dataclasses
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from halftruth import losses
from halftruth.bench.job import PRIOR, Job
from halftruth.bench.run_data import Matrix
from halftruth.data import Splits
from halftruth.metrics import evaluate, thresholds
from halftruth.metrics.counts import UndefinedMetricWarning
from halftruth.models import Classifier
from halftruth.train.auto import AUTO, settled
from halftruth.train.build import head_model
from halftruth.train.config import OVER_FEATURES, Config
from halftruth.train.inputs import Features
from halftruth.train.one_process import OneProcess
from halftruth.train.search_settings import tried
from halftruth.train.teacher import Teacher, teacher, teacher_config
from halftruth.train.trainer import Stage

# A linear head has too little to do for capturing or compiling it to pay.
_LEAN = {"ema": 0.99, "graphs": False, "compile": False}

NONE = np.arange(0)


def run_on_features(job: Job, matrix: Matrix) -> dict[str, Any]:
    """Train a linear head (or one with a hidden layer) and measure it.

    The epoch is the best on the complete labels of the validation rows; the test rows are looked
    at once, and not at all in a trial.
    """
    if job.loss == AUTO:
        # By the labels that are shown alone: of the grid's settings only what may be tried, no
        # choice on validation rows.
        usual: dict[str, Any] = {**OVER_FEATURES, "method": AUTO, "features": "X"}
        config = Config(**usual, seed=job.seed, budget=job.training.get("budget"))
        shown = matrix.labels[torch.as_tensor(matrix.splits.train)].cpu().numpy()
        config, choice = settled(config, shown, matrix.x.shape[1])
        accelerator: Any = OneProcess(str(matrix.x.device))
        rows = matrix.splits.train
        given = (matrix.x, matrix.labels, rows, accelerator)
        config, _ = tried(config, choice, *given, groups=matrix.groups)
        alone = dataclasses.replace(matrix, splits=Splits(matrix.splits.train, NONE, NONE))
        model, epoch = trained(config, alone)
        return {"epoch": epoch, **measured(job, model, matrix)}
    config = Config(
        **{**OVER_FEATURES, **_LEAN, **job.training},
        method=job.loss,
        options=with_numbers(job.options, matrix.prior),
        features="X",
        seed=job.seed,
    )
    first, label = teacher_config(config), None
    if first is not None:
        model, _ = trained(first, matrix)
        accelerator = OneProcess(str(matrix.x.device))
        label = teacher(model, Features(matrix.x), accelerator, 2 * config.batch_size)
    model, epoch = trained(config, matrix, label)
    return {"epoch": epoch, **measured(job, model, matrix)}


def trained(config: Config, matrix: Matrix, label: Teacher | None = None) -> tuple[Classifier, int]:
    """The model of the best epoch, and which that is."""
    torch.manual_seed(config.seed)
    model = head_model(config, matrix.x.shape[1], matrix.labels.shape[1])
    # The features are standardised already, once for all runs.
    model.backbone[0] = nn.Identity()  # type: ignore[operator]
    stage = Stage(
        name="all",
        model=model,
        inputs=Features(matrix.x),
        loss=losses.create(config.method, **config.options),
        # Complete in the validation rows: no other truth is needed to choose an epoch.
        labels=matrix.labels,
        train_rows=matrix.splits.train,
        val_rows=matrix.splits.val,
        config=config,
        accelerator=OneProcess(str(matrix.x.device)),  # type: ignore[arg-type]
        epochs=config.epochs,
        lr=config.head_lr,
        head_lr=config.head_lr,
        teacher=label,
    )
    stage.run()
    best = stage.best()
    model.load_state_dict(best["model"])
    return model.eval(), int(best["epoch"])


@torch.no_grad()
def measured(job: Job, model: nn.Module, matrix: Matrix) -> dict[str, Any]:
    """Metrics on validation and, unless the run is a trial, on test; cuts from validation only."""

    def scored(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        index = torch.as_tensor(rows, device=matrix.x.device)
        scores: Tensor = torch.sigmoid(model(matrix.x[index]).double())
        return scores.cpu().numpy(), matrix.labels[index].cpu().numpy()

    scores, truth = scored(matrix.splits.val)
    fit = job.threshold == "fit"
    cuts = np.clip(thresholds.best(scores, truth), 0, 1) if fit else job.threshold
    with warnings.catch_warnings():
        # A class that occurs nowhere in a part is left out of the mean.
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        found: dict[str, Any] = {"val": evaluate(scores, truth, threshold=cuts)}
        if not job.trial:
            scores, truth = scored(matrix.splits.test)
            found["test"] = evaluate(scores, truth, threshold=cuts)
    return found


def with_numbers(options: dict[str, Any], prior: float) -> dict[str, Any]:
    """A method's options, the positives a row filled in where they are to be counted."""
    return {key: round(prior, 4) if value == PRIOR else value for key, value in options.items()}
