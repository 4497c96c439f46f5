"""All figures of one run or of several side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from halftruth.data import DataError
from halftruth.plots.class_figures import draw_classes
from halftruth.plots.epoch_figures import (
    draw_ambiguity,
    draw_corrected,
    draw_curves,
    draw_labelled_loss,
    draw_predictive_values,
    draw_separation,
)
from halftruth.plots.probability_figures import (
    draw_class_distributions,
    draw_distributions,
    draw_false_negatives,
)
from halftruth.plots.run_records import NotRecorded, Record, read_runs
from halftruth.plots.style import Drawing

FIGURES: dict[str, Callable[[Sequence[Record]], Drawing]] = {
    "curves": draw_curves,
    "distributions": draw_distributions,
    "class-distributions": draw_class_distributions,
    "separation": draw_separation,
    "ambiguity": draw_ambiguity,
    "corrected": draw_corrected,
    "predictive-values": draw_predictive_values,
    "false-negatives": draw_false_negatives,
    "labelled-loss": draw_labelled_loss,
    "classes": draw_classes,
}


def draw_runs(
    folders: Sequence[str | Path], figures: Iterable[str] = (), classes: Sequence[str] = ()
) -> tuple[list[Drawing], list[str]]:
    """Figures of the runs in these folders, and why others could not be drawn.

    `figures` are names in FIGURES, all of them by default; one that is asked for by name and
    cannot be drawn is an error. `classes` are those of "class-distributions".
    """
    asked = list(figures)
    if unknown := [name for name in asked if name not in FIGURES]:
        raise DataError(
            f"there is no figure {', '.join(unknown)}; the figures are: {', '.join(FIGURES)}"
        )
    runs, drawn, left_out = read_runs(folders), [], []
    for name in asked or FIGURES:
        try:
            if name == "class-distributions":
                drawn.append(draw_class_distributions(runs, classes))
            else:
                drawn.append(FIGURES[name](runs))
        except NotRecorded as reason:
            if asked:
                raise NotRecorded(f"{name}: {reason}") from reason
            left_out.append(f"{name}: {reason}")
    return drawn, left_out
