"""`halftruth review`, `repair` and `import-verdicts`: what people do with an audit."""

import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from halftruth.cli import options as o
from halftruth.cli.run_commands import open_run
from halftruth.cli.terminal import say, say_next, show_estimates, tell

if TYPE_CHECKING:
    from halftruth.audit.review_server import Review


def _check_tools(tools: list[str] | None) -> list[str] | None:
    """Refuse an unknown program before anything is trained or written."""
    from halftruth.audit.formats import TOOLS

    for tool in tools or ():
        if tool not in TOOLS:
            raise typer.BadParameter(f"expected one of {', '.join(TOOLS)}, got {tool!r}")
    return tools


Export = Annotated[
    list[str] | None,
    typer.Option(
        help="Also write for: label-studio, cleanlab; may be repeated.",
        callback=_check_tools,
    ),
]


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
        f"\ndecisions: {folder}/decisions.jsonl; report.html follows them; halftruth train ... "
        f"--verdicts {folder} trains with them"
    )
    say_next("write them into your label file", "repair", folder, "--out", "labels.fixed.csv")


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
    """Print the address of a review, open a browser, and serve until Ctrl-C or SIGTERM."""
    print(f"review of {folder}: {running.address}", flush=True)
    print("only this machine can open it; Ctrl-C stops it, decisions are saved", flush=True)
    if browser:
        import webbrowser

        webbrowser.open(running.address)
    # What follows the review, such as its report, is written however it is stopped.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            running.serve()
    finally:
        signal.signal(signal.SIGTERM, before)


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
    overwrite: o.Overwrite = False,
) -> None:
    """Write a copy of your label file with the accepted changes.

    halftruth repair audit/ --out labels.fixed.csv
    """
    from halftruth.audit.repair import name_changes
    from halftruth.audit.repair import repair as write

    if out is None and not export:
        raise typer.BadParameter("expected a file to write, or use --export", param_hint="--out")
    if precision is not None and not 0 < precision <= 1:
        raise typer.BadParameter(
            f"expected more than 0 and at most 1, got {precision}", param_hint="--precision"
        )
    o.check_outputs([folder / tool for tool in export or ()], overwrite=overwrite)
    if out is not None:
        o.check_outputs([out, name_changes(out)], overwrite=overwrite)
        done = write(folder, out, precision=precision, rejected=rejected, provenance=provenance)
        tell(done.describe())
    export_for(folder, export, precision)


def import_verdicts(
    folder: Annotated[Path, typer.Argument(help="Folder of an audit.")],
    source: Annotated[
        Path,
        typer.Argument(
            help="JSON of Label Studio, annotations.xml of CVAT, another audit folder, or a CSV of "
            "verdicts."
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
    from halftruth.audit.formats import import_verdicts as read

    found = read(folder, source, complete=complete)
    present = int((found["verdict"] > 0).sum())
    tell(
        f"{len(found):,} verdicts: {present:,} present, {len(found) - present:,} absent\n"
        f"halftruth audit ... --out {folder} continues with them, halftruth train ... --verdicts "
        f"{folder} trains with them"
    )
    say_next("write them into your label file", "repair", folder, "--out", "labels.fixed.csv")


def export_for(folder: Path, tools: list[str] | None, precision: float | None = None) -> None:
    """Write an audit for other programs."""
    from halftruth.audit.formats import export_audit

    for tool in tools or ():
        tell(f"for {tool}: {export_audit(folder, tool, precision=precision)}")
