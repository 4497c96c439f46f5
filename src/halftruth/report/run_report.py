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
from halftruth.presence.ranking import NoRankingError
from halftruth.report.answers import show_examples, show_next_steps, show_weak_classes
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
from halftruth.report.page import Raw, Section, arrange, document, facts, make_table
from halftruth.train.auto.label_bias import choose_propensities
from halftruth.train.config import Config
from halftruth.train.results.next_steps import list_next_steps
from halftruth.train.results.run_result import SHOWN, Result
from halftruth.train.run_folder import write_text
from halftruth.train.scored_rows import PARTS
from halftruth.train.task import Task

# Estimating the missing labels of this many labels takes about a second.
_MOST_LABELS = 1_000_000
_LEGEND = (
    "mAP: mean over classes of the average precision, the quality of the ranking. CF1 and OF1: F1 "
    "of the decisions, as the mean over classes and over all labels together."
)

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
    decisions, ap = read_decisions(result), f"{part}_AP"
    choice = choose_propensities(result.label_bias, task.labels.values)
    held_out = HeldOut(
        names=[f"row {row + 1}" if items is None else str(items[row]) for row in rows],
        classes=task.classes,
        probabilities=details.probabilities[part],
        predicted=decisions(details.probabilities[part]),
        labels=task.labels.values[rows],
        complete=None if task.truth is None else task.truth[rows],
        store=task.store,
        texts=None if task.texts is None else [task.texts[row] for row in rows],
        part=PARTS[part],
    )
    sections = [
        Section("Scores", _scores(result) + describe_basis(result) + show_verified({}, 0)),
        Section("Examples", show_examples(held_out)),
        Section("Weak classes", show_weak_classes(held_out, decisions, details.classes, part)),
        Section("What next", show_next_steps(list_next_steps(result, config))),
        Section("Classes", _classes(result, run, details.classes), folded=True),
        Section("Probably missing labels", _missing(held_out, choice), folded=True),
        Section("Best and worst rows", _images(held_out, details.classes, ap), folded=True),
        Section("Decisions", show_decisions(result), folded=True),
        Section("Choice of labels", show_label_bias(result), folded=True),
        Section("Members of the ensemble", show_members(result), folded=True),
        Section("Training", "" if result.members else _training(run), folded=True),
        Section("Images that could not be read", _bad_images(result.bad_images)),
        Section("Time", _time(run, seconds), folded=True),
        Section("Settings", _settings(config), folded=True),
    ]
    path = result.folder / "report.html"
    body = arrange(_head(result, config, task, seconds), sections)
    write_text(path, document(f"{run.name}: {config.method} · halftruth", body))
    return path


def read_decisions(result: Result) -> Decisions:
    """Return the rule and the thresholds of a run."""
    predicted = ~np.isin(result.classes, result.not_predicted)
    return Decisions(parse_rule(result.decide), np.array(result.thresholds), predicted)


def _head(result: Result, config: Config, task: Task, seconds: float) -> str:
    text = escape(task.describe()).replace("\n", "<br>")
    return (
        f"<h1>{escape(result.folder.resolve().name)}</h1>"
        f"<p>Trained with <b>{escape(config.method)}</b> on {escape(config.labels)} in "
        f'{_duration(seconds)}.</p><p class="note">{text}</p>'
    )


def _scores(result: Result) -> str:
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
    return facts(numbers) + f'<p class="note">{_LEGEND}</p>'


def _training(run: Record) -> str:
    shown = []
    for title, text, draw in FIGURES:
        try:
            figure = inline_svg(draw([run]), title)
        except NotRecorded:
            continue
        shown.append(f'<h3>{escape(title)}</h3><p class="note">{escape(text)}</p>{figure}')
    if not shown:
        return ""
    why = "the last one, select: last" if run.config.get("select") == "last" else "the best one"
    kept = f"Kept: epoch {run.result['best_epoch']} of stage {run.result['best_stage']}, {why}."
    return f"<p>{escape(kept)}</p>{''.join(shown)}"


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
        f"{figure}"
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
        f"<p>{held_out.part.capitalize()} rows, scored by models "
        "that were not trained on them: for each class the positives with the highest and the "
        f"lowest score, and the other {kind} with the highest score{unlabelled}. Found and missed "
        f"are decisions of the run, by the thresholds above.{some}</p>"
        + best_and_worst(held_out, classes[ap].to_numpy(dtype=float))
    )


def _missing(held_out: HeldOut, choice: dict[str, Any]) -> str:
    every = len(held_out.names)
    held_out = held_out.at_most(_MOST_LABELS)
    rows = len(held_out.names)
    some = "the" if rows == every else f"{rows:,} of {every:,}"
    if not (held_out.labels == UNKNOWN).any():
        return f"<p>The {held_out.part} rows have no unknown labels.</p>"
    if not (held_out.labels == PRESENT).any():
        return f"<p>The {held_out.part} rows have no positive labels to estimate them from.</p>"
    try:
        known = calibrate(held_out.labels, held_out.probabilities, **choice)
    except NoRankingError as error:
        return f"<p>Missing labels are not known: {escape(str(error))}.</p>"
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
        return text + show_missing(held_out, found)
    listed = [
        (str(item), str(name), f"{score:.3f}", f"{100 * chance:.0f}")
        for item, name, score, chance in found[
            ["item", "class", "score", "probability"]
        ].itertuples(index=False)
    ]
    return text + make_table(["item", "class", "score", "probability, %"], listed)


def _bad_images(bad: list[tuple[str, str]]) -> str:
    if not bad:
        return ""
    more = f"<p>The first 50 of {len(bad):,}; all are in bad_images.csv.</p>" if bad[50:] else ""
    return f"{more}{make_table(['image', 'reason'], bad[:50])}"


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
        ""
        + (make_table(["", "epochs", "per epoch", "time"], rows) if rows[1:] else "")
        + f'<p class="note">{escape(str(device))}, {torch.get_num_threads()} threads, '
        f"{escape(platform.platform(terse=True))}, Python {platform.python_version()}, torch "
        f"{escape(torch.__version__)}. {total_text} includes reading and evaluation, of a "
        "resumed run those of its last start.</p>"
    )


def _settings(config: Config) -> str:
    command = f"halftruth train {shlex.quote(config.out + '/config.yaml')} --out runs/again"
    return f"<pre>{escape(command)}</pre><pre>{escape(config.to_yaml())}</pre>"


def _duration(seconds: float) -> str:
    """1.3 s, 2 min 5 s, 3 h 20 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
