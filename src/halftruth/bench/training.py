"""Train a cell and score it: the only module of the bench that knows how `train` works."""

import json
import math
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from halftruth.bench.cells import PRIOR, Job, is_on_features
from halftruth.bench.run_data import (
    BenchRows,
    Place,
    load_benchmark,
    load_rows,
    resolve_weights,
    source_key,
)
from halftruth.metrics import evaluate, thresholds
from halftruth.metrics.counts import UndefinedMetricWarning
from halftruth.presence.solvers import sigmoid
from halftruth.train.config import AUTO, Config, load_settings
from halftruth.train.devices import OneProcess
from halftruth.train.ensemble.fit_ensemble import fit_ensemble
from halftruth.train.fit_head import HeadData, fit_head
from halftruth.train.inputs.batches import Features
from halftruth.train.run_folder import BEST
from halftruth.train.run_logger import METRICS
from halftruth.train.settings import DEFAULTS_ON_FEATURES

if TYPE_CHECKING:
    from halftruth.train.results.run_result import Result

# auto uses only the shown labels: of a grid's settings it takes the model and the budget.
_OF_AUTO = ("backbone", "weights", "image_size", "budget")


@dataclass
class Trained:
    """A trained cell: `score` returns the sigmoid of the logits (n, K) of rows, as papers do.

    facts: for its record.
    """

    facts: dict[str, Any]
    score: Callable[[np.ndarray], np.ndarray]


class Bench:
    """Runs jobs on one device, and keeps the last data sets in memory."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._kept: dict[str, BenchRows] = {}

    def rows(self, job: Job) -> BenchRows:
        """The data set of a job; the last three are kept, since jobs come ordered by data set."""
        key = source_key(job)
        rows = self._kept.pop(key) if key in self._kept else load_rows(job, self.place)
        self._kept = {**dict(list(self._kept.items())[-2:]), key: rows}
        return rows

    def do(self, what: str, job: Job) -> Any:
        """`run` a job; or `prepare` it: read its data set, so that errors come before all runs."""
        if what == "prepare":
            self.rows(job)
            return load_benchmark(job.source, job.labels, 1200, self.place.root).describe()
        started, rows = time.perf_counter(), self.rows(job)
        trained = train_cell(job, rows, self.place)
        found = {**trained.facts, **score_cell(job, trained, rows)}
        found["rows"] = [len(part) for part in vars(rows.splits).values()]
        shutil.rmtree(_run_folder(job, self.place), ignore_errors=True)
        return {**found, "seconds": round(time.perf_counter() - started, 2)}


def train_cell(job: Job, rows: BenchRows, place: Place) -> Trained:
    """Train a method on the shown labels of the training rows.

    The epoch is selected on the complete labels of the validation rows.
    """
    if not is_on_features(job.source):
        return _train_images(job, rows, place)
    return _fit_auto(job, rows) if job.loss == AUTO else _train_head(job, rows)


def score_cell(job: Job, trained: Trained, rows: BenchRows) -> dict[str, dict[str, float]]:
    """Metrics on validation rows and, except in a trial, on test rows, which are scored once.

    Without a test part, results are those of the validation part (see Sewer-ML).
    """
    parts = ("val",) if job.trial else ("val", "test")
    found: dict[str, dict[str, float]] = {}
    limits: Any = None
    for part in parts:
        index = getattr(rows.splits, part)
        if not len(index):
            found[part] = found["val"]
            continue
        scores, truth = trained.score(index), rows.labels[index]
        with warnings.catch_warnings():
            # A class without positives in a part is left out of the mean, without a warning.
            warnings.simplefilter("ignore", UndefinedMetricWarning)
            if limits is None:
                limits = choose_threshold(job.threshold, scores, truth)
            found[part] = evaluate(scores, truth, threshold=limits)
    return found


def choose_threshold(given: float | str, scores: np.ndarray, truth: np.ndarray) -> Any:
    """The thresholds of predictions, from validation rows where they are not a number.

    "fit": the best F1 per class. "offset": (1 + lowest prediction) / 2, for methods whose
    predictions do not start at 0 (Zhang et al. 2021, appendix B, for ROLE).
    """
    if given == "fit":
        return np.clip(thresholds.best(scores, truth), 0, 1)
    return (1 + float(scores.min())) / 2 if given == "offset" else given


def with_numbers(options: Mapping[str, object], prior: float) -> dict[str, Any]:
    """A method's options, with the counted number of positives per row filled in."""
    return {key: round(prior, 4) if value == PRIOR else value for key, value in options.items()}


# ---------------------------------------------------------------------- on features


def _fit_auto(job: Job, rows: BenchRows) -> Trained:
    """auto uses only the shown labels, and prepares the features itself, as in `train`."""
    train, device, x = rows.splits.train, rows.x.device, rows.features
    groups = None if rows.groups is None else rows.groups[train]
    fitted = fit_ensemble(x[train], rows.labels[train], seed=job.seed, groups=groups, device=device)
    return Trained(
        {"epoch": 1}, _scores_of(fitted.model.to(device), torch.as_tensor(x).float().to(device))
    )


def _train_head(job: Job, rows: BenchRows) -> Trained:
    """Train a linear head, or one with a hidden layer, on features in memory."""
    config = Config(
        **{**DEFAULTS_ON_FEATURES, "ema": 0.99, **job.training},
        method=job.loss,
        options=with_numbers(job.options, rows.prior),
        features=["X"],
        seed=job.seed,
    )
    # Labels are complete in the validation rows: selecting an epoch needs no other labels.
    labels = torch.from_numpy(rows.labels).to(rows.x.device)
    data = HeadData(Features(rows.x), rows.x.shape[1], labels)
    process = OneProcess(str(rows.x.device))
    fitted = fit_head(config, data, rows.splits.train, rows.splits.val, process)
    by_epoch = [round(value, 5) for value in fitted.history]
    facts = {"epoch": fitted.best_epoch, "val_by_epoch": by_epoch}
    return Trained(facts, _scores_of(fitted.model, rows.x))


def _scores_of(model: nn.Module, x: Tensor) -> Callable[[np.ndarray], np.ndarray]:
    @torch.no_grad()
    def score(rows: np.ndarray) -> np.ndarray:
        index = torch.as_tensor(rows, device=x.device)
        return torch.sigmoid(model(x[index]).double()).cpu().numpy()  # type: ignore[no-any-return]

    return score


# ---------------------------------------------------------------------- in a run folder


def _run_folder(job: Job, place: Place) -> Path:
    return place.cache / "runs" / job.id


def image_settings(
    job: Job, files: Mapping[str, object], prior: float, place: Place, out: Path
) -> dict[str, Any]:
    """Settings of `halftruth train` for a job on images, which are decoded once for all runs."""
    settings: dict[str, Any] = {
        "cache": "disk",
        "bad_images": "fail",
        **job.training,
        "weights": resolve_weights(job.training, place.root),
        **files,
        # 0 is unknown: labels that are hidden in the training rows.
        "reading_truth": {"zero": "unknown"},
        "method": job.loss,
        "options": {} if job.loss == AUTO else with_numbers(job.options, prior),
        "seed": job.seed,
        "device": place.device.split(":")[0],
        "cache_dir": str(place.cache),
        "workers": 0,
        "out": str(out),
    }
    kept = _OF_AUTO if job.loss == AUTO else job.training
    settings = {k: v for k, v in settings.items() if k in kept or k not in job.training}
    # Settings of the whole grid may have no effect for one method, such as `head_epochs`.
    config = Config(**settings)
    idle = {name for name in job.training if config.without_effect(name) is not None}
    return {name: value for name, value in settings.items() if name not in idle}


def _train_images(job: Job, rows: BenchRows, place: Place) -> Trained:
    """Train head and backbone as `halftruth train` does."""
    assert rows.files is not None
    settings = image_settings(job, rows.files, rows.prior, place, _run_folder(job, place))
    result = train_run(settings)
    details = result.details
    assert details is not None
    order = np.concatenate(list(details.parts.values()))
    scores = sigmoid(np.concatenate([details.logits[part] for part in details.parts]))
    place_of = np.full(len(rows.labels), -1)
    place_of[order] = np.arange(len(order))
    text = (result.folder / METRICS).read_text(encoding="utf-8")
    by_epoch = [round(json.loads(line).get("select", math.nan), 5) for line in text.splitlines()]
    return Trained(
        {"stage": result.best_stage, "epoch": result.best_epoch, "val_by_epoch": by_epoch},
        lambda index: np.asarray(scores[place_of[index]]),
    )


def train_run(
    settings: Config | dict[str, Any],
    keep: Iterable[int] = (),
    on_epoch: Callable[[dict[str, object]], None] | None = None,
) -> "Result":
    """Train as `halftruth train` does, or continue the interrupted run in the folder `out`.

    on_epoch: is called with the record of each epoch. keep: epochs whose weights are copied to
    folders beside it (OUT-epoch-3). With either, a run starts anew.
    """
    from halftruth.train.run import Run, train

    if isinstance(settings, Config):
        return Run(settings, quiet=True, on_epoch=on_epoch).go()
    settings = {"report": False, **settings}
    folder, epochs = Path(settings["out"]), set(keep)
    if not epochs:
        return train(settings, resume=True, quiet=True)

    def copy(record: Mapping[str, object]) -> None:
        if record["epoch"] in epochs:
            copied = epoch_folder(folder, record["epoch"])
            copied.mkdir(parents=True, exist_ok=True)
            for name in ("config.yaml", BEST):
                shutil.copy(folder / name, copied / name)

    # Every epoch is kept in turn, so that its weights can be copied.
    settings |= {"select": "last", "patience": None}
    return train_run(load_settings(None, settings), on_epoch=copy)


def epoch_folder(folder: Path, epoch: int) -> Path:
    """The copy of a run folder after an epoch."""
    return folder.with_name(f"{folder.name}-epoch-{epoch}")
