"""The `halftruth` command. Each command only translates options: the work is in the library."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from halftruth.cli import shared_options as o
from halftruth.cli.audit_commands import audit, repair, review
from halftruth.cli.bench_commands import app as bench_app
from halftruth.cli.label_options import reads_labels
from halftruth.cli.plot_commands import app as plot_app
from halftruth.cli.run_commands import evaluate, export, predict
from halftruth.cli.train_command import train
from halftruth.cli.tune_command import tune

app = typer.Typer(
    help="Multi-label learning when the labels tell only half the truth.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="Look at a label file before training.", no_args_is_help=True)
app.add_typer(data_app, name="data")
app.add_typer(bench_app, name="bench")
app.add_typer(plot_app, name="plot")
app.command()(train)
app.command()(tune)
app.command()(evaluate)
app.command()(predict)
app.command()(export)
app.command()(audit)
app.command()(review)
app.command()(repair)
console = Console()


@app.command()
def methods(
    pattern: Annotated[str, typer.Argument(help='A name or a pattern such as "ll-*".')] = "*",
) -> None:
    """Every method: paper, what it makes of unknown labels, needs, defaults."""
    from halftruth.cli.terminal_tables import show_methods

    try:
        show_methods(console, pattern)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


@data_app.command("check")
@reads_labels
def check(
    labels: Annotated[Path, typer.Argument(help="Label file.")],
    reading: dict[str, Any],
    images: o.Images = None,
    features: o.Features = None,
    workers: Annotated[int, typer.Option(help="Threads that read images.")] = 2,
) -> None:
    """Statistics and problems of a label file, and a method that fits."""
    from halftruth.data import ImageStore, check_data, read_features, read_labels

    matrix = read_labels(labels, **{**_duplicates_kept(labels), **reading})
    report = check_data(
        matrix,
        ImageStore(images) if images else None,
        read_features(features) if features else None,
        workers=workers,
    )
    console.print(report.text(), highlight=False, markup=False, soft_wrap=True)
    if not report.ok:
        raise typer.Exit(1)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")] = Path(
        "runs/demo"
    ),
    seed: Annotated[int, typer.Option(help="Of scenes, hidden labels and training.")] = 0,
) -> None:
    """The whole job on pictures made on the spot: hide labels, train, compare, find them again."""
    from halftruth.demo import run_demo

    run_demo(out, seed=seed)


def _duplicates_kept(labels: Path) -> dict[str, Any]:
    """Rows of the same item are for the report to tell of, where a format can have them."""
    from halftruth.data.readers import READERS, format_of

    return {"duplicates": "keep"} if "duplicates" in READERS[format_of(labels)][1] else {}


def main() -> None:
    """Run the command; expected errors are one message, not a traceback."""
    try:
        app(prog_name="halftruth")
    except Exception as error:
        code = _exit_code(error)
        if code is None:
            raise
        # Of several processes that all meet the same error, one tells of it.
        if os.environ.get("RANK", "0") == "0":
            console = Console(stderr=True)
            text = f"error: {error}"
            console.print(text, style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(code)


def _exit_code(error: Exception) -> int | None:
    """1: training could not go on. 2: something that was given is wrong. None: a bug."""
    # Imported only now: `halftruth --help` should not wait for torch.
    from halftruth.bench.tune import TuneError
    from halftruth.data import BadImage, DataError
    from halftruth.models import ModelError
    from halftruth.models.export import ExportError
    from halftruth.train import CheckpointError, ConfigError, TrainingStopped

    if isinstance(error, TrainingStopped):
        return 1
    given = (
        BadImage, DataError, CheckpointError, ConfigError, ExportError, ModelError, OSError,
        TuneError,
    )  # fmt: skip
    return 2 if isinstance(error, given) else None
