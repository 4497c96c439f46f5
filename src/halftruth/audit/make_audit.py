"""`make_audit`: from a label file and scores of some origin to a folder with an audit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from halftruth.audit.folder import AuditFolder, digest, write_audit
from halftruth.audit.given_scores import read_scores
from halftruth.data import DataError, named_splits, read_column, read_features, read_labels
from halftruth.presence.calibration import Selection, calibrate
from halftruth.report.audit_report import write_report

IN_SAMPLE = (
    "{count:,} of the {rows:,} rows audited were TRAINED ON by this run, so their scores are "
    "IN-SAMPLE: the model has learnt to repeat their labels, missing ones look less likely than "
    "they are, and the estimates are too low. For out-of-sample scores let halftruth train on "
    "parts: halftruth audit LABELS --images ... --folds 5"
)
CANNOT_TELL = (
    "Whether this run was trained on the rows audited cannot be told ({labels} cannot be read): "
    "if it was, the scores are in-sample and the estimates too low"
)
MUST_BE = (
    "Make sure that these probabilities are OUT-OF-SAMPLE: of a model that was not trained on the "
    "row it scores (k-fold); in-sample ones hide what is missing"
)


def make_audit(
    source: str | Path,
    labels: str | Path | None = None,
    *,
    out: str | Path = "audit",
    images: Sequence[str | Path] | None = None,
    features: str | Path | None = None,
    split: str | None = None,
    folds: int = 5,
    seed: int = 0,
    group_column: str | None = None,
    reading: dict[str, Any] | None = None,
    reading_features: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
    selection: Selection = "auto",
    draws: int = 20,
    most: int = 100_000,
    device: str = "auto",
    tell: Callable[[str], None] = lambda text: None,
) -> AuditFolder:
    """Audit a label file by a run's scores, by given probabilities, or by k-fold training.

    make_audit("runs/first", "labels.csv", images=["photos/"])       # a run's folder
    make_audit("probs.csv", "labels.csv")                            # any model's scores
    make_audit("labels.csv", images=["photos/"], folds=5,            # out-of-sample, by itself
               training={"method": "em"})
    """
    source, out = Path(source), Path(out)
    stores = [str(Path(path)) for path in images or ()]
    run = _opened(source, device) if (source / "config.yaml").is_file() else None
    if run is None and source.is_dir() and labels is not None:
        raise DataError(f"{source}: holds no run: there is no {source / 'config.yaml'}")
    file = (
        Path(labels) if labels is not None else source if run is None else Path(run.config.labels)
    )
    options = dict(reading or {})
    if run is not None:
        from halftruth.audit.run_scores import reading_of

        options = {**reading_of(run, file), **options}
        stores = stores or list(run.config.images)
        features = features or run.config.features
    if group_column:
        options["drop_columns"] = [*options.get("drop_columns", ()), group_column]
    given = read_labels(file, **options)
    tell(given.describe())
    rows = np.arange(len(given)) if split is None else _rows_of(given.split, split, file)
    part = given.select(rows)
    matrix = None
    if features is not None and (run is not None or labels is None):
        more = dict(reading_features or {})
        read = run.read_features if run is not None and not more else read_features
        matrix = read(features, rows=len(given), **more)[rows]
    warnings: list[str] = []
    bad: list[tuple[str, str]] = []
    if run is not None:
        scores, bad, origin = *_of_run(run, part, stores, matrix, warnings), f"run {source.name}"
    elif labels is not None:
        scores, origin = read_scores(source, given)[rows], f"probabilities {source.name}"
        warnings.append(MUST_BE)
    else:
        scores, bad = _by_folds(
            part, out, stores, matrix, folds, seed,
            read_column(file, group_column)[rows] if group_column else None,
            {**(training or {}), "device": device}, tell,
        )  # fmt: skip
        origin = f"{folds}-fold training, out-of-sample"
    good = ~np.isnan(scores).any(axis=1)
    if not good.any():
        raise DataError(f"{file}: none of its {len(part):,} rows could be scored: {bad[:3]}")
    if bad:
        warnings.append(f"Rows without a readable image are left out: {len(bad):,}")
    for warning in warnings:
        tell(f"WARNING: {warning}")
    known = calibrate(part.values[good], scores[good], selection=selection, draws=draws, seed=seed)
    info = {
        "labels": str(file.resolve()),
        "sha256": digest(file),
        "reading": options,
        "group_column": group_column,
        "images": [str(Path(path).resolve()) for path in stores],
        "features": None if features is None else str(Path(features).resolve()),
        "origin": origin,
        "warnings": warnings,
        "bad_images": bad[:1000],
    }
    made = write_audit(
        out, part.select(good), scores[good], known, rows=rows[good], info=info, most=most
    )
    write_report(made)
    return made


def _opened(source: Path, device: str) -> Any:
    from halftruth.train.trained_run import TrainedRun

    return TrainedRun(source, device=device)


def _rows_of(column: np.ndarray | None, split: str, file: Path) -> np.ndarray:
    if split not in ("train", "val", "test"):
        raise DataError(f"split: expected train, val or test, got {split!r}")
    if column is None:
        raise DataError(f"{file}: there is no split column, so no part {split!r}")
    rows: np.ndarray = getattr(named_splits(column), split)
    if not len(rows):
        raise DataError(f"{file}: no row belongs to the part {split!r}")
    return rows


def _of_run(
    run: Any, part: Any, stores: list[str], matrix: np.ndarray | None, warnings: list[str]
) -> tuple[np.ndarray, list[tuple[str, str]]]:
    from halftruth.audit.run_scores import run_scores, trained_on

    if matrix is None and not stores:
        raise DataError("expected --images or --features: what the run should look at")
    taught = trained_on(run, part)
    if taught is None:
        warnings.append(CANNOT_TELL.format(labels=run.config.labels))
    elif taught.any():
        warnings.append(IN_SAMPLE.format(count=int(taught.sum()), rows=len(part)))
    return run_scores(run, part, images=stores, features=matrix)


def _by_folds(
    part: Any,
    out: Path,
    stores: list[str],
    matrix: np.ndarray | None,
    folds: int,
    seed: int,
    groups: np.ndarray | None,
    training: dict[str, Any],
    tell: Callable[[str], None],
) -> tuple[np.ndarray, list[tuple[str, str]]]:
    from halftruth.audit.cross_scores import check_learnable, cross_scores

    if matrix is None and not stores:
        raise DataError(
            "expected --images or --features to train on; or give scores: halftruth audit RUN "
            "LABELS, or halftruth audit PROBS LABELS"
        )
    check_learnable(part)
    return cross_scores(
        part, out / "folds", images=stores, features=matrix, folds=folds, seed=seed,
        groups=groups, tell=tell, **training,
    )  # fmt: skip
