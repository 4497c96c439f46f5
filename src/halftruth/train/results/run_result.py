"""The result of a run: scores, decisions and estimates at the end of training."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from accelerate import Accelerator

from halftruth.data.errors import some
from halftruth.data.label_files import read_parents
from halftruth.labels import ABSENT, PRESENT, UNKNOWN
from halftruth.metrics import average_precision, count
from halftruth.metrics import evaluate as score_labels
from halftruth.metrics.counts import UndefinedMetricWarning
from halftruth.presence.decisions import Decisions, expect, fit_decisions
from halftruth.presence.estimated_scores import EstimatedScores, estimate_scores
from halftruth.presence.labelling_model import PresenceRange
from halftruth.presence.probabilities import Probabilities
from halftruth.presence.propensity import LabelBias, find_preference
from halftruth.presence.ranking import NoRankingError
from halftruth.presence.solvers import sigmoid
from halftruth.train.auto.label_bias import (
    ROWS_TO_LABEL,
    collect_bias_facts,
    describe_details,
    find_rows_to_label,
)
from halftruth.train.config import GIVEN, Config
from halftruth.train.ensemble.hints import combine_with_hints
from halftruth.train.fitted import FittedModel
from halftruth.train.label_priors import parse_label_priors
from halftruth.train.records import count_class_histograms
from halftruth.train.results.output_tables import to_csv_text
from halftruth.train.run_folder import OUT_OF_SAMPLE, to_json
from halftruth.train.scored_rows import HELD_OUT, PARTS, ScoredRows
from halftruth.train.scoring import score_rows
from halftruth.train.settings import PLANS
from halftruth.train.task import Task

# What the scores of some rows stand on.
VERIFIED, KNOWN_ONLY = "on complete labels", "on known labels only"
UNKNOWN_AS_ABSENT, ESTIMATED = "counting unknown as absent", "estimated"
SHOWN = ("mAP", "CF1", "OF1")
ONLY_SHOWN = (
    "every row shows a label, so rows that show none are taken for left out "
    "(--unlabelled-rows kept: every row of the data is there)"
)
# With fewer rows there is nothing to estimate scores from.
LEAST_ROWS = 30


@dataclass
class Details:
    """Data for the report: settings, labels, probabilities and tables of a run."""

    config: Config
    task: Task
    # The rows of each part, their logits and their probabilities (rows, K).
    parts: dict[str, np.ndarray]
    logits: dict[str, np.ndarray]
    probabilities: dict[str, np.ndarray]
    classes: pd.DataFrame
    out_of_sample: ScoredRows
    is_main_process: bool = True
    seconds: float = 0.0

    @property
    def held(self) -> str:
        """The part that the model was not fitted on: validation or out-of-sample rows."""
        return "val" if "val" in self.parts else HELD_OUT


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
    # Expected precision, recall and labels per row of the decisions, in words.
    expected: str = ""
    not_predicted: list[str] = field(default_factory=list)
    # The number of PRESENT labels of the training rows, per class.
    shown: list[int] = field(default_factory=list)
    # Name, score, weight and seconds of each member, where the model is an ensemble.
    members: list[dict[str, Any]] = field(default_factory=list)
    # Where the run has hints: their files, the classes of their columns, weights, and a table.
    hints: dict[str, Any] = field(default_factory=dict)
    # The key of metrics.jsonl by which epochs are compared, and its value in the kept epoch.
    criterion: str = ""
    best_score: float = math.nan
    # Scores of rows with complete labels; empty where labels are unknown. An ensemble without
    # validation rows has those of out-of-sample rows instead.
    val: dict[str, float] = field(default_factory=dict)
    out_of_sample: dict[str, float] = field(default_factory=dict)
    test: dict[str, float] = field(default_factory=dict)
    # The scores that these parts would have if unknown labels were absent; never shown.
    counting_unknown_as_absent: dict[str, dict[str, float]] = field(default_factory=dict)
    # What is known of each part: "on complete labels", or "estimated".
    basis: dict[str, str] = field(default_factory=dict)
    # Where labels are unknown: the scores that complete labels would give, each as value, low and
    # high end of the 90 % interval, estimated on the rows of out_of_sample.npz.
    estimated: dict[str, list[float]] = field(default_factory=dict)
    # Whether labels look biased: the tests and their facts (docs/explained/bias.md).
    label_bias: dict[str, Any] = field(default_factory=dict)
    bad_images: list[tuple[str, str]] = field(default_factory=list)
    # With many classes, the number of frequent ones for which scores are estimated; 0: all.
    estimated_classes: int = 0
    # Not written to result.json: the files beside it (a text, or arrays), and data for the report.
    files: dict[str, str | dict[str, Any]] = field(default_factory=dict, repr=False, compare=False)
    details: Details | None = field(default=None, repr=False, compare=False)

    def get_observed(self, part: str) -> dict[str, float]:
        """Return the scores of a part on its labels, where unknown ones count as absent.

        `part`: val, out_of_sample or test; {} if the run has no such rows.
        """
        return getattr(self, part) or self.counting_unknown_as_absent.get(part, {})

    def add_scores(self, part: str, found: dict[str, float], basis: str) -> None:
        """Add the observed scores of a part; they are measured only if its labels are complete."""
        self.basis[part] = basis
        if basis == VERIFIED:
            setattr(self, part, found)
        else:
            self.counting_unknown_as_absent[part] = found

    def to_dict(self) -> dict[str, object]:
        values = {**vars(self), "folder": str(self.folder), "classes": list(self.classes)}
        del values["details"], values["files"]
        return values

    def to_json(self) -> str:
        """Return the text of result.json; a metric that is not defined becomes null."""
        return to_json(self.to_dict(), indent=1)

    def describe(self) -> str:
        """Return a summary of two to four lines."""
        at_once = self.members or self.method in (*PLANS, GIVEN)
        lines = [] if at_once else [f"best: stage {self.best_stage}, epoch {self.best_epoch}"]
        for part, name in PARTS.items():
            scores = getattr(self, part)
            if scores and not math.isfinite(scores["mAP"]):
                lines.append(f"{name}: not measured, no label of these rows is present")
            elif scores:
                shown = ", ".join(f"{key} {100 * scores[key]:.2f}" for key in SHOWN)
                lines.append(f"{name} ({VERIFIED}): {shown}")
            lines += [f"{name}, {line}" for line in describe_precision(self, part)]
        if self.hints:
            lines.append("hints: " + "\n       ".join(self.hints["table"]))
        if self.estimated:
            few = f" and the {self.estimated_classes:,} most frequent classes"
            rows = "new rows" + few * bool(self.estimated_classes)
            lines.append(f"estimated for {rows}: {describe_estimates(self.estimated)}")
        elif ESTIMATED in self.basis.values() and not self.probabilities.get("not_known"):
            lines.append("labels are incomplete, and too few to estimate scores")
        if self.probabilities:
            lines.append(self._describe_decisions())
        lines += describe_details(self.label_bias)
        return "\n".join([*lines, f"everything is in {self.folder}"])

    def _describe_decisions(self) -> str:
        value, low, high = self.probabilities["labels_per_row"]
        count = f"{value:.2f} ({low:.2f} to {high:.2f})"
        reason = self.probabilities.get("not_known")
        if reason and low < high:
            count = f"not known ({low:.2f} to {high:.2f})"
        text = f"decisions by {self.decide}; estimated labels per row: {count}"
        if reason:
            text = f"WARNING: scores are not estimated: {reason}.\n{text}"
        if self.probabilities.get("only_shown"):
            text += f"; {ONLY_SHOWN}"
        if self.not_predicted:
            text += f"; not predicted: {some(self.not_predicted)}"
        return f"{text}\n{self.expected}" if self.expected else text


def describe_precision(result: Result, part: str) -> list[str]:
    """Return the precision of the first predictions of a part as text, where it is known."""
    complete = result.basis.get(part) == VERIFIED
    bases = {
        "P@": VERIFIED if complete else f"{UNKNOWN_AS_ABSENT}, so at least",
        "PSP@": "estimated by assumed propensities",
    }
    found = {name: v for name, v in result.get_observed(part).items() if math.isfinite(v)}
    texts = {
        start: ", ".join(f"{k} {100 * v:.1f}" for k, v in found.items() if k.startswith(start))
        for start in bases
    }
    return [f"{basis}: {texts[start]}" for start, basis in bases.items() if texts[start]]


def make_result(
    config: Config,
    task: Task,
    best: Mapping[str, Any],
    probabilities: Probabilities,
    decisions: Decisions,
    shown: np.ndarray,
    held: np.ndarray,
) -> Result:
    """Return the result without scores. `best`: the checkpoint; `shown`: see `Result`.

    `held`: logits of rows that the model was not fitted on.
    """
    limits = np.where(decisions.predicted, decisions.thresholds, 1.0)
    expected = expect(decisions, probabilities(held), probabilities)
    return Result(
        folder=Path(config.out),
        method=config.method,
        classes=task.classes,
        best_epoch=int(best["epoch"]) + 1,
        best_stage=best["stage"],
        thresholds=[float(value) for value in limits],
        decide=str(decisions.rule),
        probabilities=probabilities.to_dict(),
        expected="" if expected is None else expected.describe(),
        not_predicted=[task.classes[k] for k in np.flatnonzero(~decisions.predicted)],
        shown=[int(n) for n in shown],
        members=best.get("members", []),
    )


def read_label_bias(best: Mapping[str, Any]) -> LabelBias | None:
    """Return the label bias that the ensemble of a checkpoint has found; None if not tested."""
    found = best.get("label_bias")
    return None if found is None else LabelBias(**found)


def evaluate_run(
    config: Config, task: Task, fitted: FittedModel, accelerator: Accelerator
) -> Result:
    """Evaluate a fitted model on validation and test rows, on complete labels where known.

    Probabilities are calibrated and decisions are made on rows the model was not fitted on: those
    that it comes with, or the validation rows. Without validation rows, the former are evaluated,
    too.
    """
    best, model, out_of_sample = fitted.facts, fitted.model, fitted.scored_rows
    model.to(accelerator.device).eval()

    def predict(rows: np.ndarray) -> np.ndarray:
        logits = score_rows(model, fitted.inputs, rows, accelerator, 2 * config.batch_size)
        return logits.double().cpu().numpy()

    reference = task.labels.values if task.truth is None else task.truth
    named = {"val": task.splits.val, "test": task.splits.test}
    if out_of_sample is not None and not (reference[named["val"]] == PRESENT).any():
        # Nothing can be measured or estimated on them.
        del named["val"]
    parts = {part: rows for part, rows in named.items() if len(rows)}
    logits = {part: predict(rows) for part, rows in parts.items()}
    given = out_of_sample or ScoredRows.of(task.labels, parts["val"], logits["val"])
    given, logits, hints = combine_with_hints(task, given, logits)
    if "val" not in parts:
        parts = {HELD_OUT: given.rows, **parts}
        logits = {HELD_OUT: given.logits, **logits}
    bias = read_label_bias(best)
    probabilities, decisions, present = decide_without_complete_labels(config, task, given, bias)
    scores = {part: probabilities(values) for part, values in logits.items()}
    # As per epoch, and as in the papers: of the sigmoid, before calibration.
    histograms: dict[str, object] = {
        part: count_class_histograms(
            sigmoid(logits[part]),
            task.labels.values[at],
            None if task.truth is None else task.truth[at],
        )
        for part, at in parts.items()
    }
    basis = {
        part: VERIFIED
        if task.truth is not None or not (reference[at] == UNKNOWN).any()
        else ESTIMATED
        for part, at in parts.items()
    }
    table = make_class_table(task, reference, parts, scores, decisions, basis, present)
    result = make_result(
        config, task, best, probabilities, decisions, table["train_present"].to_numpy(),
        given.logits,
    )  # fmt: skip
    result.hints = hints
    result.files = {
        "classes.csv": to_csv_text(table),
        "class_histograms.npz": histograms,
        OUT_OF_SAMPLE: given.to_arrays(),
    }
    result.details = Details(
        config, task, parts, logits, scores, table, given, accelerator.is_main_process
    )
    with warnings.catch_warnings():
        # `data check` reports classes without a positive; here they are left out of the means.
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        warnings.filterwarnings("ignore", message="No class has")
        for part, at in parts.items():
            result.add_scores(
                part, score_decisions(scores[part], decisions, reference[at]), basis[part]
            )
        p = probabilities(given.logits)
        kin = None if task.groups is None else task.groups[given.rows]
        found = estimate(p, given.labels, decisions, present, groups=kin, quiet=True)
        result.estimated = list_estimates(found)
    _add_label_bias(result, task, given, p, decisions, bias)
    return result


def _add_label_bias(
    result: Result,
    task: Task,
    given: ScoredRows,
    p: np.ndarray,
    decisions: Decisions,
    bias: LabelBias | None,
) -> None:
    """Add whether labels look biased, and the rows that would settle it.

    `given`, `p`: the rows that the model was not fitted on, and their probabilities.
    """
    chosen, labels = decisions(p), given.labels
    facts = collect_bias_facts(task.classes, task.labels.values, task.given, labels, chosen, bias)
    rows = find_rows_to_label(facts, labels, p)
    if len(rows):
        facts["rows_to_label"] = len(rows)
        items, at = task.labels.items, given.rows[rows]
        names = at + 1 if items is None else items[at]
        result.files[ROWS_TO_LABEL] = "".join(f"{name}\n" for name in names)
    result.label_bias = facts


def estimate(
    p: np.ndarray,
    labels: np.ndarray,
    decisions: Decisions,
    present: PresenceRange | None = None,
    *,
    groups: np.ndarray | None = None,
    quiet: bool = False,
) -> EstimatedScores | None:
    """Return estimated scores of rows with unknown labels.

    `present`: P(present) of every label, if the model of labelling was fitted to these rows;
    `groups`: of rows that are not independent. None
    where all labels are known, no label is present, rows are too few, or the scores do not rank the
    shown labels, with a warning unless `quiet`.
    """
    if not (labels == UNKNOWN).any() or not (labels == PRESENT).any() or len(labels) < LEAST_ROWS:
        return None
    try:
        return estimate_scores(p, labels, decisions(p), present, groups=groups)
    except NoRankingError as error:
        if not quiet:
            warnings.warn(f"scores are not estimated: {error}", stacklevel=2)
        return None


def list_estimates(found: EstimatedScores | None) -> dict[str, list[float]]:
    """Return mAP, CF1, OF1, and precision and recall over all labels, each as value, low, high."""
    scores = () if found is None else (found.mAP, found.CF1, found.OF1, found.OP, found.OR)
    names = (*SHOWN, "OP", "OR")
    return {
        name: [float(part) for part in (score.value, score.low, score.high)]
        for name, score in zip(names, scores, strict=False)
    }


def describe_estimates(estimated: dict[str, list[float]], names: tuple[str, ...] = SHOWN) -> str:
    """Return estimated scores in percent, with their 90 % intervals."""
    return ", ".join(
        f"{name} {100 * value:.1f} ({100 * low:.1f} to {100 * high:.1f})"
        for name, (value, low, high) in estimated.items()
        if name in names
    )


def decide_without_complete_labels(
    config: Config, task: Task, given: ScoredRows, bias: LabelBias | None = None
) -> tuple[Probabilities, Decisions, PresenceRange]:
    """Fit the model of labelling to out-of-sample rows, and choose thresholds by the rule.

    Also returns P(present) of every label of these rows.
    """
    labels, verified, exponent = task.get_selection_labels(config), None, None
    if config.selects_on_truth and task.truth is not None:
        labels = np.where(task.truth > 0, PRESENT, ABSENT)
    elif task.given is not None:
        verified = np.where(task.given == labels, UNKNOWN, labels)[given.rows]
        exponent = find_preference(task.given, task.labels.values).told
        labels = task.given
    shares, complete = parse_label_priors(
        task.labels.values, task.classes, config.prevalence, config.complete_classes,
        config.labels_per_row,
    )  # fmt: skip
    # Labels of test rows say nothing about the others.
    learnt = np.union1d(task.splits.train, task.splits.val)
    probabilities, decisions, propensity = fit_decisions(
        labels[learnt], np.searchsorted(learnt, given.rows), given.logits,
        shown=(task.labels.values[task.splits.train] == PRESENT).sum(axis=0), rule=config.decide,
        bias=bias, exponent=exponent, verified=verified, prevalence=shares, complete=complete,
        labels_per_row=config.labels_per_row, unlabelled_rows=config.unlabelled_rows,
        groups=None if task.groups is None else task.groups[given.rows],
        parents=read_parents(config.reading.get("hierarchy"), task.classes), seed=config.seed,
    )  # fmt: skip
    present = probabilities.infer(
        labels[given.rows], given.logits, verified=verified, propensity=propensity
    )
    return probabilities, decisions, present


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
    task: Task,
    reference: np.ndarray,
    parts: dict[str, np.ndarray],
    scores: dict[str, np.ndarray],
    decisions: Decisions,
    basis: dict[str, str],
    present: PresenceRange,
) -> pd.DataFrame:
    """Return one row per class: its counts, its threshold, and its metrics per part.

    `parts`: the rows of each. `present`: P(present) of the labels of the out-of-sample rows.

    `*_true` counts use the complete labels, where they are known. Metrics are estimated on parts
    with unknown labels. AP and recall are NaN for a class without a positive in a part, precision
    is NaN where nothing was predicted.
    """
    limits = np.where(decisions.predicted, decisions.thresholds, 1.0)
    columns: dict[str, Sequence[object] | np.ndarray] = {
        "class": list(task.classes),
        "threshold": limits,
    }
    for part, at in {"train": task.splits.train, **parts}.items():
        columns[f"{part}_present"] = (task.labels.values[at] > 0).sum(axis=0)
        if task.truth is not None:
            columns[f"{part}_true"] = (task.truth[at] > 0).sum(axis=0)
        if part == "train":
            continue
        if basis[part] == VERIFIED:
            found = _score_classes(scores[part], reference[at], limits)
        else:
            known = present if part == HELD_OUT and task.truth is None else None
            found = _estimate_classes(scores[part], reference[at], decisions, known)
        columns |= {f"{part}_{name}": values for name, values in found.items()}
    return pd.DataFrame(columns)


def _score_classes(p: np.ndarray, labels: np.ndarray, limits: np.ndarray) -> dict[str, np.ndarray]:
    counts = count(p, labels, limits)
    found, present = counts.tp + counts.fp, counts.tp + counts.fn
    return {
        "AP": np.asarray(average_precision(p, labels, empty="nan")),
        "precision": counts.precision.where(found > 0, torch.nan).numpy(),
        "recall": counts.recall.where(present > 0, torch.nan).numpy(),
        "F1": counts.f_beta().where(present > 0, torch.nan).numpy(),
    }


def _estimate_classes(
    p: np.ndarray, labels: np.ndarray, decisions: Decisions, present: PresenceRange | None
) -> dict[str, np.ndarray]:
    found = estimate(p, labels, decisions, present, quiet=True)
    none = np.full(labels.shape[1], np.nan)
    if found is None:
        return dict.fromkeys(("AP", "precision", "recall", "F1"), none)
    chosen, shown = decisions(p).any(axis=0), (labels == PRESENT).any(axis=0)
    return {
        "AP": np.where(shown, found.ap[:, 0], np.nan),
        "precision": np.where(chosen & shown, found.precision[:, 0], np.nan),
        "recall": np.where(shown, found.recall[:, 0], np.nan),
        "F1": np.where(shown, found.f1[:, 0], np.nan),
    }
