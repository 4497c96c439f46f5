"""`make_audit`: from a label file and scores to the folder of an audit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from halftruth.audit.audit_folder import (
    INFO,
    AuditFolder,
    archive_decisions,
    describe_source,
    read_earlier_verdicts,
    write_audit,
)
from halftruth.audit.audit_inputs import (
    AuditInputs,
    add_run,
    read_audit_inputs,
    refuse_idle_weights,
)
from halftruth.audit.candidates import ScoredLabels
from halftruth.audit.cross_scores import Engine, cross_scores
from halftruth.audit.score_sources import read_scores, run_scores, trained_on
from halftruth.data import DataError
from halftruth.data.check import question_features
from halftruth.data.label_files import read_parents
from halftruth.data.verdicts import place_verdicts
from halftruth.labels import PRESENT, LabelMatrix
from halftruth.presence.calibration import calibrate
from halftruth.presence.probabilities import SELECTIONS, Selection
from halftruth.presence.ranking import NoRankingError, question_order
from halftruth.seeds import check_seed
from halftruth.train.auto.label_bias import choose_propensities, describe_bias
from halftruth.train.config import Config, check_device, resolve_method
from halftruth.train.inputs.feature_encoder import FeatureEncoder
from halftruth.train.inputs.feature_inputs import read_inputs, read_run_features
from halftruth.train.results.run_result import ONLY_SHOWN
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
# Settings that say what is audited, also where nothing is trained.
_DATA = (
    "images", "features", "text", "encoder", "group_column", "complete_rows", "reading_features",
)  # fmt: skip


@dataclass
class _Source:
    """Where the scores of the audited rows come from, and what is known about them."""

    origin: str
    # Images that cannot be read; their rows score NaN.
    bad: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    # Whether the columns have names.
    named: bool = True
    # Whether the labels look biased, as the run or the first fold says.
    label_bias: dict[str, object] = field(default_factory=dict)


def make_audit(
    source: str | Path,
    labels: str | Path | None = None,
    *,
    out: str | Path = "audit",
    reading: dict[str, object] | None = None,
    split: str | None = None,
    selection: Selection = "auto",
    unlabelled_rows: str = "auto",
    most: int = 100_000,
    engine: Engine | None = None,
    quiet: bool = True,
    log: Callable[[str], None] = lambda text: None,
    **settings: Any,
) -> AuditFolder:
    """Audit a label file with the scores of a run, given probabilities, or k-fold training.

    make_audit("runs/first", "labels.csv", images=["photos/"])       # a run folder
    make_audit("probs.csv", "labels.csv")                            # scores of any model
    make_audit("labels.csv", images=["photos/"], folds=5,            # out-of-sample scores
               method="em")

    `settings` are those of `halftruth.fit`, and `folds` (5). Where nothing is trained, only those
    about the data, `seed` and, for a run, `device` have an effect; the data of a run are used where
    no others are given. `reading`: how the label file is read. `split`: audit only this part.
    `unlabelled_rows`: "kept" if rows without a shown label are in the file, "dropped" if they were
    left out; "auto": left out if there is none. `engine`: see `cross_scores`.
    `log` receives messages; `quiet=False` shows progress bars in a terminal. The report of an audit
    is written by `halftruth.report.audit_report.write_audit_report`.
    """
    source, out, settings = Path(source), Path(out), resolve_method(settings)
    seed, device = check_seed(settings.pop("seed", 0)), settings.pop("device", "auto")
    data = {name: value for name in _DATA if (value := settings.pop(name, None))}
    _check_options(source, labels, selection, most, device, settings)
    if engine is not None and (labels is not None or _is_run(source)):
        raise DataError("engine (--engine): has no effect, since no folds are trained")
    verdicts = read_earlier_verdicts(out)
    run = TrainedRun(source, device=device, quiet=quiet) if _is_run(source) else None
    file = labels or (source if run is None else run.config.labels)
    config = Config(**data, labels=str(file), reading=dict(reading or {}))
    inputs = read_audit_inputs(config if run is None else add_run(config, run), split)
    log(inputs.describe())
    if run is not None or labels is not None:
        refuse_idle_weights(inputs.whole, reading or {})
    verified = _place_verdicts(inputs, verdicts, out)
    if verified.any():
        log(f"continues with {np.count_nonzero(verified):,} verdicts of {out}")
    if run is not None:
        scores, found = _score_by_run(run, inputs)
    elif labels is not None:
        scores, found = _read_given(source, inputs)
    else:
        training = {"folds": 5, "seed": seed, "device": device, "quiet": quiet, **settings}
        training["engine"] = engine
        scores, found = _score_by_folds(inputs, verified, out, training)
    values = np.where(verified == 0, inputs.labels.values, verified).astype(np.int8)
    judged = replace(inputs.labels, stored=values)
    good = _check_scores(inputs.file, judged, scores, found)
    facts = found.label_bias or ({} if verdicts is None else _read_facts(out / INFO))
    for line in [*(f"WARNING: {warning}" for warning in found.warnings), *describe_bias(facts)]:
        log(line)
    try:
        known = calibrate(
            inputs.labels.values[good], scores[good], verified=verified[good],
            selection=selection, unlabelled_rows=unlabelled_rows, seed=seed,
            groups=None if inputs.groups is None else inputs.groups[good],
            parents=read_parents(inputs.reading.get("hierarchy"), inputs.labels.classes),
            **choose_propensities(facts, inputs.whole.values),
        )  # fmt: skip
    except NoRankingError as error:
        notes = "".join(f". {one}" for one in found.warnings)
        raise DataError(f"{inputs.file}: missing labels are not known: {error}{notes}") from None
    if known.only_shown:
        log(ONLY_SHOWN)
    if verdicts is not None:
        archive_decisions(out, verdicts)
    part, rows = judged.select(good), inputs.rows[good]
    items = np.array([f"row {row + 1}" for row in rows]) if part.items is None else part.items
    scored = ScoredLabels(part.values, scores[good], part.classes, items, rows)
    info = {
        **describe_source(inputs.config, inputs.reading, found.origin, found.warnings),
        "group_column": inputs.config.group_column,
        "bad_images": found.bad[:1000],
        "label_bias": facts,
        "unlabelled_rows": unlabelled_rows,
    }
    return write_audit(out, scored, known, info=info, most=most)


def _is_run(source: Path) -> bool:
    return (source / "config.yaml").is_file()


def _place_verdicts(inputs: AuditInputs, verdicts: pd.DataFrame | None, out: Path) -> np.ndarray:
    """(N, K) verdicts on the audited rows: +1 present, -1 absent, 0 none."""
    whole = np.zeros(inputs.whole.values.shape, dtype=np.int8)
    if verdicts is not None:
        whole[place_verdicts(inputs.whole, verdicts, out)] = verdicts["verdict"]
    return whole[inputs.rows]


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


def _score_by_run(run: TrainedRun, inputs: AuditInputs) -> tuple[np.ndarray, _Source]:
    config, rows = inputs.config, inputs.rows
    if not config.on_features and not config.images:
        raise DataError("expected --images or --features, the inputs that the run should score")
    matrix = None
    if config.on_features:
        config = replace(config, reading={**run.config.reading, **inputs.reading})
        whole = read_run_features(
            config, run.encoder, inputs.whole, inputs.file, config.features, inputs.reading
        )
        held, matrix = run.find_held_out(inputs.whole, rows, matrix=whole), whole[rows]
    else:
        held = run.find_held_out(inputs.whole, rows, images=config.images)
    if (run.folder / "result.json").exists():
        # A broken result.json or thresholds of another length: files of different runs.
        _ = run.thresholds
    labels = inputs.labels
    scores, bad = run_scores(run, labels, images=config.images, features=matrix, held=held)
    own = held >= 0
    found = _Source(f"run {run.folder.name}" + ", out-of-sample" * bool(own.all()), bad)
    if Path(run.config.labels).resolve() == inputs.file.resolve():
        found.label_bias = _read_facts(run.folder / "result.json")
    memorised = trained_on(run, labels)
    if memorised is None:
        if not own.all():
            found.warnings.append(_NOT_KNOWN.format(labels=run.config.labels))
    elif (memorised & ~own).any():
        count = int((memorised & ~own).sum())
        found.warnings.append(_IN_SAMPLE.format(count=count, rows=len(labels)))
    return scores, found


def _read_given(source: Path, inputs: AuditInputs) -> tuple[np.ndarray, _Source]:
    scores, named = read_scores(source, inputs.whole)
    found = _Source(f"probabilities {source.name}", [], [_MUST_BE_OUT_OF_SAMPLE], named)
    return scores[inputs.rows], found


def _score_by_folds(
    inputs: AuditInputs, verified: np.ndarray, out: Path, training: dict[str, Any]
) -> tuple[np.ndarray, _Source]:
    config, matrix = inputs.config, None
    if not config.on_features and not config.images:
        raise DataError(
            "expected --images, --features or --text to train on; or give scores: halftruth audit "
            "RUN LABELS, or halftruth audit PROBABILITIES LABELS"
        )
    if config.on_features:
        if config.images:
            raise DataError(
                "images, features (--images, --features): expected one of the two for an audit by "
                "folds; train a run on both, and audit that"
            )
        sources, texts, _ = read_inputs(
            config, inputs.whole, inputs.file, config.features, inputs.reading
        )
        # Without labels, since every row is scored by a model that must not know its label.
        fitted = FeatureEncoder.fit(sources, texts, None, inputs.rows, config.encoder)
        matrix = fitted.transform(sources, texts)[inputs.rows]
    folder = out / (f"folds-{np.count_nonzero(verified)}" if verified.any() else "folds")
    scores, bad = cross_scores(
        inputs.labels, folder, images=config.images, features=matrix, groups=inputs.groups,
        verified=verified, **training,
    )  # fmt: skip
    found = _Source(f"{training['folds']}-fold training, out-of-sample", bad)
    found.label_bias = _read_facts(folder / "fold0" / "result.json")
    if matrix is not None:
        given = inputs.labels.values, inputs.labels.classes
        found.warnings += question_features(matrix, *given, fitted.outputs)
    return scores, found


def _read_facts(file: Path) -> dict[str, object]:
    """What a run or an earlier audit says about the choice of labels; {} where there is none.

    After a review, rows show several labels, and the choice cannot be tested again.
    """
    found = json.loads(file.read_bytes()).get("label_bias") if file.is_file() else None
    return dict(found or {})


def _check_scores(
    file: Path, labels: LabelMatrix, scores: np.ndarray, found: _Source
) -> np.ndarray:
    """(N,) True for rows with scores; adds warnings about bad images and about the ranking."""
    good = ~np.isnan(scores).any(axis=1)
    if not good.any():
        name, reason = found.bad[0]
        raise DataError(
            f"{file}: none of the images of its {len(good):,} rows can be read, for instance "
            f"{name}: {reason}; check --images"
        )
    part = labels.select(good)
    if not (part.values == PRESENT).any():
        raise DataError(f"{file}: no row with a readable image has a present label")
    if found.bad:
        found.warnings.append(f"Rows without a readable image are left out: {len(found.bad):,}.")
    asked = question_order(part.values, scores[good], part.classes, found.named)
    found.warnings += [f"{text[:1].upper()}{text[1:]}." for text in asked]
    return good
