"""The public functions that need several packages: `fit` trains and reports, `load` opens a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from halftruth.data import DataError
from halftruth.data.readers.text_table import ITEM_COLUMNS, index_ids, plain, require_pandas
from halftruth.labels.checks import Array
from halftruth.train.config import GIVEN, Config, collect
from halftruth.train.inputs.batches import to_dense
from halftruth.train.results.next_steps import list_next_steps
from halftruth.train.results.run_result import Result
from halftruth.train.results.trained_run import TrainedRun
from halftruth.train.run import Run, train
from halftruth.train.run_folder import LAST, CheckpointError, replace_file
from halftruth.train.run_logger import RunLogger


def fit(
    labels: object = None,
    images: str | Path | list[str] | None = None,
    *,
    recipe: Path | Mapping[str, object] | None = None,
    resume: bool = False,
    quiet: bool = False,
    **settings: object,
) -> Result:
    """Train on labels and images (or `features`), as `halftruth train` does.

    `labels`, `features`, `hints` and `truth` are files, or data in memory: a DataFrame (its index
    has the names of the items, the columns of labels are the classes), or an array (rows, columns).
    Data in memory is stored in the run folder (`data`), so that the run can be resumed without it.

    `settings` are the fields of `Config`; arguments of `read_labels` (such as `label_column` or
    `zero`) may be among them. The run folder (`out`) then holds config.yaml, metrics.jsonl,
    best.safetensors, last.safetensors, result.json, classes.csv and report.html.

        result = halftruth.fit("labels.csv", "photos/", method="em", out="runs/first")
        result.estimated["mAP"]             # value, low and high end of the 90 % interval
        halftruth.fit(labels_frame, features=features_array, out="runs/second")
    """
    if isinstance(labels, Config):
        result = Run(labels.with_changes(settings), quiet=quiet).go(resume=resume)
    else:
        values = collect(settings)
        if labels is not None:
            values["labels"] = labels
        if images is not None:
            values["images"] = images
        folder = Path(values.get("out", Config.out))
        for name in ("labels", "truth"):
            if values.get(name) is not None:
                values[name] = _as_file(values[name], name, folder, resume)
        for name in ("features", "hints"):
            if values.get(name) is not None:
                values[name] = _as_files(values[name], name, folder, resume)
        result = train(values, recipe, resume=resume, quiet=quiet)
    return _with_report(result, quiet)


def calibrate(
    scores: Array, labels: Array, *, out: str | Path = Config.out, **settings: Any
) -> TrainedRun:
    """Return a run whose model is another model: its scores in, everything of `predict` out.

    `scores`: of rows that their model was not trained on, as probabilities or as logits; a file or
    a DataFrame with a column per class, or an array. `labels`: as in `fit`, so they may be
    incomplete. `settings`: those of `fit` that are not for training, such as `decide`.

        found = halftruth.calibrate("scores.csv", "labels.csv", decide="precision=0.9")
        found.predict(features="new_scores.csv")        # P(present | score), and decisions
    """
    fit(labels, features=scores, method=GIVEN, out=str(out), **settings)
    return TrainedRun(out)


def _as_files(given: Any, name: str, folder: Path, resume: bool) -> list[str]:
    """Return the paths of one or several sources (features, hints); data in memory is written."""
    several = isinstance(given, list | tuple) and any(
        isinstance(one, str | Path | pd.DataFrame | np.ndarray) for one in given
    )
    sources = list(given) if several else [given]
    names = [name, *(f"{name}{k}" for k in range(2, len(sources) + 1))]
    return [_as_file(one, own, folder, resume) for one, own in zip(sources, names, strict=True)]


def _as_file(values: object, name: str, folder: Path, resume: bool) -> str:
    """Return the path of a file, or write data in memory to the run folder and return its path."""
    if isinstance(values, str | Path):
        return str(values)
    require_pandas(values)
    frame: pd.DataFrame | np.ndarray
    if isinstance(values, pd.DataFrame):
        frame = values.set_axis([str(column) for column in values.columns], axis=1)
        ids = index_ids(frame)
        if ids is not None and not {plain(column) for column in frame.columns} & {*ITEM_COLUMNS}:
            frame.insert(0, "item", ids)
        path = folder / "data" / f"{name}.parquet"
    else:
        frame = np.asarray(to_dense(values))
        if frame.ndim != 2 or frame.dtype.kind not in "biuf":
            raise DataError(
                f"{name}: expected a file, a DataFrame or an array of numbers (rows, columns), got "
                f"{type(values).__name__} of shape {frame.shape}"
            )
        path = folder / "data" / f"{name}.npy"
    if (folder / LAST).exists() and path.exists():
        # Without `resume` the run is refused, and its data must not change.
        if resume and not _has_values(path, frame):
            raise CheckpointError(
                f"{folder} belongs to another run: its {name} differ from those given here. "
                f"Resume with the same data, or without {name}, or choose another folder (`out`)"
            )
        return str(path)
    with replace_file(path, shared=True) as new:
        if isinstance(frame, pd.DataFrame):
            try:
                frame.to_parquet(new, index=False)
            except (TypeError, ValueError) as error:
                raise DataError(f"{name}: the DataFrame cannot be stored: {error}") from error
        else:
            with new.open("wb") as file:
                np.save(file, frame.astype(np.int8) if frame.dtype == bool else frame)
    return str(path)


def _has_values(path: Path, given: pd.DataFrame | np.ndarray) -> bool:
    """Return whether a file has the same values as data in memory."""
    if isinstance(given, pd.DataFrame):
        return bool(pd.read_parquet(path).equals(given.reset_index(drop=True)))
    return np.array_equal(np.load(path), given, equal_nan=given.dtype.kind == "f")


def load(folder: str | Path, *, device: str = "auto", flip: bool = False) -> TrainedRun:
    """Return the trained run in a folder, ready to predict.

        run = halftruth.load("runs/first")
        run.predict("photo.jpg")

    A run on the Hugging Face Hub is downloaded: `halftruth.load("hf://user/repo")`.
    `device`: auto, cpu, cuda or mps. `flip`: average over an image and its mirror image.
    """
    if isinstance(folder, str) and folder.startswith("hf://"):
        from halftruth.hub import download

        folder = download(folder)
    return TrainedRun(folder, device=device, flip=flip)


def _with_report(result: Result, quiet: bool) -> Result:
    """Write report.html in the main process, a failure is only a warning; log the next commands."""
    details = result.details
    if details is None or not details.is_main_process:
        return result
    logger = RunLogger(None, quiet=quiet)
    if details.config.report:
        try:
            from halftruth.report.run_report import write_report

            path = write_report(result)
        except Exception as error:
            logger.log(f"warning: report.html cannot be written ({type(error).__name__}: {error})")
        else:
            logger.log(f"report: {path}")
    for step in list_next_steps(result, details.config)[:2]:
        logger.log(f"to {step.what}: {step.command}")
    # The labels and features of the run need not stay in memory.
    result.details = None
    return result
