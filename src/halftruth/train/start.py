"""`fit` and `train`: from settings to a run."""

from pathlib import Path
from typing import Any

from halftruth.train.auto import AUTO
from halftruth.train.config import Config, collect, load_settings
from halftruth.train.journal import Journal
from halftruth.train.result import Result
from halftruth.train.run import Run


def fit(
    labels: str | Path | Config | None = None,
    images: str | Path | list[str] | None = None,
    *,
    resume: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> Result:
    """Train on a label file and a folder of images (or features), as `halftruth train` does.

    `settings` are the fields of `Config`; options of `read_labels` (such as `label_column` or
    `zero`) may stand among them. The run's folder (`out`) then holds config.yaml, metrics.jsonl,
    best.safetensors, last.safetensors, result.json, classes.csv and report.html.

        result = halftruth.fit("labels.csv", "photos/", method="em", out="runs/first")
        result.val["mAP"]
    """
    if isinstance(labels, Config):
        config = labels.changed(settings)
        return Run(config, quiet=quiet).go(resume=resume)
    values = collect(settings)
    if labels is not None:
        values["labels"] = str(labels)
    if images is not None:
        values["images"] = images
    return train(values, resume=resume, quiet=quiet)


def train(
    values: dict[str, Any], recipe: Path | None = None, *, resume: bool = False, quiet: bool = False
) -> Result:
    """Start a run, or go on with that in the folder `out`: by its own settings and `values`."""
    folder, spent = Path(values.get("out", Config.out)), None
    if resume and recipe is None and (folder / "config.yaml").is_file():
        recipe, values = folder, {**values, "out": str(folder)}
        # The same command may have begun the run, with auto as its method, which has chosen then.
        if values.get("method", AUTO) == AUTO:
            values.pop("method", None)
            spent = values.pop("budget", None)
    run = Run(load_settings(recipe, values), quiet=quiet)
    if spent is not None:
        there = f"the run in {folder} has its method, {run.config.method}"
        Journal(None, main=run.main, quiet=quiet).say(f"budget: {there}; nothing more is tried")
    return run.go(resume=resume)
