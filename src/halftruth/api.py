"""The public functions that need several packages: `fit` trains and reports, `load` opens a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from halftruth.train.config import Config, collect
from halftruth.train.evaluation import Result
from halftruth.train.fit import Run, train
from halftruth.train.journal import Journal
from halftruth.train.trained_run import TrainedRun


def fit(
    labels: str | Path | Config | None = None,
    images: str | Path | list[str] | None = None,
    *,
    recipe: Path | Mapping[str, Any] | None = None,
    resume: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> Result:
    """Train on a label file and a folder of images (or features), as `halftruth train` does.

    `settings` are the fields of `Config`; arguments of `read_labels` (such as `label_column` or
    `zero`) may be among them. The run folder (`out`) then holds config.yaml, metrics.jsonl,
    best.safetensors, last.safetensors, result.json, classes.csv and report.html.

        result = halftruth.fit("labels.csv", "photos/", method="em", out="runs/first")
        result.val["mAP"]
    """
    if isinstance(labels, Config):
        result = Run(labels.changed(settings), quiet=quiet).go(resume=resume)
    else:
        values = collect(settings)
        if labels is not None:
            values["labels"] = str(labels)
        if images is not None:
            values["images"] = images
        result = train(values, recipe, resume=resume, quiet=quiet)
    return _with_report(result, quiet)


def load(folder: str | Path, *, device: str = "auto") -> TrainedRun:
    """Return the trained run in a folder, ready to predict.

        run = halftruth.load("runs/first")
        run.predict("photo.jpg")

    `device`: auto, cpu, cuda or mps.
    """
    return TrainedRun(folder, device=device)


def _with_report(result: Result, quiet: bool) -> Result:
    """Write report.html in the main process. A failure is only a warning: the run is complete."""
    details = result.details
    if details is None or not details.is_main_process or not details.config.report:
        return result
    journal = Journal(None, quiet=quiet)
    try:
        from halftruth.report.run_report import write_report

        path = write_report(result)
    except Exception as error:
        journal.log(f"warning: report.html cannot be written ({type(error).__name__}: {error})")
    else:
        journal.log(f"report: {path}")
    # It holds the labels and features of the run.
    result.details = None
    return result
