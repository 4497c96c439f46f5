"""`halftruth audit` and `halftruth plan`: find missing and wrong labels, and what to ask next."""

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from halftruth.cli import options as o
from halftruth.cli.review_commands import Export, export_for
from halftruth.cli.terminal import tell

if TYPE_CHECKING:
    from halftruth.presence.uncertainty import Estimate

TRAINING = "Training by folds (when no scores are given)"


# Settings of the training of each fold.
_FOLD_SETTINGS = (
    "method", "backbone", "weights", "image_size", "tune", "epochs", "head_epochs", "seed",
    "group_column",
)  # fmt: skip


@o.with_options(
    reading=o.READING_OPTIONS,
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
        typer.Argument(help="A run folder, a probability file, or the label file (k-fold)."),
    ],
    reading: dict[str, Any],
    training: dict[str, Any],
    labels: Annotated[
        Path | None, typer.Argument(help="Label file, if SOURCE is a run or probabilities.")
    ] = None,
    images: o.Images = None,
    features: o.Features = None,
    text: o.Text = None,
    encoder: o.Encoder = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")] = Path("audit"),
    split: Annotated[str | None, typer.Option(help="Only this part: train, val or test.")] = None,
    complete_rows: Annotated[
        Path | None,
        typer.Option(
            help="Text file with one item per line: rows labelled completely. (default: that of "
            "the run)"
        ),
    ] = None,
    selection: Annotated[
        Literal["auto", "random", "one"],
        typer.Option(help="How labels came to be missing: at random, or all but one per row."),
    ] = "auto",
    most: Annotated[
        int, typer.Option(min=1, help="Maximum number of candidates of each kind.")
    ] = 100_000,
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
    device: o.Device = None,
) -> None:
    """Find missing and wrong labels: ranked candidates, estimated counts, a report.

    halftruth audit labels.csv --images photos/ --folds 5 --method em     (trains by folds)

    halftruth audit runs/first labels.csv --images photos/                (scores of a run)

    halftruth audit probs.csv labels.csv                                  (scores of any model)
    """
    from halftruth.train.config import check_device

    check_device(device or "auto")
    o.check_folder(out)
    from halftruth.audit.make_audit import make_audit
    from halftruth.report.audit_report import write_audit_report
    from halftruth.train.trainer import Interrupted

    seed, group_column = training.pop("seed", 0), training.pop("group_column", None)
    if folds is not None:
        training["folds"] = folds
    if set_:
        training["options"] = o.assignments(set_, "--set")
    more = o.assignments(train, "--train")
    if taken := sorted(more.keys() & {*training, *inspect.signature(make_audit).parameters}):
        raise typer.BadParameter(
            f"{', '.join(taken)}: has an option or argument of its own; see halftruth audit --help",
            param_hint="--train",
        )
    training |= more
    try:
        found = make_audit(
            source,
            labels,
            out=out,
            images=images or None,
            features=features or None,
            text=text,
            encoder=encoder,
            split=split,
            seed=seed,
            group_column=group_column,
            complete_rows=complete_rows,
            reading=reading,
            reading_features=o.assignments(read_features, "--read-features"),
            selection=selection,
            most=most,
            device=device or "auto",
            quiet=False,
            log=tell,
            **training,
        )
    except Interrupted as stop:
        tell("stopped; the same command continues")
        raise typer.Exit(130) from stop
    write_audit_report(found)
    _show(found)


@o.with_options(reading=o.READING_OPTIONS)
def plan(
    source: Annotated[Path, typer.Argument(help="Folder of an audit, or a label file.")],
    budget: Annotated[int, typer.Option(min=1, help="Number of labels (or rows) to ask for.")],
    reading: dict[str, Any],
    images: o.Images = None,
    features: o.Features = None,
    text: o.Text = None,
    encoder: o.Encoder = None,
    unit: Annotated[
        Literal["labels", "rows"],
        typer.Option(help="What the budget counts: single labels, or rows labelled completely."),
    ] = "labels",
    goal: Annotated[
        Literal["gain", "find", "rare", "diverse", "learn", "evaluate"],
        typer.Option(
            help="gain: most gain in mAP and F1; find: most missing labels; rare: those of rare "
            "classes; diverse: from rows that differ; learn: uncertain ones; evaluate: drawn at "
            "random, for metrics without bias."
        ),
    ] = "gain",
    versus: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Also forecast this many of the other unit: with --unit rows single labels, with "
            "--unit labels rows.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")] = Path("plan"),
    export: Export = None,
    seed: Annotated[int, typer.Option(help="Seed of folds and of random choices.")] = 0,
) -> None:
    """Propose which labels to collect next, and forecast what they bring.

    halftruth plan audit/ --budget 500

    halftruth plan audit/ --budget 500 --unit rows --versus 5000     (rows or single labels?)

    halftruth plan labels.csv --images photos/ --budget 500          (trains by folds)
    """
    from halftruth.audit.audit_folder import INFO, open_audit
    from halftruth.audit.make_audit import make_audit
    from halftruth.audit.plan import plan_labels
    from halftruth.data import DataError

    o.check_folder(out)
    if source.is_dir() or (source / INFO).exists():
        inputs = o.given(images=images, features=features, text=text, encoder=encoder, **reading)
        if inputs:
            raise DataError(
                f"{', '.join(inputs)}: no effect, since labels and scores come from the audit "
                f"{source}"
            )
        audited = open_audit(source)
    else:
        folder = out.with_name(f"{out.name}-audit")
        audited = make_audit(
            source, out=folder, images=images or None, features=features or None, text=text,
            encoder=encoder, reading=reading, seed=seed, quiet=False, log=tell,
        )  # fmt: skip
    found = plan_labels(audited, out, budget=budget, unit=unit, goal=goal, versus=versus, seed=seed)
    tell(found.describe())
    tell(f"proposed labels: {out}/plan.csv\nanswer them: halftruth review {out}")
    export_for(out, export)


def _round(count: "Estimate") -> str:
    return f"{count.value:,.0f} ({count.low:,.0f} to {count.high:,.0f})"


def _show(found: Any) -> None:
    from rich.table import Table

    from halftruth.audit.current import read_current
    from halftruth.report.audit_report import describe_limits

    current = read_current(found)
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
        f"wrong.csv\nreview them: halftruth review {found.path}"
    )
