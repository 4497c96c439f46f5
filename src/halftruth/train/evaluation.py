"""Evaluation of a trained run: on a label file, and at the end of training."""

import math
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from accelerate import Accelerator

from halftruth.data import DataError, named_splits, read_labels
from halftruth.data.errors import some
from halftruth.labels import ABSENT, PRESENT, UNKNOWN, LabelMatrix
from halftruth.metrics import average_precision, count
from halftruth.metrics import evaluate as score_labels
from halftruth.metrics.counts import UndefinedMetricWarning
from halftruth.models import Classifier
from halftruth.presence.decisions import Decisions, decide
from halftruth.presence.estimated_scores import estimate_scores
from halftruth.presence.probabilities import Probabilities, fit_probabilities
from halftruth.train.config import Config
from halftruth.train.feature_inputs import Files
from halftruth.train.inputs import Inputs
from halftruth.train.records import count_class_histograms
from halftruth.train.run_folder import to_json
from halftruth.train.scoring import score_rows
from halftruth.train.task import Task, choose_parts, read_groups, reading_options, truth_options
from halftruth.train.trained_run import ImageSource, TrainedRun, open_run

# What the scores of some rows stand on.
VERIFIED, KNOWN_ONLY = "on complete labels", "on known labels only"
AS_ABSENT = "counting unknown as absent"
# With fewer rows there is nothing to estimate scores from.
_LEAST_ROWS = 30


class Evaluation(NamedTuple):
    """Overall metrics, a table with one row per class, and the images that could not be read.

    `footing` tells what the metrics stand on: "on complete labels", "on known labels only" or
    "counting unknown as absent". `not_predicted` are the classes that the rule never predicts.
    `estimated` are mAP, CF1 and OF1 with 90 % intervals, by the model of labelling.
    """

    metrics: dict[str, float]
    classes: pd.DataFrame
    bad: list[tuple[str, str]]
    footing: str
    not_predicted: list[str]
    # Where labels are unknown: scores that complete labels would give, as value, low, high.
    estimated: dict[str, list[float]]


def evaluate(
    run: TrainedRun | str | Path,
    labels: str | Path,
    *,
    images: ImageSource | None = None,
    features: Files | None = None,
    split: str | None = None,
    reading: dict[str, Any] | None = None,
    decide: str | None = None,
    **options: Any,
) -> Evaluation:
    """Return a run's metrics on a label file, with the decisions of training or another rule.

    Classes are matched by name. `split` selects the rows of one part ("train", "val", "test") of
    the file's split column; for the label file of training, the parts are those of training. That
    file is read as in training unless `reading` is given. `decide`: a rule such as "precision=0.9".
    Unknown labels count as absent unless `ignore_unknown=True`.
    """
    run = open_run(run)
    decisions = run.decisions if decide is None else run.decide(decide)
    options_of_file = {**_get_reading_options(run, labels), **(reading or {})}
    given = read_labels(labels, **options_of_file)
    missing = [name for name in run.classes if name not in given.classes]
    if missing:
        raise DataError(f"{labels}: classes of the run are missing in the labels: {some(missing)}")
    if extra := [name for name in given.classes if name not in run.classes]:
        warnings.warn(
            f"{labels}: the run was trained without the classes {some(extra)}; they are not "
            "evaluated",
            stacklevel=2,
        )
    values = given.values[:, [given.classes.index(name) for name in run.classes]]
    rows = np.arange(len(values)) if split is None else _select_part(run, given, labels, split)
    items = None if given.items is None else [str(given.items[row]) for row in rows]
    if features is not None or (run.config.text and images is None):
        matrix = run.read_features(features or (), given, labels, options_of_file)[rows]
        scores = run.score(features=matrix, items=items)
    else:
        if items is None:
            raise DataError(f"{labels}: there is no column with image names")
        scores = run.score(images=images, items=items, bad_images="skip")
        lost = {name for name, _ in scores.bad}
        rows = rows[[item not in lost for item in items]]
        if not len(rows):
            raise DataError(f"{labels}: none of its {len(items):,} images can be read")
    truth = values[rows]
    ignore = bool(options.get("ignore_unknown", False))
    if ignore:
        _check_negatives(truth, run.classes, labels)
    with warnings.catch_warnings():
        # A class without a positive is in the table, without an AP.
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        metrics = score_decisions(scores.probabilities, decisions, truth, **options)
        ap = average_precision(scores.probabilities, truth, ignore_unknown=ignore, empty="nan")
    counts = (truth > 0).sum(axis=0)
    table = pd.DataFrame(
        {"class": run.classes, "present": counts, "AP": ap, "threshold": decisions.thresholds}
    )
    left_out = [str(name) for name in np.array(run.classes)[~decisions.predicted]]
    footing = KNOWN_ONLY if ignore else AS_ABSENT
    footing = footing if (truth == UNKNOWN).any() else VERIFIED
    estimated = estimate(scores.probabilities, truth, decisions)
    return Evaluation(metrics, table, scores.bad, footing, left_out, estimated)


def _check_negatives(truth: np.ndarray, classes: tuple[str, ...], labels: str | Path) -> None:
    """Refuse labels without an absent one: mAP and precision would be 100 % for any scores."""
    lacking = [
        name for k, name in enumerate(classes)
        if (truth[:, k] > 0).any() and not (truth[:, k] < 0).any()
    ]  # fmt: skip
    if not (truth < 0).any():
        raise DataError(
            f"{labels}: no label is absent (-1), so with ignore_unknown (--ignore-unknown) mAP and "
            "precision would be 100 % for any scores; leave the option out (then unknown counts as "
            "absent), or give a file with absent labels (see --zero)"
        )
    if lacking:
        warnings.warn(
            f"{labels}: {len(lacking)} classes have no absent label (-1): {some(lacking)}; without "
            "unknown labels their AP is 100 % for any scores, and so mAP is too high",
            stacklevel=3,
        )


def _same_file(one: str | Path | None, other: str | Path) -> bool:
    return one is not None and Path(one).resolve() == Path(other).resolve()


def _get_reading_options(run: TrainedRun, labels: str | Path) -> dict[str, Any]:
    """Return the options with which training read this file, if it did."""
    config = run.config
    if _same_file(config.truth, labels):
        return truth_options(config)
    # Other files with the column of text are read like the one of training.
    return reading_options(config) if config.text or _same_file(config.labels, labels) else {}


def _select_part(run: TrainedRun, given: LabelMatrix, labels: str | Path, split: str) -> np.ndarray:
    if split not in ("train", "val", "test"):
        raise DataError(f"split: expected train, val or test, got {split!r}")
    config = run.config
    if _same_file(config.labels, labels) and (given.split is not None or split != "test"):
        parts = choose_parts(config, given, read_groups(config))
    elif given.split is None:
        raise DataError(f"{labels}: there is no split column, so no part {split!r}")
    else:
        parts = named_splits(given.split)
    rows: np.ndarray = getattr(parts, split)
    if not len(rows):
        raise DataError(f"{labels}: no row belongs to the part {split!r}")
    return rows


# ---------------------------------------------------------------------- the result of training


@dataclass(frozen=True)
class OutOfSample:
    """Logits of rows that the model was not fitted on."""

    rows: np.ndarray
    logits: np.ndarray


@dataclass
class Details:
    """Data for the report: settings, labels, probabilities and tables of a run."""

    config: Config
    task: Task
    # (rows, K) of each part.
    probabilities: dict[str, np.ndarray]
    classes: pd.DataFrame
    # (K, groups, bins) counts of probabilities of each part.
    histograms: dict[str, np.ndarray]
    out_of_sample: OutOfSample
    is_main_process: bool = True
    seconds: float = 0.0


@dataclass
class Result:
    """The outcome of a run, also in its result.json. Epochs are counted from 1."""

    folder: Path
    method: str
    classes: tuple[str, ...]
    best_stage: str
    best_epoch: int
    # On calibrated probabilities; 1 for a class that is not predicted.
    thresholds: list[float]
    # The rule of decisions, the curves from logits to probabilities, and the classes without
    # enough labels to be predicted.
    decide: str = "f1"
    probabilities: dict[str, Any] = field(default_factory=dict)
    not_predicted: list[str] = field(default_factory=list)
    # The number of PRESENT labels of the training rows, per class.
    shown: list[int] = field(default_factory=list)
    # Name, score, weight and seconds of each member, where the model is an ensemble.
    members: list[dict[str, Any]] = field(default_factory=list)
    # The key of metrics.jsonl by which epochs are compared, and its value in the kept epoch.
    criterion: str = ""
    best_score: float = math.nan
    val: dict[str, float] = field(default_factory=dict)
    test: dict[str, float] = field(default_factory=dict)
    # What the scores of "val" and "test" stand on: complete labels, or unknown counted as absent.
    footing: dict[str, str] = field(default_factory=dict)
    # Where labels are unknown: the scores that complete labels would give, each as value, low and
    # high end of the 90 % interval, estimated on the rows of out_of_sample.npz.
    estimated: dict[str, list[float]] = field(default_factory=dict)
    bad_images: list[tuple[str, str]] = field(default_factory=list)
    # Not written to result.json.
    details: Details | None = field(default=None, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        values = {**vars(self), "folder": str(self.folder), "classes": list(self.classes)}
        del values["details"]
        return values

    def to_json(self) -> str:
        """Return the text of result.json; a metric that is not defined becomes null."""
        return to_json(self.to_dict(), indent=1)

    def describe(self) -> str:
        """Return a summary of two to four lines."""
        lines = [f"best: stage {self.best_stage}, epoch {self.best_epoch}"] * (not self.members)
        for part, name in (("val", "validation"), ("test", "test")):
            scores = getattr(self, part)
            if scores and not math.isfinite(scores["mAP"]):
                lines.append(f"{name}: not measured, no label of these rows is present")
            elif scores:
                shown = ", ".join(f"{key} {100 * scores[key]:.2f}" for key in ("mAP", "CF1", "OF1"))
                lines.append(f"{name} ({self.footing.get(part, AS_ABSENT)}): {shown}")
        if self.estimated:
            lines.append(f"estimated for new rows: {describe_estimates(self.estimated)}")
        if self.probabilities:
            lines.append(self._describe_decisions())
        return "\n".join([*lines, f"everything is in {self.folder}"])

    def _describe_decisions(self) -> str:
        value, low, high = self.probabilities["labels_per_row"]
        text = (
            f"decisions by {self.decide}; estimated labels per row: {value:.2f} ({low:.2f} to "
            f"{high:.2f})"
        )
        if self.not_predicted:
            text += f"; not predicted: {some(self.not_predicted)}"
        return text


def evaluate_run(
    config: Config,
    task: Task,
    model: Classifier,
    inputs: Inputs,
    best: dict[str, Any],
    accelerator: Accelerator,
    out_of_sample: OutOfSample | None = None,
) -> Result:
    """Evaluate the best weights on validation and test rows, on complete labels where known.

    Probabilities are calibrated and decisions are made on rows the model was not fitted on: those
    given, or the validation rows.
    """
    model.to(accelerator.device).eval()

    def predict(rows: np.ndarray) -> np.ndarray:
        logits = score_rows(model, inputs, rows, accelerator, 2 * config.batch_size)
        # Also without rows, as many runs have no test part.
        return logits.double().cpu().numpy().reshape(len(rows), len(task.classes))

    reference = task.labels.values if task.truth is None else task.truth
    val, test = task.splits.val, task.splits.test
    logits = {"val": predict(val), "test": predict(test)}
    given = out_of_sample or OutOfSample(val, logits["val"])
    probabilities, decisions = decide_without_complete_labels(config, task, given)
    scores = {part: probabilities(values) for part, values in logits.items()}
    fitted = np.where(decisions.predicted, decisions.thresholds, 1.0)
    histograms = {
        part: count_class_histograms(
            scores[part], task.labels.values[at], None if task.truth is None else task.truth[at]
        )
        for part, at in (("val", val), ("test", test))
        if len(at)
    }
    table = make_class_table(task, reference, scores, fitted)
    result = Result(
        folder=Path(config.out),
        method=config.method,
        classes=task.classes,
        best_epoch=int(best["epoch"]) + 1,
        best_stage=best["stage"],
        thresholds=[float(value) for value in fitted],
        decide=str(decisions.rule),
        probabilities=probabilities.to_dict(),
        not_predicted=[
            name for name, is_in in zip(task.classes, decisions.predicted, strict=True) if not is_in
        ],
        shown=[int(n) for n in table["train_present"]],
        details=Details(
            config, task, scores, table, histograms, given, accelerator.is_main_process
        ),
    )
    with warnings.catch_warnings():
        # `data check` reports classes without a positive; here they are left out of the means.
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        warnings.filterwarnings("ignore", message="No class has")
        for part, at in (("val", val), ("test", test)):
            known = task.truth is not None or not (task.labels.values[at] == UNKNOWN).any()
            result.footing[part] = VERIFIED if known else AS_ABSENT
        if len(val):
            result.val = score_decisions(scores["val"], decisions, reference[val])
        if len(test):
            result.test = score_decisions(scores["test"], decisions, reference[test])
        p = probabilities(given.logits)
        result.estimated = estimate(p, task.labels.values[given.rows], decisions)
    return result


def estimate(p: np.ndarray, labels: np.ndarray, decisions: Decisions) -> dict[str, list[float]]:
    """Return estimated mAP, CF1 and OF1 of rows with unknown labels: value, low, high.

    Nothing where all labels are known, or no label is present.
    """
    if not (labels == UNKNOWN).any() or not (labels == PRESENT).any() or len(labels) < _LEAST_ROWS:
        return {}
    found = estimate_scores(p, labels, decisions(p))
    return {
        name: [float(part) for part in (score.value, score.low, score.high)]
        for name, score in (("mAP", found.mAP), ("CF1", found.CF1), ("OF1", found.OF1))
    }


def describe_estimates(estimated: dict[str, list[float]]) -> str:
    """Return estimated scores in percent, with their 90 % intervals."""
    return ", ".join(
        f"{name} {100 * value:.1f} ({100 * low:.1f} to {100 * high:.1f})"
        for name, (value, low, high) in estimated.items()
    )


def decide_without_complete_labels(
    config: Config, task: Task, given: OutOfSample
) -> tuple[Probabilities, Decisions]:
    """Fit the model of labelling to out-of-sample rows, and choose thresholds by the rule."""
    labels = task.get_selection_labels(config)
    if config.selects_on_truth and task.truth is not None:
        labels = np.where(task.truth > 0, PRESENT, ABSENT)
    probabilities = fit_probabilities(
        labels[given.rows], given.logits, labels_per_row=config.labels_per_row, seed=config.seed
    )
    shown = (task.labels.values[task.splits.train] == PRESENT).sum(axis=0)
    return probabilities, decide(probabilities(given.logits), shown, config.decide)


def score_decisions(
    probabilities: np.ndarray, decisions: Decisions, labels: np.ndarray, **options: Any
) -> dict[str, float]:
    """Return the metrics of probabilities and of the decisions that follow from them."""
    limits = np.where(decisions.predicted, decisions.thresholds, 1.0)
    found = score_labels(probabilities, labels, threshold=limits, **options)
    if decisions.rule.name == "top":
        # A class is among the best of a row or not: no threshold says which.
        chosen = decisions(probabilities).astype(float)
        by_rank = score_labels(chosen, labels, threshold=0.5, **options)
        found |= {name: by_rank[name] for name in by_rank.keys() - {"mAP"}}
    return found


def make_class_table(
    task: Task, reference: np.ndarray, scores: dict[str, np.ndarray], fitted: np.ndarray
) -> pd.DataFrame:
    """Return one row per class: its counts, its threshold, and its metrics per part.

    `*_true` counts use the complete labels, where they are known. AP and recall are NaN for a
    class without a positive in a part, precision is NaN where nothing was predicted.
    """
    rows = {"train": task.splits.train, "val": task.splits.val, "test": task.splits.test}
    columns: dict[str, Any] = {"class": list(task.classes), "threshold": fitted}
    for part, at in rows.items():
        if not len(at):
            continue
        columns[f"{part}_present"] = (task.labels.values[at] > 0).sum(axis=0)
        if task.truth is not None:
            columns[f"{part}_true"] = (task.truth[at] > 0).sum(axis=0)
        if part == "train":
            continue
        counts = count(scores[part], reference[at], fitted)
        found, present = counts.tp + counts.fp, counts.tp + counts.fn
        columns[f"{part}_AP"] = average_precision(scores[part], reference[at], empty="nan")
        columns[f"{part}_precision"] = counts.precision.where(found > 0, torch.nan).numpy()
        columns[f"{part}_recall"] = counts.recall.where(present > 0, torch.nan).numpy()
        columns[f"{part}_F1"] = counts.f_beta().where(present > 0, torch.nan).numpy()
    return pd.DataFrame(columns)
