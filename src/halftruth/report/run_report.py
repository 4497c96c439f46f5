"""report.html: a run on one page, which needs nothing else to be read."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from halftruth.audit import calibrate, missing_labels
from halftruth.labels import PRESENT, UNKNOWN
from halftruth.plots.class_figures import draw_classes
from halftruth.plots.epoch_figures import (
    draw_corrected,
    draw_curves,
    draw_predictive_values,
    draw_separation,
)
from halftruth.plots.probability_figures import draw_distributions, draw_false_negatives
from halftruth.plots.run_records import NotRecorded, Record, read_run
from halftruth.plots.style import Drawing
from halftruth.report.gallery import MOST_CLASSES, MOST_FOUND, Seen, best_and_worst, findings
from halftruth.report.inline_svg import inline_svg
from halftruth.report.page import document, facts, table
from halftruth.train.checkpoint import write_text
from halftruth.train.config import Config
from halftruth.train.measure import Measured
from halftruth.train.recipes import to_yaml
from halftruth.train.task import Task

# Estimating what is missing takes a second for so many labels.
_MOST_LABELS = 1_000_000

Draw = Callable[[Sequence[Record]], Drawing]

FIGURES: tuple[tuple[str, str, Draw], ...] = (
    ("Learning curves", "The dot marks the epoch that was kept.", draw_curves),
    (
        "Probabilities, early and late",
        "Each group of labels adds up to 100 %; the scale is logarithmic.",
        draw_distributions,
    ),
    (
        "Hidden labels against negative ones",
        "How far apart the model holds unknown labels that are there and those that are not.",
        draw_separation,
    ),
    (
        "Missing labels found while training",
        "Pseudo-labels of the method, or what lies above its cut, by the complete labels.",
        draw_corrected,
    ),
    (
        "Can an answer be trusted?",
        "Means over the classes, on validation rows, by the complete labels.",
        draw_predictive_values,
    ),
    (
        "Unknown labels that are there, by confidence",
        "The line is what a perfectly calibrated model would show.",
        draw_false_negatives,
    ),
)


def write_report(config: Config, task: Task, measured: Measured, seconds: float) -> Path:
    """Write the report of a finished run into its folder."""
    run = read_run(measured.result.folder)
    rows = task.splits.val
    items = task.labels.items
    seen = Seen(
        names=[f"row {row}" if items is None else str(items[row]) for row in rows],
        classes=task.classes,
        probabilities=measured.probabilities["val"],
        labels=task.labels.values[rows],
        truth=None if task.truth is None else task.truth[rows],
        store=task.store,
    )
    parts = [
        _head(config, task, measured, seconds),
        _curves(run),
        _classes(run, measured.classes),
        _pictures(seen, measured.classes),
        _missing(seen),
        _bad_images(measured),
        _timing(run, seconds),
        _settings(config),
    ]
    path = measured.result.folder / "report.html"
    write_text(path, document(f"{run.name}: {config.method} · halftruth", "".join(parts)))
    return path


def _head(config: Config, task: Task, measured: Measured, seconds: float) -> str:
    result = measured.result
    known = "the complete labels" if task.truth is not None else "the labels there are"
    numbers = [
        (f"{100 * scores[key]:.1f}", f"{key}, %, {part}")
        for part, scores in (("test", result.test), ("validation", result.val))
        for key in ("mAP", "CF1", "OF1")
        if scores
    ]
    numbers += [
        (f"{result.best_epoch + 1}", f"best epoch, stage {result.best_stage}"),
        (_duration(seconds), "from start to end"),
    ]
    text = escape(task.describe()).replace("\n", "<br>")
    return (
        f"<h1>{escape(result.folder.resolve().name)}</h1>"
        f"<p>Trained with <b>{escape(config.method)}</b> on {escape(config.labels)}; measured "
        f"against {known}, each class cut at its own threshold.</p>{facts(numbers)}"
        f'<p class="note">{text}</p>'
    )


def _curves(run: Record) -> str:
    shown = []
    for title, text, draw in FIGURES:
        try:
            figure = inline_svg(draw([run]), title)
        except NotRecorded:
            continue
        shown.append(f'<h3>{escape(title)}</h3><p class="note">{escape(text)}</p>{figure}')
    return f"<h2>Training</h2>{''.join(shown)}"


def _classes(run: Record, classes: pd.DataFrame) -> str:
    part = "test" if "test_AP" in classes else "val"
    order = classes.sort_values(f"{part}_AP", ascending=False, kind="stable")
    columns = {
        "class": "class",
        "train_present": "labelled",
        "train_true": "really there",
        "threshold": "threshold",
    }
    for name in ("val", "test"):
        shares = ("AP", "precision", "recall", "F1")
        columns |= {f"{name}_{key}": f"{key}, {name}" for key in shares}
    used = {key: text for key, text in columns.items() if key in classes}
    rows = [[_cell(key, value) for key, value in zip(used, row, strict=True)]
            for row in order[list(used)].itertuples(index=False)]  # fmt: skip
    figure = inline_svg(draw_classes([run]), "AP of each class against its labelled positives")
    return (
        f"<h2>Classes</h2>{figure}"
        '<p class="note">Labelled and really there: positives in the training rows. Thresholds '
        "give the best F1 on validation. Shares in per cent; – where a part holds no such class."
        f"</p>{table(list(used.values()), rows)}"
    )


def _cell(key: str, value: float | str) -> str:
    if isinstance(value, str):
        return value
    if key.startswith("train_"):
        return f"{value:,.0f}"
    if np.isnan(value):
        return "–"
    return f"{value:.3f}" if key == "threshold" else f"{100 * value:.1f}"


def _pictures(seen: Seen, classes: pd.DataFrame) -> str:
    if seen.store is None:
        return ""
    some = f" The {MOST_CLASSES} classes with the lowest AP." if len(classes) > MOST_CLASSES else ""
    return (
        "<h2>Best and worst pictures</h2><p>Validation rows, which the model did not learn from: "
        "the surest finds of each class, the positives it holds least likely, and the surest finds "
        f"that {'are wrong' if seen.truth is not None else 'are not labelled so'}.{some}</p>"
        + best_and_worst(seen, classes["val_AP"].to_numpy(dtype=float))
    )


def _missing(seen: Seen) -> str:
    title = "<h2>Likely missing labels</h2>"
    every = len(seen.names)
    seen = seen.at_most(_MOST_LABELS)
    some = "the" if len(seen.names) == every else f"{len(seen.names):,} of {every:,}"
    if not (seen.labels == UNKNOWN).any():
        return f"{title}<p>No label of the validation rows is unknown.</p>"
    if not (seen.labels == PRESENT).any():
        return f"{title}<p>No label of the validation rows is present, so nothing tells how.</p>"
    known = calibrate(seen.labels, seen.probabilities, draws=20)
    found = missing_labels(
        seen.labels,
        seen.probabilities,
        classes=seen.classes,
        items=seen.names,
        most=MOST_FOUND,
        calibration=known,
    )
    total = known.missing_total
    count = int((seen.labels == UNKNOWN).sum())
    text = (
        f"<p>Of the {count:,} unknown labels of {some} validation rows about "
        f"<b>{total.estimate:,.0f}</b> are probably there (95 % interval {total.low:,.0f} to "
        f"{total.high:,.0f}), estimated without complete labels. The likeliest first; "
        "<code>halftruth audit</code> goes through all rows.</p>"
    )
    if seen.store is not None:
        return title + text + findings(seen, found)
    rows = [
        (str(item), str(name), f"{score:.3f}", f"{100 * chance:.0f}")
        for item, name, score, chance in found[
            ["item", "class", "score", "probability"]
        ].itertuples(index=False)
    ]
    return title + text + table(["item", "class", "score", "probably there, %"], rows)


def _bad_images(measured: Measured) -> str:
    bad = measured.result.bad_images
    if not bad:
        return ""
    rows = [(name, reason) for name, reason in bad[:50]]
    more = f"<p>The first 50 of {len(bad):,}; all are in bad_images.csv.</p>" if bad[50:] else ""
    return f"<h2>Images left out</h2>{more}{table(['image', 'reason'], rows)}"


def _timing(run: Record, seconds: float) -> str:
    rows = []
    for name, stage in run.epochs.groupby("stage", sort=False):
        total = float(stage["seconds"].sum())
        each = _duration(total / len(stage))
        rows.append((f"stage {name}", f"{len(stage)}", each, _duration(total)))
    rows.append(("everything", "", "", _duration(seconds)))
    device = run.config.get("device", "auto")
    if device == "auto":
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return (
        "<h2>Time</h2>"
        + table(["", "epochs", "an epoch", "together"], rows)
        + f'<p class="note">{escape(str(device))}, {torch.get_num_threads()} threads, '
        f"{escape(platform.platform(terse=True))}, Python {platform.python_version()}, torch "
        f"{escape(torch.__version__)}. Everything: this start of the run, reading and measuring "
        "included; a resumed run began earlier.</p>"
    )


def _settings(config: Config) -> str:
    command = f"halftruth train {shlex.quote(config.out + '/config.yaml')} --out runs/again"
    return f"<h2>Settings</h2><pre>{escape(command)}</pre><pre>{escape(to_yaml(config))}</pre>"


def _duration(seconds: float) -> str:
    """1.3 s, 2 min 5 s, 3 h 20 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
