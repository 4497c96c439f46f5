"""The `halftruth` command. Each command only translates options: the work is in the library."""

import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halftruth import __version__
from halftruth.cli import options as o
from halftruth.cli.audit_commands import audit, plan
from halftruth.cli.bench_commands import app as bench_app
from halftruth.cli.hub_commands import app as hub_app
from halftruth.cli.plot_commands import app as plot_app
from halftruth.cli.review_commands import import_verdicts, repair, review
from halftruth.cli.run_commands import decide, evaluate, export, predict
from halftruth.cli.serve_commands import serve
from halftruth.cli.short_help import use_short_help
from halftruth.cli.terminal import say, say_next, show_methods
from halftruth.cli.train_commands import calibrate, train, tune
from halftruth.reading import READING, list_options

if TYPE_CHECKING:
    import numpy as np

    from halftruth.labels import LabelMatrix

BASELINE = "bce"

app = typer.Typer(
    help="Multi-label learning when many labels are missing.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="Check a label file before training.", no_args_is_help=True)
app.add_typer(data_app, name="data")
app.add_typer(bench_app, name="bench")
app.add_typer(hub_app, name="hub")
app.add_typer(plot_app, name="plot")
for _command in (
    train,
    tune,
    calibrate,
    evaluate,
    predict,
    decide,
    export,
    audit,
    review,
    repair,
    import_verdicts,
    plan,
    serve,
):
    app.command()(_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"halftruth {__version__}")
        raise typer.Exit


@app.callback()
def options_of_halftruth(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Multi-label learning when many labels are missing."""


@app.command()
def methods(
    pattern: Annotated[str, typer.Argument(help='A name or a pattern such as "ll-*".')] = "*",
) -> None:
    """List the methods: paper, how unknown labels are treated, needs, default arguments.

    halftruth methods "ll-*"
    """
    try:
        show_methods(pattern)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


@data_app.command("check")
@o.with_options(reading=o.READING_OPTIONS)
def check(
    labels: Annotated[Path, typer.Argument(help="Label file.")],
    reading: dict[str, Any],
    images: o.Images = None,
    features: o.Features = None,
    complete_rows: Annotated[
        Path | None,
        typer.Option(
            help="Second label file, with the complete labels of some items: tests whether the "
            "labels prefer some classes."
        ),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Threads that read images.")] = 2,
) -> None:
    """Show statistics and problems of a label file, and suggest a method.

    halftruth data check labels.csv --images photos/
    """
    from halftruth.data import ImageStore, check_data, read_labels
    from halftruth.train.run_logger import RunLogger

    matrix = read_labels(labels, **{**_keep_duplicates(labels), **reading})
    store = ImageStore(images) if images else None
    values, ids, names = None, None, None
    if features:
        values, ids, names = _read_features(features, reading.get("arff_labels"))
    with RunLogger(None, quiet=store is None).progress("reading images", len(matrix)) as advance:
        report = check_data(
            matrix, store, values, feature_ids=ids, feature_names=names, workers=workers,
            progress=advance,
        )  # fmt: skip
    say(report.text())
    say(suggest_method(matrix, None if values is None else values.shape[1]))
    for line in describe_choice(matrix, values if report.ok else None, ids, complete_rows, reading):
        say(line)
    if not report.ok:
        raise typer.Exit(1)
    inputs = [word for path in images or () for word in ("--images", path)]
    inputs += [word for path in features or () for word in ("--features", path)]
    say_next("train", "train", labels, *inputs, *list_options(reading), "--out", "runs/first")


def describe_choice(
    labels: "LabelMatrix",
    features: "np.ndarray | None",
    ids: "np.ndarray | None",
    complete_rows: Path | None,
    reading: dict[str, object],
) -> list[str]:
    """Say whether labels look biased, by complete rows if given, otherwise by features."""
    import numpy as np

    from halftruth.data import DataError, named_splits
    from halftruth.data.complete_rows import add_complete_rows
    from halftruth.data.features import align_features
    from halftruth.labels import UNKNOWN
    from halftruth.train.auto.frequency_bias import find_frequency_bias
    from halftruth.train.auto.label_bias import collect_bias_facts, describe_bias
    from halftruth.train.ensemble.preparation import prepare_features

    values, first, test = labels.values, None, None
    if complete_rows is not None:
        whole, first = add_complete_rows(labels, complete_rows, reading)
        values = whole.values
        if first is None:
            raise DataError(
                f"complete_rows (--complete-rows): {complete_rows} only names rows; to test how "
                "labels were chosen, give a label file with their complete labels"
            )
    elif features is not None:
        rows = np.arange(len(values)) if labels.split is None else named_splits(labels.split).train
        matrix = align_features(features, ids, labels)[rows]
        test = find_frequency_bias(prepare_features(matrix), values[rows])
    elif (values == UNKNOWN).any():
        return [
            "whether the labels prefer some classes is tested with --features, or better with the "
            "complete labels of about 100 random rows (--complete-rows)"
        ]
    none = np.zeros((0, values.shape[1]), dtype=bool)
    return describe_bias(collect_bias_facts(labels.classes, values, first, none, none, test))


def _read_features(
    paths: list[str], arff_labels: object
) -> "tuple[np.ndarray, np.ndarray | None, list[str]]":
    """The features of all files as one matrix, the ids of its rows, the names of its columns."""
    import numpy as np

    from halftruth.train.inputs.feature_encoder import FeatureEncoder, read_sources

    sources = read_sources(paths, arff_labels=arff_labels)
    rows = np.arange(len(sources[0]))
    fitted = FeatureEncoder.fit(sources, None, None, rows)
    return np.asarray(fitted.transform(sources)), sources[0].ids, fitted.outputs


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")] = Path(
        "runs/demo"
    ),
    seed: Annotated[int, typer.Option(help="Seed of scenes, hidden labels and training.")] = 0,
    browser: Annotated[
        bool, typer.Option(help="Open the page at the end, if the command runs in a terminal.")
    ] = True,
    overwrite: o.Overwrite = False,
) -> None:
    """Run everything on generated images: hide labels, train, compare, find the hidden labels.

    halftruth demo --out runs/demo
    """
    import webbrowser

    from halftruth.demo import run_demo

    o.check_folder(out)
    o.check_outputs(out / "index.html", overwrite=overwrite)
    run_demo(out, seed=seed)
    if browser and sys.stdout.isatty():
        webbrowser.open((out / "index.html").resolve().as_uri())


def suggest_method(labels: "LabelMatrix", dim: int | None = None) -> str:
    """One line on what `auto` would choose for these labels on `dim` features, or on images."""
    from halftruth.data import training_part
    from halftruth.train.auto.resolve import choose_settings
    from halftruth.train.config import AUTO

    if dim is not None:
        return f"{AUTO}, the default, fits an ensemble; to compare: --method {BASELINE}"
    # The last reason is about learning rates and steps, which depend on the features.
    choice = choose_settings(training_part(labels).values, 1)
    reasons = choice.reasons[:-1]
    chosen = choice.settings["method"]
    options = "".join(f" --set {key}={value}" for key, value in choice.settings["options"].items())
    compare = "" if chosen == BASELINE else f"; to compare: --method {BASELINE}"
    return f"{AUTO}, the default, would choose {chosen}{options} ({'; '.join(reasons)}){compare}"


def _keep_duplicates(labels: Path) -> dict[str, object]:
    """Several rows of an item go into the report instead of ending the check."""
    from halftruth.data.readers import format_of

    return {"duplicates": "keep"} if format_of(labels) in READING["duplicates"].formats else {}


use_short_help(app)


def main() -> None:
    """Run the command; a mistake of the user is one message, not a traceback."""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            app(prog_name="halftruth")
        except Exception as error:
            code = _exit_code(error)
            if code is None:
                raise
            message = error.as_options() if hasattr(error, "as_options") else str(error)
            _print_once(f"error: {message}", "red")
            sys.exit(code)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    _print_once(f"warning: {message}", "yellow")


def _print_once(text: str, style: str) -> None:
    """Print to stderr; of several processes with the same message only the first prints it."""
    if os.environ.get("RANK", "0") == "0":
        say(text, style=style, error=True)


def _exit_code(error: Exception) -> int | None:
    """1: training could not continue. 2: a mistake of the user. None: a bug.

    Every exception class that this package defines is meant for the user.
    """
    own = [cls.__name__ for cls in type(error).__mro__ if cls.__module__.startswith("halftruth.")]
    if "TrainingStopped" in own:
        return 1
    install = isinstance(error, ImportError) and "pip install" in str(error)
    return 2 if own or install or isinstance(error, OSError) else None
