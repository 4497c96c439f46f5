"""The commands. Each one only translates options: the work is in the library."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from halftruth.cli import options as o

app = typer.Typer(
    help="Multi-label learning when the labels tell only half the truth.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="Look at a label file before training.", no_args_is_help=True)
app.add_typer(data_app, name="data")
console = Console()

# What `train` hands on as it is: settings and options of `read_labels`.
PASSED_ON = {
    "images", "features", "out", "method", "truth", "val", "zero", "blank", "minus_one",
    "image_column", "label_column", "sep", "nothing", "split_column", "group_column",
    "drop_column", "delimiter", "duplicates", "key", "bad_images", "backbone", "weights",
    "image_size", "head", "hidden", "dropout", "tune", "epochs", "head_epochs", "batch_size", "lr",
    "head_lr", "optimizer", "weight_decay", "l1", "schedule", "warmup", "ema", "clip", "augment",
    "freeze_bn", "patience", "select", "seed", "device", "precision", "workers", "cache",
    "cache_dir", "compile", "checkpoint_every", "tensorboard",
}  # fmt: skip
MODEL, PLAN, MACHINE = "The model", "How it is trained", "Where it runs"


def _panel(name: str, text: str) -> Any:
    return typer.Option(help=text, rich_help_panel=name)


@app.command()
def train(
    labels: Annotated[
        Path | None,
        typer.Argument(help="Label file (or a recipe / a run's config.yaml)."),
    ] = None,
    images: o.Images = None,
    features: o.Features = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the run.")] = None,
    method: Annotated[
        str | None, typer.Option("--method", "-m", help="See `halftruth methods`.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="key=value: an argument of the method.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    truth: Annotated[
        Path | None,
        typer.Option(help="Complete labels of the same items, for validation and test."),
    ] = None,
    val: Annotated[
        float | None, typer.Option(help="Share of rows held out for validation.")
    ] = None,
    read_truth: Annotated[
        list[str] | None, typer.Option(help="key=value: how to read the truth, where it differs.")
    ] = None,
    zero: o.Zero = None,
    blank: o.Blank = None,
    minus_one: o.MinusOne = None,
    image_column: o.ImageColumn = None,
    label_column: o.LabelColumn = None,
    sep: o.Sep = None,
    nothing: o.Nothing = None,
    split_column: o.SplitColumn = None,
    group_column: Annotated[
        str | None,
        typer.Option(
            help="Rows that share its value (a patient) stay together.", rich_help_panel=o.READ
        ),
    ] = None,
    drop_column: o.DropColumn = None,
    delimiter: o.Delimiter = None,
    duplicates: o.Duplicates = None,
    key: o.Key = None,
    bad_images: Annotated[
        str | None, typer.Option(help="Unreadable images: fail or skip.", rich_help_panel=o.READ)
    ] = None,
    backbone: Annotated[str | None, _panel(MODEL, "Any timm model.")] = None,
    weights: Annotated[str | None, _panel(MODEL, "pretrained, none or a file.")] = None,
    image_size: Annotated[int | None, _panel(MODEL, "Side in pixels.")] = None,
    head: Annotated[str | None, _panel(MODEL, "linear or boostlu.")] = None,
    hidden: Annotated[int | None, _panel(MODEL, "Width of a hidden layer (features).")] = None,
    dropout: Annotated[float | None, _panel(MODEL, "Before the head.")] = None,
    tune: Annotated[str | None, _panel(PLAN, "head, all, or head-first.")] = None,
    epochs: Annotated[int | None, _panel(PLAN, "Epochs over everything.")] = None,
    head_epochs: Annotated[int | None, _panel(PLAN, "Epochs of the head alone.")] = None,
    batch_size: Annotated[int | None, _panel(PLAN, "Rows a step, over all processes.")] = None,
    lr: Annotated[float | None, _panel(PLAN, "Learning rate.")] = None,
    head_lr: Annotated[float | None, _panel(PLAN, "Of the head alone, and of features.")] = None,
    optimizer: Annotated[str | None, _panel(PLAN, "adam, adamw or sgd.")] = None,
    weight_decay: Annotated[float | None, _panel(PLAN, "L2 on weights (not biases).")] = None,
    l1: Annotated[float | None, _panel(PLAN, "L1 on all parameters.")] = None,
    schedule: Annotated[str | None, _panel(PLAN, "one-cycle, cosine or constant.")] = None,
    warmup: Annotated[
        float | None, _panel(PLAN, "Share of steps in which the rate climbs.")
    ] = None,
    ema: Annotated[float | None, _panel(PLAN, "Decay of the average of weights; 0 = off.")] = None,
    clip: Annotated[float | None, _panel(PLAN, "Largest norm of the gradient; 0 = off.")] = None,
    augment: Annotated[str | None, _panel(PLAN, "none, flip, weak or strong.")] = None,
    freeze_bn: Annotated[
        bool | None,
        typer.Option("--freeze-bn/--train-bn", help="Batch-norm statistics.", rich_help_panel=PLAN),
    ] = None,
    patience: Annotated[int | None, _panel(PLAN, "Epochs without gain before stopping.")] = None,
    select: Annotated[str | None, _panel(PLAN, "Choose epochs on: observed, truth, auto.")] = None,
    seed: Annotated[int | None, _panel(MACHINE, "Of everything random.")] = None,
    device: o.Device = None,
    precision: Annotated[str | None, _panel(MACHINE, "auto, no, fp16 or bf16.")] = None,
    workers: Annotated[int | None, _panel(MACHINE, "Threads and processes for images.")] = None,
    cache: Annotated[str | None, _panel(MACHINE, "Pixels in: auto, memory, disk, none.")] = None,
    cache_dir: Annotated[Path | None, _panel(MACHINE, "Shared by runs on the same images.")] = None,
    compile: Annotated[bool | None, typer.Option("--compile", rich_help_panel=MACHINE)] = None,
    checkpoint_every: Annotated[int | None, _panel(MACHINE, "Steps; 0 = each epoch.")] = None,
    tensorboard: Annotated[
        bool | None, typer.Option("--tensorboard", rich_help_panel=MACHINE)
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q")] = False,
) -> None:
    """Train on labels that may be incomplete.

    halftruth train labels.csv --images photos/ --method hill --out runs/first
    """
    from halftruth.train.run import Run, collect, load_settings, resume_run

    here = locals()
    values = {name: here[name] for name in PASSED_ON}
    settings = collect(o.given(**values))
    if set_:
        settings["options"] = o.assignments(set_)
    if read_truth:
        settings["reading_truth"] = o.assignments(read_truth)
    if resume and labels is None:
        if out is None:
            raise typer.BadParameter("--resume needs --out, the folder of the run")
        resume_run(out, quiet=quiet, **{k: v for k, v in settings.items() if k != "out"})
        return
    if labels is None:
        raise typer.BadParameter("expected a label file, a recipe (.yaml), or --resume with --out")
    if labels.suffix in (".yaml", ".yml"):
        config = load_settings(labels, settings)
    else:
        config = load_settings(None, {**settings, "labels": str(labels)})
    Run(config, quiet=quiet).go(resume=resume)


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    labels: Annotated[Path, typer.Argument(help="Label file to measure against.")],
    images: o.Images = None,
    features: o.Features = None,
    split: Annotated[str | None, typer.Option(help="Only this part: train, val or test.")] = None,
    zero: o.Zero = None,
    blank: o.Blank = None,
    minus_one: o.MinusOne = None,
    image_column: o.ImageColumn = None,
    label_column: o.LabelColumn = None,
    sep: o.Sep = None,
    nothing: o.Nothing = None,
    split_column: o.SplitColumn = None,
    drop_column: o.DropColumn = None,
    delimiter: o.Delimiter = None,
    duplicates: o.Duplicates = None,
    key: o.Key = None,
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Leave unknown labels out.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write JSON here.")] = None,
    device: o.Device = None,
) -> None:
    """Measure a run on a label file."""
    import json

    from halftruth.cli.show import show_metrics
    from halftruth.train.evaluation import evaluate as measure
    from halftruth.train.trained import TrainedRun

    reading = o.given(
        zero=zero, blank=blank, minus_one=minus_one, image_column=image_column,
        label_column=label_column, sep=sep, nothing=nothing, split_column=split_column,
        drop_column=drop_column, delimiter=delimiter, duplicates=duplicates, key=key,
    )  # fmt: skip
    trained = TrainedRun(run, device=device or "auto")
    metrics, table, bad = measure(
        trained,
        labels,
        images=images or None,
        features=features,
        split=split,
        reading=reading,
        ignore_unknown=ignore_unknown,
    )
    show_metrics(console, metrics, table, bad)
    if out is not None:
        classes = table.to_dict(orient="records")
        out.write_text(json.dumps({"metrics": metrics, "classes": classes, "bad_images": bad}))


@app.command()
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
    """Write probabilities and chosen labels of images or features."""
    from halftruth.train.trained import TrainedRun, write_predictions

    if out.suffix not in (".csv", ".parquet"):
        raise typer.BadParameter(f"expected a .csv or .parquet file, got {out}", param_hint="--out")
    trained = TrainedRun(run, device=device or "auto")
    count, bad = write_predictions(
        trained, out, images=images or None, features=features, bad_images=bad_images
    )
    console.print(f"{count:,} rows written to {out}", highlight=False)
    for name, reason in bad:
        console.print(f"left out: {name}: {reason}", highlight=False, markup=False)


@app.command()
def methods(
    pattern: Annotated[str, typer.Argument(help='A name or a pattern such as "ll-*".')] = "*",
) -> None:
    """Every method: paper, what it makes of unknown labels, needs, defaults."""
    from halftruth.cli.show import show_methods

    show_methods(console, pattern)


@data_app.command("check")
def check(
    labels: Annotated[Path, typer.Argument(help="Label file.")],
    images: o.Images = None,
    features: o.Features = None,
    zero: o.Zero = None,
    blank: o.Blank = None,
    minus_one: o.MinusOne = None,
    image_column: o.ImageColumn = None,
    label_column: o.LabelColumn = None,
    sep: o.Sep = None,
    nothing: o.Nothing = None,
    split_column: o.SplitColumn = None,
    drop_column: o.DropColumn = None,
    delimiter: o.Delimiter = None,
    key: o.Key = None,
    workers: Annotated[int, typer.Option(help="Threads that read images.")] = 2,
) -> None:
    """Statistics and problems of a label file, and a method that fits."""
    from halftruth.data import ImageStore, check_data, read_features, read_labels

    reading = o.given(
        zero=zero, blank=blank, minus_one=minus_one, image_column=image_column,
        label_column=label_column, sep=sep, nothing=nothing, split_column=split_column,
        drop_column=drop_column, delimiter=delimiter, key=key,
    )  # fmt: skip
    matrix = read_labels(labels, duplicates="keep", **reading)
    report = check_data(
        matrix,
        ImageStore(images) if images else None,
        read_features(features) if features else None,
        workers=workers,
    )
    console.print(report.text(), highlight=False, markup=False)
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


def main() -> None:
    """Run the command; expected errors are one message, not a traceback."""
    from halftruth.data import BadImage, DataError
    from halftruth.train.checkpoint import CheckpointError
    from halftruth.train.config import ConfigError
    from halftruth.train.stage import Interrupted, TrainingStopped

    expected = (BadImage, DataError, CheckpointError, ConfigError, TrainingStopped)
    try:
        app()
    except expected as error:
        Console(stderr=True).print(f"error: {error}", style="red", highlight=False, markup=False)
        sys.exit(1 if isinstance(error, TrainingStopped) else 2)
    except Interrupted:
        sys.exit(130)
