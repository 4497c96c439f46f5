"""`halftruth evaluate`, `halftruth predict` and `halftruth export`."""

import json
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from halftruth.cli import shared_options as o
from halftruth.cli.label_options import reads_labels

console = Console()


@reads_labels
def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    labels: Annotated[Path, typer.Argument(help="Label file to measure against.")],
    reading: dict[str, Any],
    images: o.Images = None,
    features: o.Features = None,
    split: Annotated[str | None, typer.Option(help="Only this part: train, val or test.")] = None,
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Leave unknown labels out.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write JSON here.")] = None,
    device: o.Device = None,
) -> None:
    """Measure a run on a label file.

    The file the run was trained on is read as it was then, unless options say otherwise.

    halftruth evaluate runs/first labels.csv --images photos/ --split test
    """
    from halftruth.cli.terminal_tables import show_metrics
    from halftruth.train.evaluation import evaluate as measure
    from halftruth.train.result import plain_json

    metrics, table, bad = measure(
        _opened(run, device),
        labels,
        images=images or None,
        features=features,
        split=split,
        reading=reading,
        ignore_unknown=ignore_unknown,
    )
    show_metrics(console, metrics, table, bad)
    if out is not None:
        found = {
            "metrics": metrics,
            "classes": table.to_dict(orient="records"),
            "bad_images": bad,
        }
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(plain_json(found), indent=1), encoding="utf-8")


def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    images: o.Images = None,
    features: o.Features = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Table to write: .csv or .parquet.")
    ] = Path("predictions.csv"),
    bad_images: Annotated[str, typer.Option(help="Unreadable images: skip or fail.")] = "skip",
    device: o.Device = None,
) -> None:
    """Write probabilities and chosen labels of images or features.

    halftruth predict runs/first --images new_photos/ --out predictions.csv
    """
    from halftruth.train.trained_run import write_predictions

    if out.suffix not in (".csv", ".parquet"):
        raise typer.BadParameter(f"expected a .csv or .parquet file, got {out}", param_hint="--out")
    trained = _opened(run, device)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        count, bad = write_predictions(
            trained, out, images=images or None, features=features, bad_images=bad_images
        )
    for warning in caught:
        console.print(f"note: {warning.message}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"{count:,} rows written to {out}", highlight=False, markup=False, soft_wrap=True)
    for name, reason in bad:
        console.print(f"left out: {name}: {reason}", highlight=False, markup=False, soft_wrap=True)


def export(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File: .onnx or .pt2.")],
    format: Annotated[
        str | None, typer.Option(help="onnx or torch-export; else by the file's ending.")
    ] = None,
) -> None:
    """Write a run's model for other programs; what was written is read again and compared.

    halftruth export runs/first --out model.onnx
    """
    from halftruth.models.export import SUFFIXES
    from halftruth.models.export import export as write

    kind = format or {suffix: name for name, suffix in SUFFIXES.items()}.get(out.suffix)
    if kind is None:
        endings = " or ".join(SUFFIXES.values())
        raise typer.BadParameter(f"expected a file that ends in {endings}", param_hint="--out")
    done = write(_opened(run, "cpu"), out, kind)
    text = f"{done.path} written, described in {done.notes}; its outputs agree with the model's "
    console.print(f"{text}to {done.difference:.1g}", highlight=False, markup=False, soft_wrap=True)


def _opened(run: Path, device: str | None) -> Any:
    from halftruth.train.trained_run import TrainedRun

    return TrainedRun(run, device=device or "auto", quiet=False)
