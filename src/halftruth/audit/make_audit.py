"""`make_audit`: from a label file and scores to the folder of an audit."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from halftruth.audit.audit_folder import (
    INFO,
    AuditFolder,
    archive_decisions,
    digest,
    read_earlier_verdicts,
    write_audit,
)
from halftruth.audit.audit_inputs import AuditInputs, read_audit_inputs
from halftruth.audit.candidates import ScoredLabels
from halftruth.audit.cross_scores import cross_scores
from halftruth.audit.score_sources import (
    check_ranking,
    read_scores,
    run_scores,
    trained_on,
)
from halftruth.data import DataError
from halftruth.data.verdicts import place_verdicts
from halftruth.labels import PRESENT, LabelMatrix
from halftruth.presence.calibration import calibrate
from halftruth.presence.probabilities import SELECTIONS, Selection
from halftruth.seeds import check_seed
from halftruth.train.auto.label_bias import choose_propensities, describe_bias
from halftruth.train.config import Config, check_device, resolve_method
from halftruth.train.inputs.feature_inputs import Files, list_files
from halftruth.train.results.trained_run import TrainedRun

_IN_SAMPLE = (
    "{count:,} of the {rows:,} audited rows were TRAINING ROWS of this run, so their scores are "
    "IN-SAMPLE: the model has memorised their labels, missing labels look less likely than they "
    "are, and the estimates are too low. For out-of-sample scores train by folds: "
    "halftruth audit LABELS --images ... --folds 5."
)
_NOT_KNOWN = (
    "It is not known whether this run was trained on the audited rows ({labels} cannot be read). "
    "If it was, the scores are in-sample and the estimates too low."
)
_MUST_BE_OUT_OF_SAMPLE = (
    "Make sure that these probabilities are OUT-OF-SAMPLE: from a model that was not trained on "
    "the row it scores (k-fold). In-sample probabilities hide missing labels."
)

# Names of settings that differ on the command line.
_FLAGS = {"options": "--set"}
# Settings of training that would do nothing in an audit by folds.
_WITHOUT_EFFECT = {
    "val": "each fold holds out a tenth of its training rows, or none for an ensemble",
    "verdicts": "an audit continues with the verdicts in its own folder (--out); add others with "
    "`halftruth import-verdicts`",
    "decide": "an audit uses scores, not decisions",
    "labels_per_row": "an audit uses scores, not decisions",
}


@dataclass
class _Scores:
    """Scores of the chosen rows (NaN where an image is bad), and where they come from."""

    values: np.ndarray
    origin: str
    bad: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    named: bool = True
    # Whether the labels look biased, as the run or the first fold says.
    label_bias: dict[str, Any] = field(default_factory=dict)


def make_audit(
    source: str | Path,
    labels: str | Path | None = None,
    *,
    out: str | Path = "audit",
    images: Sequence[str | Path] | None = None,
    features: Files | None = None,
    text: str | None = None,
    encoder: str | None = None,
    split: str | None = None,
    group_column: str | None = None,
    complete_rows: str | Path | None = None,
    reading: dict[str, Any] | None = None,
    reading_features: dict[str, Any] | None = None,
    selection: Selection = "auto",
    most: int = 100_000,
    seed: int = 0,
    device: str = "auto",
    quiet: bool = True,
    log: Callable[[str], None] = lambda text: None,
    **training: Any,
) -> AuditFolder:
    """Audit a label file with the scores of a run, given probabilities, or k-fold training.

    make_audit("runs/first", "labels.csv", images=["photos/"])       # a run folder
    make_audit("probs.csv", "labels.csv")                            # scores of any model
    make_audit("labels.csv", images=["photos/"], folds=5,            # out-of-sample scores
               method="em")

    `text`: the column of the label file with the text to learn from, and `encoder` the language
    model that reads it. `complete_rows`: a file that names the rows labelled completely, as in
    training; by default that of the run. `training` is `folds` (5) and settings of `halftruth.fit`.
    `log` receives messages; `quiet=False` shows progress bars in a terminal. The report of an audit
    is written by `halftruth.report.audit_report.write_audit_report`.
    """
    source, out, seed = Path(source), Path(out), check_seed(seed)
    training = resolve_method(training)
    _check_options(source, labels, selection, most, device, training)
    verdicts = read_earlier_verdicts(out)
    run = TrainedRun(source, device=device, quiet=quiet) if _is_run(source) else None
    config = Config(
        features=[] if features is None else [str(path) for path in list_files(features)],
        text=text, encoder=encoder, reading_features=reading_features or {},
    )  # fmt: skip
    if run is not None and (text or encoder):
        raise DataError(
            "text, encoder (--text, --encoder): the run has its own; leave them out, or give only "
            "the label file to train by folds"
        )
    config.complete_rows = None if complete_rows is None else str(complete_rows)
    inputs = read_audit_inputs(source, labels, run, images, config, split, group_column, reading)
    log(inputs.whole.describe())
    if inputs.whole.weights is not None and (~inputs.whole.weights.any(axis=1)).any():
        count = int((~inputs.whole.weights.any(axis=1)).sum())
        log(f"{count:,} rows have the weight 0 and are left out")
    verified = _place(inputs, verdicts, out)
    if verified.any():
        log(f"continues with {np.count_nonzero(verified):,} verdicts of {out}")
    if run is not None:
        scores = _score_by_run(run, inputs)
    elif labels is not None:
        scores = _read_given(inputs)
    else:
        training = {"folds": 5, "seed": seed, "device": device, "quiet": quiet, **training}
        folder = f"folds-{np.count_nonzero(verified)}" if verified.any() else "folds"
        scores = _score_by_folds(inputs, verified, out / folder, **training)
    inputs = dataclasses.replace(inputs, labels=_apply(inputs.labels, verified))
    good = _check_scores(inputs, scores)
    part, values = inputs.labels.select(good), scores.values[good]
    for warning in scores.warnings:
        log(f"WARNING: {warning}")
    facts = scores.label_bias or ({} if verdicts is None else _read_facts(out / INFO))
    for line in describe_bias(facts):
        log(line)
    shown = inputs.whole.values[inputs.rows[good]]
    known = calibrate(
        shown, values, verified=verified[good], selection=selection, seed=seed,
        **choose_propensities(facts, inputs.whole.values),
    )  # fmt: skip
    info = {
        "labels": str(inputs.file.resolve()),
        "sha256": digest(inputs.file),
        "reading": inputs.reading,
        "group_column": group_column,
        "images": [str(Path(path).resolve()) for path in inputs.images],
        "features": str(inputs.features[0].resolve()) if len(inputs.features) == 1 else None,
        "origin": scores.origin,
        "warnings": scores.warnings,
        "bad_images": scores.bad[:1000],
        "label_bias": facts,
    }
    if verdicts is not None:
        archive_decisions(out, verdicts)
    rows = inputs.rows[good]
    items = part.items
    if items is None:
        items = np.array([f"row {row + 1}" for row in rows])
    data = ScoredLabels(part.values, values, part.classes, items, rows)
    return write_audit(out, data, known, info=info, most=most)


def _place(inputs: AuditInputs, verdicts: pd.DataFrame | None, out: Path) -> np.ndarray:
    """(N, K) verdicts on the audited rows: +1 present, -1 absent, 0 none."""
    whole = np.zeros(inputs.whole.values.shape, dtype=np.int8)
    if verdicts is not None:
        whole[place_verdicts(inputs.whole, verdicts, out)] = verdicts["verdict"]
    return whole[inputs.rows]


def _apply(labels: LabelMatrix, verified: np.ndarray) -> LabelMatrix:
    values = np.where(verified == 0, labels.values, verified).astype(np.int8)
    return dataclasses.replace(labels, values=values)


def _check_options(
    source: Path,
    labels: str | Path | None,
    selection: str,
    most: int,
    device: str,
    training: dict[str, Any],
) -> None:
    """Refuse bad values and options without effect, before any long work."""
    if selection not in SELECTIONS:
        raise DataError(f"selection: expected {' or '.join(SELECTIONS)}, got {selection!r}")
    if most < 1:
        raise DataError(f"most: expected at least 1 candidate, got {most}")
    check_device(device)
    if not _is_run(source) and source.is_dir() and labels is not None:
        raise DataError(f"{source}: is not a run folder: there is no {source / 'config.yaml'}")
    if not _is_run(source) and labels is None:
        if training.get("folds", 5) < 2:
            raise DataError(f"folds: expected at least 2, got {training['folds']}")
        for name in training.keys() & _WITHOUT_EFFECT.keys():
            raise DataError(f"{name}: no effect, since {_WITHOUT_EFFECT[name]}")
        return
    unused = [*training, *(["device"] if device != "auto" and not _is_run(source) else [])]
    if unused:
        flags = (_FLAGS.get(name, f"--{name.replace('_', '-')}") for name in unused)
        raise DataError(
            f"{', '.join(unused)} ({', '.join(flags)}): no effect, since nothing is trained: the "
            f"scores come from {source}. Leave it out; to train by folds, give only the label file"
        )


def _is_run(source: Path) -> bool:
    return (source / "config.yaml").is_file()


def _score_by_run(run: TrainedRun, inputs: AuditInputs) -> _Scores:
    if inputs.matrix is None and not inputs.images:
        raise DataError("expected --images or --features, the inputs that the run should score")
    if (run.folder / "result.json").exists():
        # A broken result.json or thresholds of another length: files of different runs.
        _ = run.thresholds
    values, bad = run_scores(
        run, inputs.labels, images=inputs.images, features=inputs.matrix, held=inputs.held
    )
    own = inputs.held >= 0
    origin = f"run {inputs.source.name}" + ", out-of-sample" * bool(own.all())
    scores = _Scores(values, origin, bad)
    if Path(run.config.labels).resolve() == inputs.file.resolve():
        scores.label_bias = _read_facts(run.folder / "result.json")
    memorised = trained_on(run, inputs.labels)
    if memorised is None:
        if not own.all():
            scores.warnings.append(_NOT_KNOWN.format(labels=run.config.labels))
    elif (memorised & ~own).any():
        count = int((memorised & ~own).sum())
        scores.warnings.append(_IN_SAMPLE.format(count=count, rows=len(inputs.labels)))
    return scores


def _read_given(inputs: AuditInputs) -> _Scores:
    values, named = read_scores(inputs.source, inputs.whole)
    origin = f"probabilities {inputs.source.name}"
    return _Scores(values[inputs.rows], origin, [], [_MUST_BE_OUT_OF_SAMPLE], named)


def _score_by_folds(
    inputs: AuditInputs, verified: np.ndarray, folder: Path, folds: int, **options: Any
) -> _Scores:
    if inputs.matrix is None and not inputs.images:
        raise DataError(
            "expected --images, --features or --text to train on; or give scores: halftruth audit "
            "RUN "
            "LABELS, or halftruth audit PROBABILITIES LABELS"
        )
    values, bad = cross_scores(
        inputs.labels, folder, images=inputs.images, features=inputs.matrix, folds=folds,
        groups=inputs.groups, verified=verified, **options,
    )  # fmt: skip
    scores = _Scores(values, f"{folds}-fold training, out-of-sample", bad)
    scores.label_bias = _read_facts(folder / "fold0" / "result.json")
    return scores


def _read_facts(file: Path) -> dict[str, Any]:
    """What a run or an earlier audit says about the choice of labels; {} where there is none.

    After a review, rows show several labels, and the choice cannot be tested again.
    """
    found = json.loads(file.read_bytes()).get("label_bias") if file.is_file() else None
    return dict(found or {})


def _check_scores(inputs: AuditInputs, scores: _Scores) -> np.ndarray:
    """(N,) True for rows with scores; adds warnings about bad images and about the ranking."""
    good = ~np.isnan(scores.values).any(axis=1)
    if not good.any():
        name, reason = scores.bad[0]
        raise DataError(
            f"{inputs.file}: none of the images of its {len(good):,} rows can be read, for "
            f"instance {name}: {reason}; check --images"
        )
    part = inputs.labels.select(good)
    if not (part.values == PRESENT).any():
        raise DataError(f"{inputs.file}: no row with a readable image has a present label")
    if scores.bad:
        scores.warnings.append(f"Rows without a readable image are left out: {len(scores.bad):,}.")
    warning = check_ranking(part, scores.values[good], scores.named)
    if warning:
        scores.warnings.append(warning)
    return good
