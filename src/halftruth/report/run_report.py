"""report.html: one page about a finished run, with all figures and images inside."""

from __future__ import annotations

import io
import platform
import re
import shlex
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from halftruth.audit import calibrate, missing_labels
from halftruth.labels import PRESENT, UNKNOWN
from halftruth.plots.epoch_figures import (
    draw_corrected,
    draw_curves,
    draw_predictive_values,
    draw_separation,
)
from halftruth.plots.probability_figures import draw_distributions, draw_false_negatives
from halftruth.plots.run_figures import draw_classes
from halftruth.plots.run_records import NotRecorded, Record, read_run
from halftruth.plots.style import GRID, INK, Drawing, styled
from halftruth.presence.decisions import Decisions, parse_rule
from halftruth.report.gallery import (
    MOST_CLASSES,
    MOST_FOUND,
    HeldOut,
    best_and_worst,
    show_missing,
)
from halftruth.report.labelling import (
    describe_basis,
    show_decisions,
    show_label_bias,
    show_members,
    show_verified,
)
from halftruth.report.page import Raw, document, facts, make_table
from halftruth.train.auto.label_bias import choose_propensities
from halftruth.train.config import Config
from halftruth.train.results.run_result import SHOWN, Result
from halftruth.train.run_folder import write_text
from halftruth.train.scored_rows import PARTS
from halftruth.train.task import Task

# Estimating the missing labels of this many labels takes about a second.
_MOST_LABELS = 1_000_000

Draw = Callable[[Sequence[Record]], Drawing]

FIGURES: tuple[tuple[str, str, Draw], ...] = (
    ("Learning curves", "The dot marks the epoch whose weights are kept.", draw_curves),
    (
        "Probabilities after the first and the last epoch",
        "Each group of labels adds up to 100 %. The scale is logarithmic.",
        draw_distributions,
    ),
    (
        "Hidden positives and true negatives",
        "The distance between the probabilities of unknown labels that are present and of those "
        "that are absent.",
        draw_separation,
    ),
    (
        "Missing labels found during training",
        "Pseudo-labels of the method, or unknown labels above its threshold, compared with the "
        "complete labels.",
        draw_corrected,
    ),
    (
        "Predictive values",
        "Means over the classes on validation rows, compared with the complete labels.",
        draw_predictive_values,
    ),
    (
        "Unknown labels that are present, by probability",
        "The line shows a perfectly calibrated model.",
        draw_false_negatives,
    ),
)


def write_report(result: Result) -> Path:
    """Write report.html into the folder of a run that has just finished, and return its path."""
    details = result.details
    assert details is not None, "the result must come from fit, not from result.json"
    config, task, seconds = details.config, details.task, details.seconds
    part, items = details.held, task.labels.items
    run, rows = read_run(result.folder), details.parts[part]
    held_out = HeldOut(
        names=[f"row {row}" if items is None else str(items[row]) for row in rows],
        classes=task.classes,
        probabilities=details.probabilities[part],
        predicted=read_decisions(result)(details.probabilities[part]),
        labels=task.labels.values[rows],
        complete=None if task.truth is None else task.truth[rows],
        store=task.store,
        texts=None if task.texts is None else [task.texts[row] for row in rows],
        part=PARTS[part],
    )
    parts = [
        _head(result, config, task, seconds),
        show_verified({}, 0),
        show_members(result) if result.members else _training(run),
        show_decisions(result),
        show_label_bias(result),
        _classes(result, run, details.classes),
        _images(held_out, details.classes, f"{part}_AP"),
        _missing(held_out, choose_propensities(result.label_bias, task.labels.values)),
        _bad_images(result.bad_images),
        _time(run, seconds),
        _settings(config),
    ]
    path = result.folder / "report.html"
    write_text(path, document(f"{run.name}: {config.method} · halftruth", "".join(parts)))
    return path


def read_decisions(result: Result) -> Decisions:
    """Return the rule and the thresholds of a run."""
    predicted = ~np.isin(result.classes, result.not_predicted)
    return Decisions(parse_rule(result.decide), np.array(result.thresholds), predicted)


def _head(result: Result, config: Config, task: Task, seconds: float) -> str:
    numbers = [
        (f"{100 * value:.1f}", f"{key}, %, estimated ({100 * low:.0f} to {100 * high:.0f})")
        for key, (value, low, high) in result.estimated.items()
        if key in SHOWN
    ]
    numbers += [
        (f"{100 * scores[key]:.1f}", f"{key}, %, {name}, {result.basis[part]}")
        for part, name in reversed(PARTS.items())
        for key in SHOWN
        if (scores := getattr(result, part))
    ]
    if not result.members:
        why = "the last one, select: last" if config.select == "last" else "the best one"
        text = f"kept epoch of stage {result.best_stage}, {why}"
        numbers.append((f"{result.best_epoch}", text))
    numbers.append((_duration(seconds), "total time"))
    text = escape(task.describe()).replace("\n", "<br>")
    return (
        f"<h1>{escape(result.folder.resolve().name)}</h1>"
        f"<p>Trained with <b>{escape(config.method)}</b> on {escape(config.labels)}.</p>"
        f"{facts(numbers)}{describe_basis(result)}"
        f'<p class="note">{text}</p>'
    )


def _training(run: Record) -> str:
    shown = []
    for title, text, draw in FIGURES:
        try:
            figure = inline_svg(draw([run]), title)
        except NotRecorded:
            continue
        shown.append(f'<h3>{escape(title)}</h3><p class="note">{escape(text)}</p>{figure}')
    return f"<h2>Training</h2>{''.join(shown)}"


@styled
def inline_svg(drawing: Drawing, text: str) -> Raw:
    """A figure as <svg> in the colours of the page, light or dark; `text` describes it."""
    file = io.StringIO()
    drawing.figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    # Ink and grid take the text colour of the page; the line colours can be read on both.
    svg = re.sub(f"{INK}|{GRID}", "currentColor", svg, flags=re.IGNORECASE)
    # Letters about as large as the small text of the page; a phone scrolls wide figures.
    width = drawing.figure.get_figwidth()
    size = f"width: {100 * width:.0f}px; min-width: {66 * width:.0f}px"
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(text)}" style="{size}" ', 1)
    return Raw(f'<figure class="plot">{svg}</figure>\n')


def _classes(result: Result, run: Record, classes: pd.DataFrame) -> str:
    part = next(name for name in reversed(PARTS) if f"{name}_AP" in classes)
    order = classes.sort_values(f"{part}_AP", ascending=False, kind="stable")
    columns = {
        "class": "class",
        "train_present": "labelled",
        "train_true": "present",
    }
    for name in PARTS:
        shares = ("AP", "precision", "recall", "F1")
        columns |= {f"{name}_{key}": f"{key}, {name.replace('_', ' ')}" for key in shares}
    used = {key: text for key, text in columns.items() if key in classes}
    rows = [[_cell(key, value) for key, value in zip(used, row, strict=True)]
            for row in order[list(used)].itertuples(index=False)]  # fmt: skip
    figure = inline_svg(draw_classes([run]), "AP per class over its labelled positives")
    return (
        f"<h2>Classes</h2>{figure}"
        '<p class="note">Labelled: positives in the training rows; present: the same by the '
        "complete labels. AP, precision, recall and F1 in percent, "
        f"{_describe_parts(result)}; – where the rows have no positive of a class."
        f"</p>{make_table(list(used.values()), rows)}"
    )


def _describe_parts(result: Result) -> str:
    parts = [part for part in PARTS if result.get_observed(part)]
    return ", ".join(f"{part.replace('_', ' ')} {result.basis[part]}" for part in parts)


def _cell(key: str, value: float | str) -> str:
    if isinstance(value, str):
        return value
    if key.startswith("train_"):
        return f"{value:,.0f}"
    if np.isnan(value):
        return "–"
    return f"{100 * value:.1f}"


def _images(held_out: HeldOut, classes: pd.DataFrame, ap: str) -> str:
    if not held_out.can_be_seen:
        return ""
    kind = "images" if held_out.store is not None else "texts"
    unlabelled = "" if held_out.complete is not None else " (not labelled)"
    some = (
        f" Only the {MOST_CLASSES} classes with the lowest AP."
        if len(classes) > MOST_CLASSES
        else ""
    )
    return (
        f"<h2>Best and worst {kind}</h2><p>{held_out.part.capitalize()} rows, scored by models "
        "that were not trained on them: for each class the positives with the highest and the "
        f"lowest score, and the other {kind} with the highest score{unlabelled}. Found and missed "
        f"are decisions of the run, by the thresholds above.{some}</p>"
        + best_and_worst(held_out, classes[ap].to_numpy(dtype=float))
    )


def _missing(held_out: HeldOut, choice: dict[str, Any]) -> str:
    title = "<h2>Probably missing labels</h2>"
    every = len(held_out.names)
    held_out = held_out.at_most(_MOST_LABELS)
    rows = len(held_out.names)
    some = "the" if rows == every else f"{rows:,} of {every:,}"
    if not (held_out.labels == UNKNOWN).any():
        return f"{title}<p>The {held_out.part} rows have no unknown labels.</p>"
    if not (held_out.labels == PRESENT).any():
        return (
            f"{title}<p>The {held_out.part} rows have no positive labels to estimate them from.</p>"
        )
    known = calibrate(held_out.labels, held_out.probabilities, **choice)
    found = missing_labels(
        held_out.labels,
        held_out.probabilities,
        classes=held_out.classes,
        items=held_out.names,
        most=MOST_FOUND,
        calibration=known,
    )
    total = known.missing_total
    count = int((held_out.labels == UNKNOWN).sum())
    text = (
        f"<p>Of the {count:,} unknown labels of {some} {held_out.part} rows, an estimated "
        f"<b>{total.value:,.0f}</b> are present (90 % interval {total.low:,.0f} to "
        f"{total.high:,.0f}). The estimate does not use complete labels. The most probable come "
        "first; <code>halftruth audit</code> checks all rows.</p>"
    )
    if held_out.can_be_seen:
        return title + text + show_missing(held_out, found)
    listed = [
        (str(item), str(name), f"{score:.3f}", f"{100 * chance:.0f}")
        for item, name, score, chance in found[
            ["item", "class", "score", "probability"]
        ].itertuples(index=False)
    ]
    return title + text + make_table(["item", "class", "score", "probability, %"], listed)


def _bad_images(bad: list[tuple[str, str]]) -> str:
    if not bad:
        return ""
    more = f"<p>The first 50 of {len(bad):,}; all are in bad_images.csv.</p>" if bad[50:] else ""
    return (
        f"<h2>Images that could not be read</h2>{more}{make_table(['image', 'reason'], bad[:50])}"
    )


def _time(run: Record, seconds: float) -> str:
    rows = []
    for name, stage in run.epochs.groupby("stage", sort=False):
        if "seconds" not in stage:
            # The ensemble of auto is fitted as a whole.
            continue
        total = float(stage["seconds"].sum())
        each = _duration(total / len(stage))
        rows.append((f"stage {name}", f"{len(stage)}", each, _duration(total)))
    rows.append(("total", "", "", _duration(seconds)))
    total_text = "The total" if rows[1:] else f"The total, {_duration(seconds)},"
    device = run.config.get("device", "auto")
    if device == "auto":
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return (
        "<h2>Time</h2>"
        + (make_table(["", "epochs", "per epoch", "time"], rows) if rows[1:] else "")
        + f'<p class="note">{escape(str(device))}, {torch.get_num_threads()} threads, '
        f"{escape(platform.platform(terse=True))}, Python {platform.python_version()}, torch "
        f"{escape(torch.__version__)}. {total_text} includes reading and evaluation, of a "
        "resumed run those of its last start.</p>"
    )


def _settings(config: Config) -> str:
    command = f"halftruth train {shlex.quote(config.out + '/config.yaml')} --out runs/again"
    return f"<h2>Settings</h2><pre>{escape(command)}</pre><pre>{escape(config.to_yaml())}</pre>"


def _duration(seconds: float) -> str:
    """1.3 s, 2 min 5 s, 3 h 20 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
