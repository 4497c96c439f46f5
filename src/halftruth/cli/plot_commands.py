"""`halftruth plot ...`: figures of losses, data, runs, searches and benchmarks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from halftruth.cli import options as o
from halftruth.cli.terminal import say

if TYPE_CHECKING:
    from halftruth.plots.style import Drawing

app = typer.Typer(
    help="Draw figures; the numbers are written next to them as CSV.",
    no_args_is_help=True,
)

Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="File that ends in .svg, .pdf or .png; without an ending both .svg and .png. For "
        "several figures a folder, or the beginning of the file names.",
    ),
]


@app.command("losses")
def losses(
    methods: Annotated[
        list[str],
        typer.Argument(help="Methods, with arguments as in asl:gamma_neg=2,margin=0.2"),
    ],
    at: Annotated[
        str, typer.Option(help="Positions in the schedule, from 0 (first epoch) to 1 (last).")
    ] = "0",
    epochs: Annotated[int, typer.Option(help="Number of epochs in the schedule.")] = 10,
    classes: Annotated[
        int, typer.Option(help="Number of classes, for methods that depend on it.")
    ] = 20,
    out: Out = None,
    overwrite: o.Overwrite = False,
) -> None:
    """Draw loss and gradient of any methods over the probability, per kind of label.

    halftruth plot losses hill asl gr --at 0,0.5,1
    """
    from halftruth.plots.loss_figures import draw_losses

    positions = _parse_numbers(at, "--at")
    with _option_errors():
        drawing = draw_losses(methods, positions, epochs=epochs, classes=classes)
    _save([drawing], out, Path("plots/losses"), overwrite)


@app.command("surface")
def surface(
    method: Annotated[
        str, typer.Argument(help="A method, with arguments as in any-class:lam=0.05")
    ],
    out: Out = None,
    overwrite: o.Overwrite = False,
) -> None:
    """Draw the likelihood of two classes over both probabilities; for any-class also its means.

    halftruth plot surface any-class:lam=0.05
    """
    from halftruth.plots.loss_figures import draw_means, draw_surface

    with _option_errors():
        drawings = [draw_surface(method)]
    if method.startswith("any-class"):
        drawings.append(draw_means())
    _save(drawings, out, Path("plots"), overwrite)


@app.command("run")
def run(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    figure: Annotated[
        list[str] | None,
        typer.Option("--figure", "-f", help="Draw only this figure; may be repeated."),
    ] = None,
    class_: Annotated[
        list[str] | None,
        typer.Option("--class", help="A class for class-distributions; may be repeated."),
    ] = None,
    out: Out = None,
    overwrite: o.Overwrite = False,
) -> None:
    """Draw learning curves, probabilities, corrected labels and classes of one or several runs.

    If `train --truth` was given the complete labels, hidden positives are shown apart from
    negatives.

    halftruth plot run runs/an runs/em --out figures/
    """
    from halftruth.plots.run_figures import draw_runs

    drawings, left_out = draw_runs(runs, figure or (), class_ or ())
    _save(drawings, out, runs[0] / "plots" if len(runs) == 1 else Path("plots"), overwrite)
    for reason in left_out:
        say(f"left out: {reason}")


@app.command("data")
@o.with_options(reading=o.READING_OPTIONS)
def data(
    labels: Annotated[Path, typer.Argument(help="Label file.")],
    reading: dict[str, object],
    truth: Annotated[Path | None, typer.Option(help="Complete labels of the same items.")] = None,
    read_truth: Annotated[
        list[str] | None,
        typer.Option(help="key=value: how to read the file of --truth, if it differs."),
    ] = None,
    out: Out = None,
    overwrite: o.Overwrite = False,
) -> None:
    """Draw label counts, positives per row, co-occurrence, and hidden labels if known.

    halftruth plot data observed.csv --truth labels.csv
    """
    from halftruth.data import read_labels
    from halftruth.plots.label_figures import draw_data, read_with_truth

    how = o.check_reading(o.assignments(read_truth, "--read-truth"), "--read-truth")
    if how and truth is None:
        raise typer.BadParameter("--read-truth has no effect without --truth")
    if truth is None:
        drawings = draw_data(read_labels(labels, **reading))  # type: ignore[arg-type]
    else:
        drawings = draw_data(*read_with_truth(labels, reading, truth, how))
    _save(drawings, out, Path("plots"), overwrite, labels, truth)
    if all(drawing.name != "co-occurrence" for drawing in drawings):
        say("left out: co-occurrence: no row has two present labels")


@app.command("bench")
def bench(
    results: Annotated[list[Path], typer.Argument(help="Result files of `halftruth bench`.")],
    metric: Annotated[str, typer.Option(help="mAP, CF1, OF1, ...")] = "mAP",
    method: Annotated[
        list[str] | None,
        typer.Option("--method", "-m", help="Draw only this method; may be repeated."),
    ] = None,
    out: Out = None,
    overwrite: o.Overwrite = False,
) -> None:
    """Draw methods next to published numbers.

    halftruth plot bench results/voc.jsonl --out figures/
    """
    from halftruth.plots.bench_figures import draw_bench

    _save([draw_bench(results, metric, method or ())], out, Path("plots"), overwrite, results)


def _parse_numbers(text: str, option: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(
            f"expected numbers separated by commas, got {text!r}", param_hint=option
        ) from error


@contextlib.contextmanager
def _option_errors() -> Iterator[None]:
    """Report an unknown method or a wrong argument as an error of the command line."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(str(error)) from error


def _save(
    drawings: Iterable[Drawing], out: Path | None, default: Path, overwrite: bool, *read: object
) -> None:
    from halftruth.plots.style import name_files, save_all

    drawings, place = list(drawings), default if out is None else out
    o.check_outputs(name_files(drawings, place), *read, overwrite=overwrite)
    for path in save_all(drawings, place):
        say(str(path))
