"""Evaluate a trained run: on a label file, or on the rows it was not fitted on."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from halftruth.data import DataError
from halftruth.data.check import question_features
from halftruth.data.errors import some
from halftruth.data.hints import list_hints
from halftruth.data.wide_matrix import Matrix
from halftruth.labels import ABSENT, PRESENT, UNKNOWN, LabelMatrix
from halftruth.metrics import average_precision, propensities
from halftruth.metrics.counts import UndefinedMetricWarning
from halftruth.presence.decisions import Decisions
from halftruth.presence.ranking import measure_ranking, question_order
from halftruth.train.config import MANY_CLASSES_METHOD
from halftruth.train.inputs.feature_inputs import Files
from halftruth.train.many_classes.level import estimate_frequent, score_held_out
from halftruth.train.many_classes.measure import measure_by_blocks
from halftruth.train.results.run_result import (
    ESTIMATED,
    KNOWN_ONLY,
    LEAST_ROWS,
    UNKNOWN_AS_ABSENT,
    VERIFIED,
    estimate,
    list_estimates,
    score_decisions,
)
from halftruth.train.results.trained_run import ImageSource, Scores, TrainedRun, open_run
from halftruth.train.results.verified_cells import estimate_run
from halftruth.train.task import (
    choose_parts,
    find_reading_options,
    group_repeated_items,
    is_same_file,
    read_groups,
    read_label_rows,
    select_rows,
)

UNKNOWN_IS = ("estimate", "absent")


class Evaluation(NamedTuple):
    """Overall metrics, a table with one row per class, and the images that could not be read.

    `metrics` are measured, and `basis` says on which labels: "on complete labels", "on known
    labels only", "counting unknown as absent" (only where asked for), or "estimated": nothing was
    measured. `estimated` are mAP, CF1, OF1, OP and OR with 90 % intervals, by the model of
    labelling. `not_predicted` are the classes that the rule never predicts.
    """

    metrics: dict[str, float]
    classes: pd.DataFrame
    bad: list[tuple[str, str]]
    basis: str
    not_predicted: list[str]
    # Where labels are unknown: scores that complete labels would give, as value, low, high.
    estimated: dict[str, list[float]]
    # How many cells people have verified for the estimate.
    verified_cells: int = 0
    # How many rows are training rows, with scores of models that were not fitted on them.
    out_of_sample: int = 0
    # Of thousands of classes, how many frequent ones `estimated` is about; 0: all.
    estimated_classes: int = 0
    # Expected precision, recall and labels per row of the decisions on new rows, in words.
    expected: str = ""


def evaluate(
    run: TrainedRun | str | Path,
    labels: str | Path | None = None,
    *,
    images: ImageSource | None = None,
    features: Files | None = None,
    hints: object = None,
    split: str | None = None,
    reading: Mapping[str, object] | None = None,
    decide: str | None = None,
    unknown: str = "estimate",
    **options: object,
) -> Evaluation:
    """Return a run's scores on a label file, with the decisions of training or another rule.

    Classes are matched by name. `split` selects the rows of one part ("train", "val", "test") of
    the file's split column; for the label file of training, the parts are those of training. That
    file is read as in training unless `reading` is given. `decide`: a rule such as "precision=0.9".
    `hints`: those of a run that was trained with hints.

    Where labels are unknown, scores are measured on the known labels and estimated for all;
    `unknown="absent"` counts unknown labels as absent instead.

    Without `labels`, the scores are estimated on the rows that the run was not fitted on, with the
    cells that people verified (`halftruth review RUN --purpose evaluate`).
    """
    run = open_run(run)
    if unknown not in UNKNOWN_IS:
        raise DataError(f"unknown: expected {' or '.join(UNKNOWN_IS)}, got {unknown!r}")
    decisions = run.decisions if decide is None else run.decide(decide)
    left_out = _list_left_out(run, decisions)
    if labels is None:
        own = _evaluate_held_out(run, decisions, left_out, unknown)
        return own._replace(expected=run.describe_expected(decisions))
    if run.shares_curve:
        idle = {"images": images, "hints": hints, **options}
        if named := [name for name, value in idle.items() if value]:
            raise DataError(
                f"{', '.join(named)}: has no effect on {run.folder}, which was trained with the "
                f"method {MANY_CLASSES_METHOD}; leave it out"
            )
        given, rows, read = _read_rows(run, Path(labels), split, reading)
        matrix = run.read_features(features or (), given, labels, read)
        return _measure_by_blocks(run, given, rows, matrix, decisions)
    truth, scores, held, groups = _score_file(
        run, Path(labels), images, features, split, reading, hints
    )
    p = scores.probabilities
    complete = not (truth == UNKNOWN).any()
    basis = VERIFIED if complete else UNKNOWN_AS_ABSENT if unknown == "absent" else ESTIMATED
    found = estimate(p, truth, decisions, groups=groups)
    ranking = measure_ranking(truth, p, groups)
    if complete and not ranking.found and len(truth) >= LEAST_ROWS:
        warnings.warn(f"{labels}: {ranking.describe()}", stacklevel=2)
    metrics: dict[str, float] = {}
    table: dict[str, Any] = {"class": run.classes, "present": (truth == PRESENT).sum(axis=0)}
    with warnings.catch_warnings():
        # A class without a positive is in the table, without an AP.
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        if basis != ESTIMATED:
            metrics = score_decisions(p, decisions, truth, **options)
            table["AP"] = average_precision(p, truth, empty="nan")
        else:
            basis, metrics = _score_known(p, decisions, truth, **options)
            shown = (truth == PRESENT).any(axis=0)
            ends = np.full((len(shown), 3), np.nan) if found is None else found.ap
            for k, name in enumerate(("AP", "AP_low", "AP_high")):
                table[name] = np.where(shown, ends[:, k], np.nan)
    frame = pd.DataFrame({**table, "threshold": decisions.thresholds})
    return Evaluation(
        metrics, frame, scores.bad, basis, left_out, list_estimates(found), out_of_sample=held
    )


def _measure_by_blocks(
    run: TrainedRun, given: LabelMatrix, rows: np.ndarray, matrix: Matrix, decisions: Decisions
) -> Evaluation:
    """Measure thousands of classes; unknown labels count as absent, as the basis says."""
    if run.result is None:
        raise DataError(f"{run.folder}: training is not finished, so nothing can be measured")
    position = {name: k for k, name in enumerate(given.classes)}
    # A class that is not in the file has the code of one that is not listed.
    labels = given.sparse.select_classes([position.get(name, -1) for name in run.classes])
    if not labels.select(rows).count_per_row().any():
        raise DataError("no label of these rows is present, so nothing can be measured")
    chance = propensities(np.array(run.result["shown"]), max(int(run.saved["rows"]), 3))
    head: Any = run.model.head
    metrics, table = measure_by_blocks(head, matrix, rows, labels, run.curves, decisions, chance)
    complete = labels.rest == ABSENT and not (labels.codes == UNKNOWN).any()
    estimated: dict[str, list[float]] = {}
    frequent = 0
    if labels.rest == UNKNOWN:
        held = score_held_out(head, matrix, labels, rows)
        estimated = list_estimates(estimate_frequent(held, run.curves, decisions))
        frequent = len(held.classes)
    frame = pd.DataFrame({"class": run.classes, **table, "threshold": decisions.thresholds})
    basis = VERIFIED if complete else UNKNOWN_AS_ABSENT
    left_out = _list_left_out(run, decisions)
    return Evaluation(metrics, frame, [], basis, left_out, estimated, estimated_classes=frequent)


def _list_left_out(run: TrainedRun, decisions: Decisions) -> list[str]:
    return [str(name) for name in np.array(run.classes)[~decisions.predicted]]


def _score_known(
    p: np.ndarray, decisions: Decisions, labels: np.ndarray, **options: object
) -> tuple[str, dict[str, float]]:
    """Metrics on known labels, of the classes that have present and absent ones, if any."""
    both = (labels == PRESENT).any(axis=0) & (labels == ABSENT).any(axis=0)
    if not both.any():
        return ESTIMATED, {}
    chosen = Decisions(decisions.rule, decisions.thresholds[both], decisions.predicted[both])
    found = score_decisions(p[:, both], chosen, labels[:, both], ignore_unknown=True, **options)
    return KNOWN_ONLY, found


def _evaluate_held_out(
    run: TrainedRun, decisions: Decisions, left_out: list[str], unknown: str
) -> Evaluation:
    if unknown == "absent":
        raise DataError(
            "unknown (--unknown absent): has no effect without a label file; scores of the run "
            "itself are estimated"
        )
    estimated, cells = estimate_run(run, decisions)
    shown = (run.held_out.labels == PRESENT).sum(axis=0)
    table = {"class": run.classes, "present": shown, "threshold": decisions.thresholds}
    basis, metrics = ESTIMATED, {}
    if not estimated and not (run.held_out.labels == UNKNOWN).any():
        p = run.infer(run.held_out.logits)
        basis, metrics = VERIFIED, score_decisions(p, decisions, run.held_out.labels)
    frame = pd.DataFrame(table)
    return Evaluation(metrics, frame, [], basis, left_out, estimated, cells)


def _score_file(
    run: TrainedRun,
    labels: Path,
    images: ImageSource | None,
    features: Files | None,
    split: str | None,
    reading: Mapping[str, object] | None,
    hints: object = None,
) -> tuple[np.ndarray, Scores, int, np.ndarray | None]:
    """The labels of the chosen rows of a file, and the run's scores of them.

    Rows that an ensemble was fitted on have their out-of-sample scores; also how many these are,
    and the groups of rows that repeat an item.
    """
    if images is not None and run.inputs is not None and not run.uses_images(images):
        own = "the images are those of training" if run.config.images else "trained on features"
        raise DataError(f"{run.folder}: images (--images) have no effect: {own}; leave them out")
    given, rows, options_of_file = _read_rows(run, labels, split, reading)
    missing = [name for name in run.classes if name not in given.classes]
    if missing:
        raise DataError(f"{labels}: classes of the run are missing in the labels: {some(missing)}")
    values = given.values[:, [given.classes.index(name) for name in run.classes]]
    items = None if given.items is None else [str(given.items[row]) for row in rows]
    if features is not None or run.config.text:
        matrix = run.read_features(features or (), given, labels, options_of_file)
        for text in question_features(matrix[rows], values[rows], run.classes, run.encoder.outputs):
            warnings.warn(f"{labels}: {text}", stacklevel=4)
        scores = run.score(features=matrix[rows], items=items, hints=hints)
        place = run.find_held_out(given, rows, matrix=matrix)
    else:
        if items is None:
            raise DataError(f"{labels}: there is no column with image names")
        scores = run.score(images=images, items=items, bad_images="skip", hints=hints)
        lost = {name for name, _ in scores.bad}
        rows = rows[[item not in lost for item in items]]
        if not len(rows):
            raise DataError(f"{labels}: none of its {len(items):,} images can be read")
        place = run.find_held_out(given, rows, images=images)
    asked = []
    for hint in run.read_hints(list_hints(hints), scores.items):
        named = f"hint {hint.place}"
        asked += question_features(
            hint.scores, values[rows], run.classes, run.classes, named, False
        )
    for text in [*asked, *question_order(values[rows], scores.probabilities, run.classes)]:
        warnings.warn(f"{labels}: {text}", stacklevel=4)
    groups = group_repeated_items(None if given.items is None else given.items[rows])
    return values[rows], run.use_held_out(scores, place, hints), int((place >= 0).sum()), groups


def _read_rows(
    run: TrainedRun, labels: Path, split: str | None, reading: Mapping[str, object] | None
) -> tuple[LabelMatrix, np.ndarray, dict[str, object]]:
    """Return the labels of a file, the chosen rows, and how the file was read."""
    options = {**find_reading_options(run.config, labels), **(reading or {})}
    given = read_label_rows(run.config, labels, options, run.shares_curve).ignore_weightless()
    for note in given.notes:
        if note.startswith("warning: "):
            warnings.warn(f"{labels}: {note.removeprefix('warning: ')}", stacklevel=3)
    known = set(run.classes)
    if extra := [name for name in given.classes if name not in known]:
        warnings.warn(
            f"{labels}: the run was trained without the classes {some(extra)}; they are not "
            "evaluated",
            stacklevel=3,
        )
    return given, _choose_rows(run, given, labels, split), options


def _choose_rows(
    run: TrainedRun, given: LabelMatrix, labels: str | Path, split: str | None
) -> np.ndarray:
    """The rows of a part, or all; parts of the label file of training are those of training."""
    own = is_same_file(run.config.labels, labels) and (given.split is not None or split != "test")
    parts = choose_parts(run.config, given, read_groups(run.config)) if own and split else None
    return select_rows(given, labels, split, parts)
