"""`halftruth plot ...`: figures of losses, data, runs, searches and benchmarks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from halftruth.cli import shared_options as o
from halftruth.cli.label_options import known_only, reads_labels

if TYPE_CHECKING:
    from halftruth.plots.style import Drawing

app = typer.Typer(
    help="Figures, with their numbers beside them as CSV.",
    no_args_is_help=True,
)
console = Console()

Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="FILE.svg, .pdf or .png; without an ending .svg and .png. Where there are several "
        "figures, a folder, or the beginning of their names.",
    ),
]


@app.command("losses")
def losses(
    methods: Annotated[
        list[str],
        typer.Argument(help="Names, with arguments as in asl:gamma_neg=2,margin=0.2"),
    ],
    at: Annotated[
        str, typer.Option(help="Places in the schedule, from 0 (first epoch) to 1 (last).")
    ] = "0",
    epochs: Annotated[int, typer.Option(help="Epochs of the schedule.")] = 10,
    classes: Annotated[int, typer.Option(help="Classes a row has, where a method asks.")] = 20,
    out: Out = None,
) -> None:
    """Loss and gradient over the probability, by the label: any methods side by side.

    halftruth plot losses hill asl gr --at 0,0.5,1
    """
    from halftruth.plots.loss_figures import draw_losses

    places = _numbers(at, "--at")
    with _complaints():
        drawing = draw_losses(methods, places, epochs=epochs, classes=classes)
    _keep([drawing], out, Path("plots/losses"))


@app.command("surface")
def surface(
    method: Annotated[str, typer.Argument(help="A method: any-class, any-class:lam=0.05")],
    out: Out = None,
) -> None:
    """Likelihood of two classes over both probabilities; for any-class its means, too.

    halftruth plot surface any-class:lam=0.05
    """
    from halftruth.plots.surface_figures import draw_means, draw_surface

    with _complaints():
        drawings = [draw_surface(method)]
    if method.startswith("any-class"):
        drawings.append(draw_means())
    _keep(drawings, out, Path("plots"))


@app.command("run")
def run(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    figure: Annotated[
        list[str] | None,
        typer.Option("--figure", "-f", help="Only this figure; may be repeated."),
    ] = None,
    class_: Annotated[
        list[str] | None,
        typer.Option("--class", help="A class for class-distributions; may be repeated."),
    ] = None,
    out: Out = None,
) -> None:
    """Learning curves, probabilities, corrected labels, classes: one run, or several in one figure.

    Where the complete labels were given to `train --truth`, hidden labels are told from negative
    ones.

    halftruth plot run runs/an runs/em --out figures/
    """
    from halftruth.plots.run_figures import draw_runs

    drawings, left_out = draw_runs(runs, figure or (), class_ or ())
    _keep(drawings, out, runs[0] / "plots" if len(runs) == 1 else Path("plots"))
    for reason in left_out:
        _say(f"left out: {reason}")


@app.command("data")
@reads_labels
def data(
    labels: Annotated[Path, typer.Argument(help="Label file.")],
    reading: dict[str, Any],
    truth: Annotated[Path | None, typer.Option(help="Complete labels of the same items.")] = None,
    hide: Annotated[
        str | None,
        typer.Option(help="Take the file for complete and hide: single, drop-0.8, known-0.1."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of what is hidden.")] = 1200,
    groups: Annotated[
        Path | None, typer.Option(help="YAML file of categories: `vehicles: [car, bus]`.")
    ] = None,
    read_truth: Annotated[
        list[str] | None, typer.Option(help="key=value: how to read the truth, where it differs.")
    ] = None,
    out: Out = None,
) -> None:
    """Label counts, positives a row, co-occurrence, and what is hidden where that is known.

    halftruth plot data labels.csv --zero absent --hide single
    """
    from halftruth.plots.label_figures import draw_data, read_hidden

    how = known_only(o.assignments(read_truth, "--read-truth"), "--read-truth")
    matrix, complete = read_hidden(labels, reading, truth, how, hide, seed)
    if groups is not None:
        from halftruth.plots.class_groups import grouped, read_groups

        matrix, complete = grouped(matrix, complete, read_groups(groups))
    _keep(draw_data(matrix, complete), out, Path("plots"))


@app.command("tune")
def tune(
    study: Annotated[
        str, typer.Argument(help="Folder of `halftruth tune`, its study.db, or a storage's URL.")
    ],
    name: Annotated[
        str | None, typer.Option("--study", help="The study, where a storage holds several.")
    ] = None,
    out: Out = None,
) -> None:
    """How a search went, and how its result hangs on each setting.

    halftruth plot tune runs/tune
    """
    from halftruth.plots.search_figures import draw_study

    folder = Path(study) if Path(study).is_dir() else Path()
    _keep(draw_study(study, name), out, folder / "plots")


@app.command("bench")
def bench(
    results: Annotated[list[Path], typer.Argument(help="Files of results of `halftruth bench`.")],
    metric: Annotated[str, typer.Option(help="mAP, CF1, OF1, ...")] = "mAP",
    method: Annotated[
        list[str] | None, typer.Option("--method", "-m", help="Only this; may be repeated.")
    ] = None,
    out: Out = None,
) -> None:
    """Methods side by side with published numbers, and what the settings tried change.

    halftruth plot bench results/voc.jsonl --out figures/
    """
    from halftruth.plots.bench_figures import draw_bench

    drawings, left_out = draw_bench(results, metric, method or ())
    _keep(drawings, out, Path("plots"))
    for reason in left_out:
        _say(f"left out: {reason}")


def _numbers(text: str, option: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(
            f"expected numbers with commas between, got {text!r}", param_hint=option
        ) from error


class _complaints:
    """A method that does not exist, or not with these arguments, is the user's to mend."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, (ValueError, TypeError)):
            raise typer.BadParameter(str(error)) from error


def _keep(drawings: Iterable[Drawing], out: Path | None, default: Path) -> None:
    from halftruth.plots.style import save_all

    for path in save_all(list(drawings), default if out is None else out):
        _say(str(path))


def _say(text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
