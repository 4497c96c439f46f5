"""A run with many classes: fit, metrics, decisions, predictions, without an (N, K) matrix."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from halftruth.data import DataError
from halftruth.data.memory import check_memory, format_bytes, get_free_memory
from halftruth.data.readers.label_lists import join_names
from halftruth.labels import ABSENT, PRESENT, UNKNOWN, SparseLabels
from halftruth.metrics import average_precision, propensities
from halftruth.metrics.by_blocks import RowBlockMetrics
from halftruth.models import Classifier
from halftruth.models.many_classes import ManyClassHead, build_many_classes
from halftruth.presence.decisions import LEAST_SHOWN, Decisions, Rule
from halftruth.presence.decisions import decide as choose_thresholds
from halftruth.train.config import Config
from halftruth.train.many_classes.fit_many import (
    BLOCK,
    NEIGHBOUR_ROWS,
    fit_many_classes,
    prepared_blocks,
)
from halftruth.train.many_classes.missing_labels import (
    estimate_frequent,
    score_blocks,
    set_labels_per_row,
)
from halftruth.train.results.output_tables import to_csv_text
from halftruth.train.results.run_result import UNKNOWN_AS_ABSENT, VERIFIED, Result
from halftruth.train.run_folder import OUT_OF_SAMPLE
from halftruth.train.task import Task

# The stage and the key of the layout of a run with many classes.
MANY = "many_classes"
# Said at the start of a run, since nothing may be left out silently.
LEFT_OUT = (
    "left out with so many classes: thresholds per class, scores of rare classes estimated for "
    "complete labels, report.html, audit"
)
# Smaller probabilities are not stored for the choice of a threshold.
_LEAST_PROBABILITY = 1e-3
_TOP, _POOL_ROWS = 10, 1_000
# More labels are not measured at the end of training, but a random part of the rows.
_MEASURED_CELLS = 300_000_000
# Numbers of a block of classes for all rows.
_CLASS_BLOCK = 10_000_000


def fit_many_to_task(
    config: Config, task: Task, log: Callable[[str], None]
) -> tuple[Classifier, dict[str, Any]]:
    """Fit the model of many classes; return it and what its checkpoint has beside."""
    labels, features = task.labels, task.features
    assert features is not None
    fitted = fit_many_classes(
        features, labels.sparse, task.splits.train, task.splits.val, seed=config.seed,
        weights=labels.weights, log=log,
        one_scale=None if task.encoder is None else task.encoder.one_scale,
    )  # fmt: skip
    log("many classes: " + "; ".join(fitted.notes))
    set_labels_per_row(
        fitted.head, features, labels.sparse, task.splits.val, config.labels_per_row, log
    )
    return fitted.model, {"layout": {MANY: fitted.head.layout}, "rows": len(task.splits.train)}


def load_many(best: dict[str, Any], task: Task) -> Classifier:
    """Return the model of many classes of a checkpoint."""
    assert task.features is not None
    dim, count = task.features.shape[1], len(task.classes)
    model = build_many_classes(dim, count, best["layout"][MANY])
    model.load_state_dict(best["model"])
    return model.eval().requires_grad_(False)


# ---------------------------------------------------------------------- decisions


def pool_probabilities(head: ManyClassHead, features: Any, rows: np.ndarray) -> np.ndarray:
    """Return the larger probabilities of all classes and some rows, by which decisions are made."""
    if len(rows) > _POOL_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(rows, _POOL_ROWS, replace=False))
    pooled = [np.zeros(0, np.float32)]
    for _, p in score_blocks(head, features, rows):
        pooled += [p[p > _LEAST_PROBABILITY].numpy(), p.max(dim=1).values.numpy()]
    return np.concatenate(pooled)


def decide_many(pooled: np.ndarray, shown: np.ndarray, rule: str | Rule) -> Decisions:
    """Return decisions with one threshold for all classes; most have too few labels for their own.

    `shown`: PRESENT labels per class of the training rows; a class with none is not predicted.
    """
    check_many_rule(rule)
    one = choose_thresholds(pooled[:, None], np.array([LEAST_SHOWN]), rule)
    predicted = (np.asarray(shown) >= LEAST_SHOWN) & bool(one.predicted[0])
    return Decisions(one.rule, np.full(len(shown), one.thresholds[0]), predicted)


def check_many_rule(rule: str | Rule) -> None:
    """Refuse a cut of the sigmoid: these models have no logits, only one curve of probabilities."""
    if str(rule).strip().startswith("score"):
        raise DataError(f"decide: {rule} has no effect with so many classes; use threshold=...")


def choose_classes(p: Tensor, decisions: Decisions) -> Tensor:
    """Return which classes are predicted, (B, K)."""
    allowed = torch.from_numpy(decisions.predicted)
    chosen = (p > torch.from_numpy(decisions.thresholds).to(p.dtype)) & allowed
    if decisions.rule.name == "top":
        count = min(int(decisions.rule.number), p.shape[1])
        best = torch.where(allowed, p, -1.0).topk(count, dim=1).indices
        chosen &= torch.zeros_like(chosen).scatter(1, best, True)
    return chosen


# ---------------------------------------------------------------------- metrics


def measure_many(
    head: ManyClassHead,
    features: Any,
    rows: np.ndarray,
    labels: SparseLabels,
    decisions: Decisions,
    propensity: np.ndarray,
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Return metrics of some rows, and numbers per class: present, AP, precision and recall.

    `labels`: those of all rows. Labels that are not PRESENT count as absent.
    """
    metrics = RowBlockMetrics(propensity)
    for some, p in score_blocks(head, features, rows):
        given = torch.from_numpy(labels.to_dense(some))
        metrics.add(p, given, choose_classes(p, decisions))
    ap = measure_average_precision(head, features, rows, labels)
    right, predicted, present = (
        x.double().numpy() for x in (metrics.right, metrics.predicted, metrics.present)
    )
    with np.errstate(invalid="ignore"):
        table = {
            "present": present.astype(int), "AP": ap, "precision": right / predicted,
            "recall": right / present,
        }  # fmt: skip
    mean = float(np.nanmean(ap)) if np.isfinite(ap).any() else float("nan")
    return {"mAP": mean, **metrics.compute()}, table


@torch.no_grad()
def measure_average_precision(
    head: ManyClassHead, features: Any, rows: np.ndarray, labels: SparseLabels
) -> np.ndarray:
    """(K,) the AP per class, by blocks of classes; NaN without a PRESENT label."""
    some, count = labels.select(rows), labels.classes
    prepared, index, weight = [], [], []
    for _, x in prepared_blocks(head, features, rows):
        found = head.find_neighbours(x)
        prepared.append(x)
        index.append(found[0])
        weight.append(found[1])
    found = torch.cat(index), torch.cat(weight)
    x, ap = torch.cat(prepared), np.full(count, np.nan)
    size = max(_CLASS_BLOCK // max(len(rows), 1), 1)
    for low in range(0, count, size):
        high = min(low + size, count)
        given = some.to_dense(classes=slice(low, high))
        filled = np.flatnonzero((given == PRESENT).any(axis=0))
        if len(filled):
            scores = head.score_classes(x, found, low, high)[:, torch.from_numpy(filled)]
            ap[low + filled] = average_precision(scores.numpy(), given[:, filled], empty="nan")
    return ap


def evaluate_many(config: Config, task: Task, head: ManyClassHead) -> Result:
    """Return the result, with the probabilities by which decisions are made and a class table."""
    given: Any = task.labels
    reference: Any = given.sparse if task.truth is None else task.truth
    train, features = task.splits.train, task.features
    shown = given.sparse.select(train).count_per_class()
    pooled = pool_probabilities(head, features, task.splits.val)
    decisions = decide_many(pooled, shown, config.decide)
    limits = np.where(decisions.predicted, decisions.thresholds, 1.0)
    columns: dict[str, Any] = {
        "class": list(task.classes), "threshold": limits, "train_present": shown
    }  # fmt: skip
    complete = reference.rest == ABSENT and not (reference.codes == UNKNOWN).any()
    result = Result(
        folder=Path(config.out),
        method=config.method,
        classes=task.classes,
        best_epoch=1,
        best_stage=MANY,
        thresholds=[float(value) for value in limits],
        decide=str(decisions.rule),
        not_predicted=[task.classes[k] for k in np.flatnonzero(~decisions.predicted)],
        shown=[int(n) for n in shown],
    )
    propensity = propensities(shown, max(len(train), 3))
    parts = {"val": "", "test": ""}
    for part, at in (("val", task.splits.val), ("test", task.splits.test)):
        if not len(at):
            continue
        if (most := max(_MEASURED_CELLS // len(shown), 1_000)) < len(at):
            parts[part] = f" ({most:,} of {len(at):,} rows)"
            at = np.sort(np.random.default_rng(config.seed).choice(at, most, replace=False))
        found, table = measure_many(head, features, at, reference, decisions, propensity)
        columns |= {f"{part}_{name}": values for name, values in table.items()}
        result.basis[part] = VERIFIED if complete else UNKNOWN_AS_ABSENT
        if complete:
            setattr(result, part, found)
        else:
            result.counting_unknown_as_absent[part] = found
    result.many_classes = _describe(result, float(limits.min()), parts)
    if not complete and reference.rest == UNKNOWN:
        text = estimate_frequent(head, features, reference, task.splits.val, decisions)
        result.many_classes += [f"validation, {text}"] if text else []
    classes = to_csv_text(pd.DataFrame(columns))
    result.files = {"classes.csv": classes, OUT_OF_SAMPLE: {"pooled": pooled}}
    return result


def describe_metrics(metrics: dict[str, float], complete: bool) -> list[str]:
    """Return the metrics of many classes as text, each with the labels that it is measured on."""
    precision, scored = (
        ", ".join(
            f"{name} {100 * value:.1f}"
            for name, value in metrics.items()
            if name.startswith(start) and np.isfinite(value)
        )
        for start in ("P@", "PSP@")
    )
    basis = VERIFIED if complete else f"{UNKNOWN_AS_ABSENT}, so at least"
    others = ", ".join(f"{name} {100 * metrics[name]:.1f}" for name in ("mAP", "CF1", "OF1"))
    lines = [f"{basis}: {precision}", f"estimated by assumed propensities: {scored}"]
    return [*lines, others] if complete else lines


def _describe(result: Result, threshold: float, parts: dict[str, str]) -> list[str]:
    lines = []
    for part, name in (("val", "validation"), ("test", "test")):
        if found := result.get_observed(part):
            texts = describe_metrics(found, result.basis[part] == VERIFIED)
            lines += [f"{name}{parts[part]}, {line}" for line in texts]
    text = f"decisions by {result.decide}"
    if not text.startswith("decisions by top"):
        text += f", threshold {threshold:.3f} for all classes"
    if count := len(result.not_predicted):
        text += f"; not predicted, since no label shows them: {count:,} classes"
    return [*lines, text]


def describe_many_memory(task: Task) -> str | None:
    """Return a line with the expected memory of a run with many classes; None where it is little.

    A run that cannot fit is refused.
    """
    labels, features = task.labels, task.features
    assert features is not None
    (rows, dim), count = features.shape, len(labels.classes)
    mapped = isinstance(features, np.memmap) or isinstance(features.base, np.memmap)
    parts = {
        "features": 0.0 if mapped else 4.0 * rows * dim,
        "labels": 20.0 * len(labels.sparse.columns),
        # Weights, two moments, the model, its checkpoint.
        "model": 4.0 * 5 * count * dim,
        "similar rows": 4.0 * 2 * min(rows, NEIGHBOUR_ROWS) * dim,
        # A block has at most the validation rows, about a fifth of all.
        "blocks of scores": 4.0 * 60 * min(BLOCK, rows / 5 * max(count, min(rows, NEIGHBOUR_ROWS))),
    }
    total = sum(parts.values())
    check_memory(
        total - parts["features"] - parts["labels"],
        f"training on {rows:,} rows x {count:,} classes",
        "use fewer classes or features",
    )
    if total < 500e6:
        return None
    shown = ", ".join(f"{name} {format_bytes(size)}" for name, size in parts.items() if size > 1e7)
    return f"memory: about {format_bytes(total)} ({shown}); {format_bytes(get_free_memory())} free"


# ---------------------------------------------------------------------- predictions


@dataclass
class ManyScores:
    """Rows to be scored; the (N, K) logits and probabilities are computed only if asked for."""

    items: list[str]
    features: Any
    head: ManyClassHead
    bad: list[tuple[str, str]] = field(default_factory=list)

    @property
    def probabilities(self) -> np.ndarray:
        """The dense probabilities; refused where memory does not suffice."""
        check_memory(
            8.0 * len(self.items) * self.head.num_classes,
            f"scores of {len(self.items):,} rows x {self.head.num_classes:,} classes",
            "use predict, which keeps the most probable classes, or score fewer rows at a time",
        )
        blocks = score_blocks(self.head, self.features, np.arange(len(self.items)))
        return np.concatenate([p.double().numpy() for _, p in blocks])

    @property
    def logits(self) -> np.ndarray:
        """The dense logits."""
        p = np.clip(self.probabilities, 1e-12, 1 - 1e-12)
        return np.log(p) - np.log1p(-p)

    raw = probabilities


def make_top_table(
    scores: ManyScores, classes: Sequence[str], decisions: Decisions
) -> pd.DataFrame:
    """Return one row per item: predicted labels, and the most probable classes with probabilities.

    Names are joined by "|", the most probable first. It has no column per class.
    """
    names = np.array(classes, dtype=object)
    allowed = torch.from_numpy(decisions.predicted)
    labels: list[str] = []
    tops: list[str] = []
    shares: list[str] = []
    rows = np.arange(len(scores.items))
    for _, p in score_blocks(scores.head, scores.features, rows):
        chosen = choose_classes(p, decisions)
        best = torch.where(allowed, p, -1.0).topk(min(_TOP, p.shape[1]), dim=1)
        for row in range(len(p)):
            found = torch.nonzero(chosen[row]).ravel()
            order = found[p[row, found].argsort(descending=True)]
            labels.append(join_names([str(name) for name in names[order.numpy()]]))
            tops.append(join_names([str(name) for name in names[best.indices[row].numpy()]]))
            shares.append("|".join(f"{value:.4g}" for value in best.values[row].tolist()))
    table = {"item": scores.items, "labels": labels, "top": tops, "probabilities": shares}
    return pd.DataFrame(table, dtype=object)


def match_classes(given: Any, classes: Sequence[str]) -> tuple[SparseLabels, list[str]]:
    """Return the labels of a file for the classes of a run, and the names the run does not know.

    A class that is not in the file has the code of a class that is not listed.
    """
    sparse = given.sparse
    position = {name: k for k, name in enumerate(classes)}
    place = np.array([position.get(name, -1) for name in given.classes])
    kept = place[sparse.columns] >= 0
    found = SparseLabels.from_entries(
        sparse.row_of_entries()[kept], place[sparse.columns[kept]], sparse.codes[kept],
        (len(given), len(classes)), sparse.rest,
    )  # fmt: skip
    return found, [name for name, k in zip(given.classes, place, strict=True) if k < 0]
