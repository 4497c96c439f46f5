"""One run: on features in memory, or on images end to end."""

import dataclasses
import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from halftruth import losses
from halftruth.bench.jobs import PRIOR, Job
from halftruth.bench.run_data import Matrix, load_benchmark, prior_of, seen_labels, source_key
from halftruth.data import read_labels, write_labels
from halftruth.labels import ABSENT, PRESENT
from halftruth.metrics import evaluate, thresholds
from halftruth.metrics.counts import UndefinedMetricWarning
from halftruth.models import Classifier
from halftruth.presence.decisions import decide
from halftruth.presence.probabilities import fit_probabilities
from halftruth.presence.solvers import logit
from halftruth.train.config import AUTO, Config
from halftruth.train.devices import OneProcess
from halftruth.train.ensemble.fit_ensemble import fit_ensemble
from halftruth.train.inputs.batches import Features
from halftruth.train.results.run_result import score_decisions
from halftruth.train.settings import DEFAULTS_ON_FEATURES
from halftruth.train.stages import build_head
from halftruth.train.teacher import make_teacher, make_teacher_config
from halftruth.train.trainer import Stage, Teacher

# A linear head is too small for CUDA graphs or compilation to pay off.
_LEAN = {"ema": 0.99, "graphs": False, "compile": False}

NONE = np.arange(0)

Measure = Callable[[np.ndarray, np.ndarray], dict[str, float]]


def run_on_features(job: Job, matrix: Matrix) -> dict[str, Any]:
    """Train a linear head (or one with a hidden layer) and return its metrics.

    The epoch is selected on the complete labels of the validation rows. Test rows are scored once,
    and not at all in a trial.
    """
    if job.loss == AUTO:
        # It uses only the shown labels, selects nothing on validation rows, and prepares the
        # features itself, as in `train`.
        rows, device = matrix.splits.train, matrix.x.device
        groups = None if matrix.groups is None else matrix.groups[rows]
        shown = matrix.labels[torch.as_tensor(rows)].cpu().numpy()
        fitted = fit_ensemble(
            matrix.features[rows], shown, seed=job.seed, groups=groups, device=device
        )
        own = dataclasses.replace(matrix, x=torch.as_tensor(matrix.features).float().to(device))
        return {"epoch": 1, **compute_metrics(job, fitted.model.to(device), own)}
    config = Config(
        **{**DEFAULTS_ON_FEATURES, **_LEAN, **job.training},
        method=job.loss,
        options=with_numbers(job.options, matrix.prior),
        features=["X"],
        seed=job.seed,
    )
    first, label = make_teacher_config(config), None
    if first is not None:
        model, _ = train_head(first, matrix)
        accelerator = OneProcess(str(matrix.x.device))
        label = make_teacher(model, Features(matrix.x), accelerator, 2 * config.batch_size)
    model, epoch = train_head(config, matrix, label)
    return {"epoch": epoch, **compute_metrics(job, model, matrix)}


def train_head(
    config: Config, matrix: Matrix, label: Teacher | None = None
) -> tuple[Classifier, int]:
    """Train a head; return the model of the selected epoch, and that epoch (from 1)."""
    torch.manual_seed(config.seed)
    model = build_head(config, matrix.x.shape[1], matrix.labels.shape[1])
    # The features are standardised already, once for all runs.
    model.backbone[0] = nn.Identity()  # type: ignore[operator]
    stage = Stage(
        name="all",
        model=model,
        inputs=Features(matrix.x),
        loss=losses.create(config.method, **config.options),
        # Complete in the validation rows: selecting an epoch needs no other labels.
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
    return model.eval(), int(best["epoch"]) + 1


@torch.no_grad()
def compute_metrics(job: Job, model: nn.Module, matrix: Matrix) -> dict[str, Any]:
    """Metrics on validation rows and, except in a trial, on test rows."""

    def score(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        index = torch.as_tensor(rows, device=matrix.x.device)
        scores: Tensor = torch.sigmoid(model(matrix.x[index]).double())
        return scores.cpu().numpy(), matrix.labels[index].cpu().numpy()

    scores, truth = score(matrix.splits.val)
    measure = make_measure(job.threshold, scores, truth)
    with _undefined_metrics_allowed():
        found: dict[str, Any] = {"val": measure(scores, truth)}
        if not job.trial:
            # Without a test part, results are those of the validation part (see Sewer-ML).
            found["test"] = found["val"]
            if len(matrix.splits.test):
                scores, truth = score(matrix.splits.test)
                found["test"] = measure(scores, truth)
    return found


def make_measure(given: float | str, scores: np.ndarray, truth: np.ndarray) -> Measure:
    """Return what scores rows: with thresholds, or with decisions by a rule.

    Both are chosen on validation rows. A rule decides on calibrated probabilities, as in `train`.
    """
    if not isinstance(given, str) or given in ("fit", "offset"):
        limits = choose_threshold(given, scores, truth)
        return lambda scores, truth: evaluate(scores, truth, threshold=limits)
    labels = np.where(truth > 0, PRESENT, ABSENT)
    fitted = fit_probabilities(labels, logit(scores))
    decisions = decide(fitted(logit(scores)), (labels == PRESENT).sum(axis=0), given)
    return lambda scores, truth: score_decisions(fitted(logit(scores)), decisions, truth)


def choose_threshold(given: float | str, scores: np.ndarray, truth: np.ndarray) -> Any:
    """The thresholds of predictions, from validation rows where they are not a number.

    "fit": the best F1 per class. "offset": (1 + lowest prediction) / 2, for methods whose
    predictions do not start at 0 (Zhang et al. 2021, appendix B, for ROLE).
    """
    if given == "fit":
        return np.clip(thresholds.best(scores, truth), 0, 1)
    return (1 + float(scores.min())) / 2 if given == "offset" else given


@contextmanager
def _undefined_metrics_allowed() -> Iterator[None]:
    """A class without positives in a part is left out of the mean, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        yield


def with_numbers(options: dict[str, Any], prior: float) -> dict[str, Any]:
    """A method's options, with the counted number of positives per row filled in."""
    return {key: round(prior, 4) if value == PRIOR else value for key, value in options.items()}


def run_on_images(job: Job, root: Path, cache: Path, device: str) -> dict[str, Any]:
    """Train head and backbone as `halftruth train` does; images are decoded once for all runs.

    An interrupted run continues from its last checkpoint. The folder of a finished run is removed.
    """
    from halftruth.train.fit import train

    files = write_label_files(job, root, cache)
    folder = cache / "runs" / job.id
    weights = str(job.training.get("weights", "pretrained"))
    settings = {
        "cache": "disk",
        **job.training,
        "weights": weights if weights in ("pretrained", "none") else str(root / weights),
        "labels": files["observed"],
        "truth": files["truth"],
        # 0 is unknown: labels that are hidden in the training rows.
        "reading_truth": {"zero": "unknown"},
        "images": files["images"],
        "method": job.loss,
        "options": with_numbers(job.options, files["prior"]),
        "seed": job.seed,
        "device": device.split(":")[0],
        "cache_dir": str(cache),
        "workers": 0,
        "report": False,
        "out": str(folder),
    }
    if job.loss == AUTO:
        # auto uses only the shown labels: of the grid's settings it takes the model and the budget.
        given = ("backbone", "weights", "image_size", "budget")
        settings = {k: v for k, v in settings.items() if k in given or k not in job.training}
        settings["options"] = {}
    # Settings of the whole grid may have no effect for one method, such as `head_epochs`.
    config = Config(**settings)
    idle = {name for name in job.training if config.without_effect(name) is not None}
    settings = {name: value for name, value in settings.items() if name not in idle}
    result = train(settings, resume=True, quiet=True)
    found: dict[str, Any] = {"stage": result.best_stage, "epoch": result.best_epoch}
    found["val"] = result.get_observed("val")
    if not job.trial:
        found["test"] = result.get_observed("test") or found["val"]
    if job.threshold != "fit":
        found |= _evaluate_at(job, folder, files, settings["device"])
    shutil.rmtree(folder, ignore_errors=True)
    return found


def _evaluate_at(
    job: Job, folder: Path, files: dict[str, Any], device: str
) -> dict[str, dict[str, float]]:
    """Metrics of a finished run on images at the grid's threshold or by its rule.

    A threshold is on the sigmoid of the logits, as on features and in the papers.
    """
    from halftruth.train.results.trained_run import TrainedRun

    run, labels = TrainedRun(folder, device=device), read_labels(files["truth"], zero="unknown")
    assert labels.split is not None
    assert labels.items is not None
    found: dict[str, dict[str, float]] = {}
    measure: Measure | None = None
    for part in ("val",) if job.trial else ("val", "test"):
        rows = np.flatnonzero(labels.split == part)
        if not len(rows):
            found[part] = found["val"]
            continue
        items = [str(labels.items[row]) for row in rows]
        scores = run.score(images=files["images"], items=items, bad_images="fail", workers=1)
        truth = labels.values[rows]
        measure = measure or make_measure(job.threshold, scores.raw, truth)
        with _undefined_metrics_allowed():
            found[part] = measure(scores.raw, truth)
    return found


def write_label_files(job: Job, root: Path, cache: Path) -> dict[str, Any]:
    """Write the shown labels, and the complete labels of the other rows, once; return the paths."""
    folder = cache / f"labels-{source_key(job.source, job.labels, job.label_seed)}"
    notes = folder / "notes.json"
    if not notes.exists():
        folder.mkdir(parents=True, exist_ok=True)
        read = load_benchmark(job.source, job.labels, job.label_seed, root)
        shown = dataclasses.replace(read.observed, values=seen_labels(read))
        write_labels(read.observed, folder / "observed.csv")
        write_labels(shown, folder / "truth.csv")
        files = {
            "observed": str(folder / "observed.csv"),
            "truth": str(folder / "truth.csv"),
            "images": [str(path) for path in read.images],
            "prior": prior_of(read),
        }
        notes.write_text(json.dumps(files), encoding="utf-8")
    return dict(json.loads(notes.read_text(encoding="utf-8")))
