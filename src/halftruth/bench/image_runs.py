"""One run on images, end to end, through `halftruth.fit`."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

from halftruth.bench.feature_runs import with_numbers
from halftruth.bench.job import Job
from halftruth.bench.run_data import load_benchmark, prior_of, seen_labels, source_key
from halftruth.data import write_labels
from halftruth.train.auto import AUTO


def run_on_images(job: Job, root: Path, cache: Path, device: str) -> dict[str, Any]:
    """Train head and backbone as `halftruth train` does, with pixels decoded once for all runs.

    A run that was cut off goes on from its last checkpoint; the folder of a finished one is
    removed, its metrics are kept.
    """
    from halftruth.train.start import train

    files = label_files(job, root, cache)
    folder = cache / "runs" / job.id
    weights = str(job.training.get("weights", "pretrained"))
    settings = {
        "cache": "disk",
        **job.training,
        "weights": weights if weights in ("pretrained", "none") else str(root / weights),
        "labels": files["observed"],
        "truth": files["truth"],
        # As written: UNKNOWN where a training row shows nothing.
        "reading_truth": {"zero": "unknown"},
        "images": files["images"],
        "method": job.loss,
        "options": with_numbers(job.options, files["prior"]),
        "seed": job.seed,
        "device": device.split(":")[0],
        "cache_dir": str(cache),
        "workers": 0,
        "report": False,
        "out": str(folder),
    }
    if job.loss == AUTO:
        # By the labels that are shown alone: the model is given, nothing else of the grid.
        given = ("backbone", "weights", "image_size", "budget")
        settings = {k: v for k, v in settings.items() if k in given or k not in job.training}
        settings["options"] = {}
    result = train(settings, resume=True, quiet=True)
    found: dict[str, Any] = {"stage": result.best_stage, "epoch": result.best_epoch}
    found["val"] = result.val
    if not job.trial:
        found["test"] = result.test
    shutil.rmtree(folder, ignore_errors=True)
    return found


def label_files(job: Job, root: Path, cache: Path) -> dict[str, Any]:
    """What a method may see, and the truth of the other rows, as files; made once."""
    folder = cache / f"labels-{source_key(job.source, job.labels, job.label_seed)}"
    notes = folder / "notes.json"
    if not notes.exists():
        folder.mkdir(parents=True, exist_ok=True)
        read = load_benchmark(job.source, job.labels, job.label_seed, root)
        shown = dataclasses.replace(read.observed, values=seen_labels(read))
        write_labels(read.observed, folder / "observed.csv")
        write_labels(shown, folder / "truth.csv")
        files = {
            "observed": str(folder / "observed.csv"),
            "truth": str(folder / "truth.csv"),
            "images": [str(path) for path in read.images],
            "prior": prior_of(read),
        }
        notes.write_text(json.dumps(files), encoding="utf-8")
    return dict(json.loads(notes.read_text(encoding="utf-8")))
