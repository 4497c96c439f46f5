"""`halftruth audit` and `halftruth plan`: find missing and wrong labels, and what to ask next."""

import inspect
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from halftruth.cli import options as o
from halftruth.cli.review_commands import Export, export_for
from halftruth.cli.terminal import say_next, tell

if TYPE_CHECKING:
    from halftruth.presence.uncertainty import Estimate

TRAINING = "Training by folds (when no scores are given)"
_ASSUMPTIONS = "How labels came to be missing"
# Settings of what is audited, and of the training of each fold.
_INPUTS = ("images", "features", "text", "encoder", "complete_rows", "device")
_FOLD_SETTINGS = (
    "method", "quality", "backbone", "weights", "image_size", "tune", "epochs", "head_epochs",
    "seed", "group_column",
)  # fmt: skip


@o.with_options(
    reading=o.READING_OPTIONS,
    inputs=o.setting_options(
        _INPUTS,
        complete_rows="Text file with one item per line: rows labelled completely. (default: that "
        "of the run)",
    ),
    training=o.setting_options(
        _FOLD_SETTINGS,
        TRAINING,
        seed="Seed of folds and training. (default: 0)",
        group_column="Rows with the same value (such as a patient) stay in one fold.",
    ),
)
def audit(
    source: Annotated[
        Path,
        typer.Argument(help="A run folder, probabilities, or the label file."),
    ],
    reading: dict[str, object],
    inputs: dict[str, Any],
    training: dict[str, object],
    labels: Annotated[
        Path | None, typer.Argument(help="Label file, if SOURCE is a run or probabilities.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")] = Path("audit"),
    split: Annotated[str | None, typer.Option(help="Only this part: train, val or test.")] = None,
    selection: Annotated[
        Literal["auto", "missing_at_random", "single_positive"],
        typer.Option(
            metavar="<text>",
            help="How labels are missing: auto, missing_at_random or single_positive.",
            rich_help_panel=_ASSUMPTIONS,
        ),
    ] = "auto",
    unlabelled_rows: Annotated[
        Literal["auto", "kept", "dropped"],
        typer.Option(
            metavar="<text>",
            help="Rows without a label: auto, kept or dropped.",
            rich_help_panel=_ASSUMPTIONS,
        ),
    ] = "auto",
    most: Annotated[int, typer.Option(min=1, help="Most candidates of each kind.")] = 100_000,
    folds: Annotated[
        int | None,
        typer.Option(
            help="Number of folds, each scored by a model trained on the others. (default: 5)",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="key=value: an argument of the method.", rich_help_panel=TRAINING
        ),
    ] = None,
    train: Annotated[
        list[str] | None,
        typer.Option(
            help="key=value: any other setting of `halftruth train`.", rich_help_panel=TRAINING
        ),
    ] = None,
    read_features: Annotated[
        list[str] | None, typer.Option(help="key=value: how to read the features.")
    ] = None,
    engine: o.Engine = None,
    address: o.Address = None,
    overwrite: o.Overwrite = False,
) -> None:
    """Find missing and wrong labels: ranked candidates, estimated counts, a report.

    halftruth audit labels.csv --images photos/              (trains by folds)

    halftruth audit runs/first labels.csv --images photos/   (scores of a run)

    halftruth audit probs.csv labels.csv                     (any model)
    """
    from halftruth.train.config import check_device

    check_device(inputs.get("device", "auto"))
    o.check_folder(out)
    o.check_engine(engine, address)
    from halftruth.audit.audit_folder import list_foreign_files
    from halftruth.audit.make_audit import make_audit
    from halftruth.report.audit_report import write_audit_report
    from halftruth.train.trainer import Interrupted

    nested = {
        "options": o.assignments(set_, "--set"),
        "reading_features": o.assignments(read_features, "--read-features"),
    }
    more = o.assignments(train, "--train")
    own = {*_INPUTS, *_FOLD_SETTINGS, *nested, "folds", *inspect.signature(make_audit).parameters}
    if taken := sorted(more.keys() & own):
        raise typer.BadParameter(
            f"{', '.join(taken)}: has an option or argument of its own; see halftruth audit --help",
            param_hint="--train",
        )
    given = {
        name: value for name, value in {"folds": folds, **nested}.items() if value not in (None, {})
    }
    if labels is not None or source.is_file():
        o.check_outputs(list_foreign_files(out, labels or source), overwrite=overwrite)
    trainer = None
    if engine == "ray":
        from halftruth.ray import run_tasks

        trainer = partial(run_tasks, address=address)
    try:
        found = make_audit(
            source, labels, out=out, split=split, reading=reading, selection=selection, most=most,
            unlabelled_rows=unlabelled_rows, engine=trainer, quiet=False, log=tell, **inputs,
            **training, **more, **given,
        )  # fmt: skip
    except Interrupted as stop:
        tell("stopped; the same command continues")
        raise typer.Exit(130) from stop
    write_audit_report(found)
    _show(found)


@o.with_options(reading=o.READING_OPTIONS, inputs=o.setting_options(_INPUTS[:4]))
def plan(
    source: Annotated[Path, typer.Argument(help="Folder of an audit, or a label file.")],
    budget: Annotated[int, typer.Option(min=1, help="Number of labels (or rows) to ask for.")],
    reading: dict[str, Any],
    inputs: dict[str, Any],
    unit: Annotated[
        Literal["labels", "rows"],
        typer.Option(help="What the budget counts: single labels, or rows labelled completely."),
    ] = "labels",
    goal: Annotated[
        Literal["gain", "find", "evaluate"],
        typer.Option(
            help="gain: most gain in mAP and F1; find: most missing labels; evaluate: drawn at "
            "random, for metrics without bias."
        ),
    ] = "gain",
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")] = Path("plan"),
    export: Export = None,
    seed: Annotated[int, typer.Option(help="Seed of folds and of random choices.")] = 0,
) -> None:
    """Propose which labels to collect next, and forecast what they bring.

    halftruth plan audit/ --budget 500

    halftruth plan audit/ --budget 100 --unit rows                   (all labels of 100 rows)

    halftruth plan labels.csv --images photos/ --budget 500          (trains by folds)
    """
    from halftruth.audit.audit_folder import INFO, open_audit
    from halftruth.audit.make_audit import make_audit
    from halftruth.audit.plan import plan_labels
    from halftruth.data import DataError

    o.check_folder(out)
    o.check_outputs(out.iterdir() if out.is_dir() else ())
    if source.is_dir() or (source / INFO).exists():
        if given := [*inputs, *reading]:
            raise DataError(
                f"{', '.join(given)}: no effect, since labels and scores come from the audit "
                f"{source}"
            )
        audited = open_audit(source)
    else:
        folder = out.with_name(f"{out.name}-audit")
        audited = make_audit(
            source, out=folder, reading=reading, seed=seed, quiet=False, log=tell, **inputs
        )
    found = plan_labels(audited, out, budget=budget, unit=unit, goal=goal, seed=seed)
    tell(found.describe())
    tell(f"proposed labels: {out}/plan.csv")
    export_for(out, export)
    say_next("answer them in a browser", "review", out)


def _round(count: "Estimate") -> str:
    return f"{count.value:,.0f} ({count.low:,.0f} to {count.high:,.0f})"


def _show(found: Any) -> None:
    from rich.table import Table

    from halftruth.audit.audit_state import read_audit_state
    from halftruth.report.audit_report import describe_limits

    current = read_audit_state(found)
    tell(
        f"estimated missing labels: {_round(current.missing_left.total)}\n"
        f"estimated wrong labels: {_round(current.wrong_left.total)}"
    )
    if words := current.describe_wrong():
        tell(words)
    table = Table("expected precision", "candidates", "expected correct")
    for one in current.precision_table().itertuples():
        table.add_row(f"{one.precision:.0%}", f"{one.candidates:,}", f"{one.expected_right:,.0f}")
    Console().print(table)
    for text in describe_limits(found, current):
        tell(f"WARNING: {text}")
    tell(
        f"report: {found.path}/report.html; ranked candidates: {found.path}/missing.csv and "
        "wrong.csv"
    )
    say_next("accept or reject them in a browser", "review", found.path)
    say_next("choose the labels to collect next", "plan", found.path, "--budget", 500)
