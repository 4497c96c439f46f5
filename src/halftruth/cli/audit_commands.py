"""`halftruth audit`, `halftruth review` and `halftruth repair`."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from halftruth.cli import shared_options as o
from halftruth.cli.label_options import reads_labels

console = Console()
TRAINING = "Training by folds (where no scores are given)"


def _trained(text: str) -> Any:
    return typer.Option(help=text, rich_help_panel=TRAINING)


@reads_labels
def audit(
    source: Annotated[
        Path,
        typer.Argument(help="A run, a file of probabilities, or the label file itself (k-fold)."),
    ],
    reading: dict[str, Any],
    labels: Annotated[
        Path | None, typer.Argument(help="Label file, where SOURCE is a run or probabilities.")
    ] = None,
    images: o.Images = None,
    features: o.Features = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")] = Path("audit"),
    split: Annotated[str | None, typer.Option(help="Only this part: train, val or test.")] = None,
    selection: Annotated[
        str, typer.Option(help="How labels came to be missing: auto, random, or one (a row).")
    ] = "auto",
    most: Annotated[int, typer.Option(help="Most candidates of each kind.")] = 100_000,
    folds: Annotated[int, _trained("How many parts; each is scored by a model of the others.")] = 5,
    method: Annotated[
        str | None,
        typer.Option("--method", "-m", help="See `halftruth methods`.", rich_help_panel=TRAINING),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="key=value: an argument of the method.", rich_help_panel=TRAINING
        ),
    ] = None,
    backbone: Annotated[str | None, _trained("Any timm model.")] = None,
    weights: Annotated[str | None, _trained("pretrained, none or a file.")] = None,
    image_size: Annotated[int | None, _trained("Side in pixels.")] = None,
    tune: Annotated[str | None, _trained("head, all, or head-first.")] = None,
    epochs: Annotated[int | None, _trained("Epochs over everything.")] = None,
    head_epochs: Annotated[int | None, _trained("Epochs of the head alone.")] = None,
    seed: Annotated[int, _trained("Of folds and training.")] = 0,
    train: Annotated[
        list[str] | None, _trained("key=value: any other setting of `halftruth train`.")
    ] = None,
    group_column: Annotated[
        str | None, _trained("Rows that share its value (a patient) stay in one fold.")
    ] = None,
    read_features: Annotated[
        list[str] | None, typer.Option(help="key=value: how to read the features.")
    ] = None,
    device: o.Device = None,
) -> None:
    """Find what a label file misses: ranked candidates, estimated counts, a report.

    halftruth audit labels.csv --images photos/ --folds 5 --method em     (out-of-sample, by itself)

    halftruth audit runs/first labels.csv --images photos/                (scores of a run)

    halftruth audit probs.csv labels.csv                                  (any model's scores)
    """
    from halftruth.audit.make_audit import make_audit
    from halftruth.train.stage_progress import Interrupted

    training = o.given(
        method=method, backbone=backbone, weights=weights, image_size=image_size, tune=tune,
        epochs=epochs, head_epochs=head_epochs,
    )  # fmt: skip
    training |= o.assignments(train, "--train")
    if set_:
        training["options"] = o.assignments(set_, "--set")
    try:
        found = make_audit(
            source,
            labels,
            out=out,
            images=images or None,
            features=features,
            split=split,
            folds=folds,
            seed=seed,
            group_column=group_column,
            reading=reading,
            reading_features=o.assignments(read_features, "--read-features"),
            training=training,
            selection=selection,  # type: ignore[arg-type]
            most=most,
            device=device or "auto",
            tell=_tell,
        )
    except Interrupted as stop:
        _tell("stopped; the same command goes on where it was")
        raise typer.Exit(130) from stop
    _show(found)


def review(
    folder: Annotated[Path, typer.Argument(help="Folder of an audit.")],
    port: Annotated[int, typer.Option(help="0: any that is free.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = True,
) -> None:
    """Decide on the candidates of an audit, on a page in your browser.

    halftruth review audit/
    """
    from halftruth.audit.review_server import Review

    running = Review(folder, port)
    print(f"review of {folder}: {running.address}", flush=True)
    print("only this machine can open it; Ctrl-C stops it, nothing is lost", flush=True)
    if browser:
        import webbrowser

        webbrowser.open(running.address)
    # Ctrl-C ends it, wherever it strikes.
    with suppress(KeyboardInterrupt):
        running.serve()
    print(f"\nthe decisions are in {folder}/decisions.jsonl; go on with: halftruth repair {folder}")


def repair(
    folder: Annotated[Path, typer.Argument(help="Folder of an audit.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Label file to write, in the same format.")
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(help="Also accept undecided ones, down to this expected precision (0.95)."),
    ] = None,
    rejected: Annotated[
        str, typer.Option(help="Rejected candidates: leave, or write down as absent.")
    ] = "leave",
    provenance: Annotated[
        bool, typer.Option("--provenance/--no-provenance", help="Columns that say what changed.")
    ] = True,
    export: Annotated[
        list[str] | None,
        typer.Option(help="Also write for: label-studio, fiftyone, cleanlab; may be repeated."),
    ] = None,
) -> None:
    """Write your label file again, with what the review accepted.

    halftruth repair audit/ --out labels.fixed.csv
    """
    from halftruth.audit.exports import export_audit
    from halftruth.audit.repair import repair as write

    if out is None and not export:
        raise typer.BadParameter("expected a file to write, or --export", param_hint="--out")
    if precision is not None and not 0 < precision <= 1:
        raise typer.BadParameter(f"expected more than 0, at most 1, got {precision}")
    if out is not None:
        done = write(folder, out, precision=precision, rejected=rejected, provenance=provenance)
        _tell(done.describe())
    for tool in export or ():
        _tell(f"for {tool}: {export_audit(folder, tool, precision=precision)}")


def _tell(text: str) -> None:
    style = "bold yellow" if text.startswith("WARNING") else None
    console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)


def _show(found: Any) -> None:
    import pandas as pd
    from rich.table import Table

    missing = found.info["missing"]
    _tell(
        f"about {missing['estimate']:,.0f} labels are missing "
        f"({missing['low']:,.0f} to {missing['high']:,.0f})"
    )
    table = Table("expected precision", "candidates", "of them right")
    for cut in pd.read_csv(found.path / "cuts.csv").itertuples():
        table.add_row(f"{cut.precision:.0%}", f"{cut.candidates:,}", f"{cut.expected_right:,.0f}")
    console.print(table)
    _tell(
        f"{found.path}/report.html is the whole story; {found.path}/missing.csv and wrong.csv the "
        f"ranked lists\ndecide on them: halftruth review {found.path}"
    )
