"""`halftruth audit`, `halftruth review` and `halftruth repair`."""

import inspect
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from halftruth.cli import options as o
from halftruth.cli.run_commands import open_run
from halftruth.cli.terminal import say, show_estimates

if TYPE_CHECKING:
    from halftruth.audit.review_server import Review
    from halftruth.presence.estimate import Estimate

TRAINING = "Training by folds (when no scores are given)"


def _check_tools(tools: list[str] | None) -> list[str] | None:
    """Refuse an unknown program before anything is trained or written."""
    from halftruth.audit.exports import TOOLS

    for tool in tools or ():
        if tool not in TOOLS:
            raise typer.BadParameter(f"expected one of {', '.join(TOOLS)}, got {tool!r}")
    return tools


Export = Annotated[
    list[str] | None,
    typer.Option(
        help="Also write for: label-studio, fiftyone, cleanlab; may be repeated.",
        callback=_check_tools,
    ),
]


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
            log=_tell,
            **training,
        )
    except Interrupted as stop:
        _tell("stopped; the same command continues")
        raise typer.Exit(130) from stop
    write_audit_report(found)
    _show(found)


def review(
    folder: Annotated[Path, typer.Argument(help="Folder of an audit, or of a run to evaluate.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 uses any free port.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser.")] = True,
    purpose: Annotated[
        Literal["find", "evaluate"],
        typer.Option(
            help="find: decide on the candidates of an audit; evaluate: verify labels of a run, "
            "drawn at random with known probabilities, to know its scores."
        ),
    ] = "find",
    cells: Annotated[
        int | None,
        typer.Option(help="Number of labels to verify, with --purpose evaluate. (default: 200)"),
    ] = None,
    metric: Annotated[
        Literal["all", "mAP", "CF1", "OF1"] | None,
        typer.Option(
            help="Draw the labels that tell most about this score, with --purpose evaluate. "
            "(default: all)"
        ),
    ] = None,
) -> None:
    """Accept or reject the candidates of an audit, or verify labels of a run, in your browser.

    halftruth review audit/

    halftruth review runs/first --purpose evaluate --cells 200
    """
    if purpose == "evaluate":
        return verify_cells(folder, cells, metric, port, browser)
    if cells is not None or metric is not None:
        raise typer.BadParameter(
            "has no effect without --purpose evaluate", param_hint="--cells, --metric"
        )
    from halftruth.audit.review_server import Review
    from halftruth.report.audit_report import write_audit_report

    running = Review(folder, port)
    serve_review(running, folder, browser)
    write_audit_report(running.queue.audit)
    print(
        f"\ndecisions: {folder}/decisions.jsonl; report.html follows them\n"
        f"next: halftruth repair {folder} --out FILE, or halftruth train ... --verdicts {folder}"
    )


def verify_cells(
    run: Path, cells: int | None, metric: str | None, port: int, browser: bool
) -> None:
    """Serve the page on which people verify labels of a run; then print its scores."""
    trained = open_run(run, "cpu")
    from halftruth.audit.review_server import Review
    from halftruth.audit.verify import open_verification
    from halftruth.report.labelling import update_report

    queue = open_verification(trained, cells=cells, metric=metric)
    say(f"{len(queue.known.row):,} labels to verify, in {queue.audit.path}")
    serve_review(Review(queue, port), run, browser)
    estimated, count = queue.estimate()
    update_report(run, estimated, count)
    show_estimates(estimated, count)
    say(f"again at any time: halftruth evaluate {run}; the verdicts: --verdicts {queue.audit.path}")


def serve_review(running: "Review", folder: Path, browser: bool) -> None:
    """Print the address of a review, open a browser, and serve until Ctrl-C."""
    print(f"review of {folder}: {running.address}", flush=True)
    print("only this machine can open it; Ctrl-C stops it, decisions are saved", flush=True)
    if browser:
        import webbrowser

        webbrowser.open(running.address)
    with suppress(KeyboardInterrupt):
        running.serve()


def repair(
    folder: Annotated[Path, typer.Argument(help="Folder of an audit.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Label file to write, in the same format.")
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(
            help="Also accept undecided candidates, down to this expected precision (such as 0.95)."
        ),
    ] = None,
    rejected: Annotated[
        Literal["leave", "absent"],
        typer.Option(help="Rejected candidates: leave them unknown, or mark them absent."),
    ] = "leave",
    provenance: Annotated[
        bool,
        typer.Option("--provenance/--no-provenance", help="Add columns with the changes."),
    ] = True,
    export: Export = None,
) -> None:
    """Write a copy of your label file with the accepted changes.

    halftruth repair audit/ --out labels.fixed.csv
    """
    from halftruth.audit.repair import repair as write

    if out is None and not export:
        raise typer.BadParameter("expected a file to write, or use --export", param_hint="--out")
    if precision is not None and not 0 < precision <= 1:
        raise typer.BadParameter(
            f"expected more than 0 and at most 1, got {precision}", param_hint="--precision"
        )
    if out is not None:
        done = write(folder, out, precision=precision, rejected=rejected, provenance=provenance)
        _tell(done.describe())
    _export(folder, export, precision)


def plan(
    source: Annotated[Path, typer.Argument(help="Folder of an audit, or a label file.")],
    budget: Annotated[int, typer.Option(min=1, help="Number of labels (or rows) to ask for.")],
    images: o.Images = None,
    features: Annotated[
        Path | None, typer.Option(help="Features to train on, with a label file.")
    ] = None,
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
        if images or features:
            raise DataError(
                f"--images, --features: no effect, since the scores come from the audit {source}"
            )
        audited = open_audit(source)
    else:
        folder = out.with_name(f"{out.name}-audit")
        audited = make_audit(
            source, out=folder, images=images or None, features=features, seed=seed, quiet=False,
            log=_tell,
        )  # fmt: skip
    found = plan_labels(audited, out, budget=budget, unit=unit, goal=goal, versus=versus, seed=seed)
    _tell(found.describe())
    _tell(f"proposed labels: {out}/plan.csv\nanswer them: halftruth review {out}")
    _export(out, export)


def import_verdicts(
    folder: Annotated[Path, typer.Argument(help="Folder of an audit.")],
    source: Annotated[
        Path,
        typer.Argument(
            help="JSON of Label Studio, samples.json of FiftyOne, annotations.xml of CVAT, "
            "another audit folder, or a CSV of verdicts."
        ),
    ],
    complete: Annotated[
        bool,
        typer.Option("--complete", help="Classes not chosen in a submitted row are absent."),
    ] = False,
) -> None:
    """Add verdicts that were given in another program to an audit.

    halftruth import-verdicts audit/ export.json
    """
    from halftruth.audit.imports import import_verdicts as read

    found = read(folder, source, complete=complete)
    present = int((found["verdict"] > 0).sum())
    _tell(
        f"{len(found):,} verdicts: {present:,} present, {len(found) - present:,} absent\n"
        f"next: halftruth audit ... --out {folder} (continues with them), halftruth train ... "
        f"--verdicts {folder}, or halftruth repair {folder} --out FILE"
    )


def _export(folder: Path, tools: list[str] | None, precision: float | None = None) -> None:
    """Write an audit for other programs; if one fails, the others still get their files."""
    from halftruth.audit.exports import export_audit
    from halftruth.data import DataError

    failed = []
    for tool in tools or ():
        try:
            _tell(f"for {tool}: {export_audit(folder, tool, precision=precision)}")
        except DataError as error:
            failed.append(f"--export {tool}: {error}")
    if failed:
        raise DataError("\n".join(failed))


def _tell(text: str) -> None:
    style = "bold yellow" if text.startswith("WARNING") else None
    say(text, style=style)


def _round(count: "Estimate") -> str:
    return f"{count.value:,.0f} ({count.low:,.0f} to {count.high:,.0f})"


def _show(found: Any) -> None:
    from rich.table import Table

    from halftruth.audit.current import read_current
    from halftruth.report.audit_report import describe_limits

    current = read_current(found)
    _tell(
        f"estimated missing labels: {_round(current.missing_left.total)}\n"
        f"estimated wrong labels: {_round(current.wrong_left.total)}"
    )
    table = Table("expected precision", "candidates", "expected correct")
    for one in current.precision_table().itertuples():
        table.add_row(f"{one.precision:.0%}", f"{one.candidates:,}", f"{one.expected_right:,.0f}")
    Console().print(table)
    for text in describe_limits(found, current):
        _tell(f"WARNING: {text}")
    _tell(
        f"report: {found.path}/report.html; ranked candidates: {found.path}/missing.csv and "
        f"wrong.csv\nreview them: halftruth review {found.path}"
    )
