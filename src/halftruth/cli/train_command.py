"""`halftruth train`: options become settings."""

from pathlib import Path
from typing import Annotated, Any

import typer

from halftruth.cli import shared_options as o
from halftruth.cli.label_options import READ, reads_labels

# The settings that `train` hands on as they are.
PASSED_ON = {
    "images", "features", "out", "method", "truth", "val", "group_column", "bad_images", "backbone",
    "weights", "image_size", "head", "hidden", "dropout", "tune", "epochs", "head_epochs",
    "batch_size", "lr", "head_lr", "head_lr_mult", "optimizer", "weight_decay", "l1", "schedule",
    "warmup", "ema", "clip", "augment", "freeze_bn", "ridge", "budget", "patience", "select",
    "seed", "device", "precision", "workers", "cache", "cache_dir", "channels_last", "compile",
    "graphs", "memory", "checkpoint_every", "tensorboard", "report",
}  # fmt: skip
MODEL, PLAN, MACHINE = "The model", "How it is trained", "Where it runs"


def _panel(name: str, text: str) -> Any:
    return typer.Option(help=text, rich_help_panel=name)


@reads_labels
def train(
    reading: dict[str, Any],
    labels: Annotated[
        Path | None,
        typer.Argument(help="Label file (or a recipe / a run's config.yaml)."),
    ] = None,
    images: o.Images = None,
    features: o.Features = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the run.")] = None,
    method: Annotated[
        str | None, typer.Option("--method", "-m", help="auto, or one of `halftruth methods`.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help='What auto may try: 12 trials, or "10 minutes".')
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
    read_features: Annotated[
        list[str] | None,
        typer.Option(help="key=value: how to read the features (key, drop_columns, ...)."),
    ] = None,
    group_column: Annotated[
        str | None,
        typer.Option(
            help="Rows that share its value (a patient) stay together.", rich_help_panel=READ
        ),
    ] = None,
    bad_images: Annotated[
        str | None, typer.Option(help="Unreadable images: fail or skip.", rich_help_panel=READ)
    ] = None,
    backbone: Annotated[str | None, _panel(MODEL, "Any timm model.")] = None,
    weights: Annotated[str | None, _panel(MODEL, "pretrained, none or a file.")] = None,
    image_size: Annotated[int | None, _panel(MODEL, "Side in pixels.")] = None,
    head: Annotated[str | None, _panel(MODEL, "linear, or see docs/training.md.")] = None,
    hidden: Annotated[int | None, _panel(MODEL, "Width of a hidden layer (features).")] = None,
    dropout: Annotated[float | None, _panel(MODEL, "Before the head.")] = None,
    tune: Annotated[str | None, _panel(PLAN, "head, all, or head-first.")] = None,
    epochs: Annotated[int | None, _panel(PLAN, "Epochs over everything.")] = None,
    head_epochs: Annotated[int | None, _panel(PLAN, "Epochs of the head alone.")] = None,
    batch_size: Annotated[int | None, _panel(PLAN, "Rows a step, over all processes.")] = None,
    lr: Annotated[float | None, _panel(PLAN, "Learning rate.")] = None,
    head_lr: Annotated[float | None, _panel(PLAN, "Of the head alone, and of features.")] = None,
    head_lr_mult: Annotated[
        float | None, _panel(PLAN, "Rate of the head when all is trained: times --lr.")
    ] = None,
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
    ridge: Annotated[
        float | None, _panel(PLAN, "Prior variance of a logit for a head on features; 0: none.")
    ] = None,
    patience: Annotated[int | None, _panel(PLAN, "Epochs without gain before stopping.")] = None,
    select: Annotated[
        str | None, _panel(PLAN, "Choose epochs by: auto, both, auc, observed, truth, last.")
    ] = None,
    seed: Annotated[int | None, _panel(MACHINE, "Of everything random.")] = None,
    device: o.Device = None,
    precision: Annotated[str | None, _panel(MACHINE, "auto, no, fp16 or bf16.")] = None,
    workers: Annotated[int | None, _panel(MACHINE, "Threads and processes for images.")] = None,
    cache: Annotated[str | None, _panel(MACHINE, "Pixels in: auto, memory, disk, none.")] = None,
    cache_dir: Annotated[Path | None, _panel(MACHINE, "Shared by runs on the same images.")] = None,
    channels_last: Annotated[
        bool | None,
        typer.Option("--channels-last/--channels-first", help="On a GPU.", rich_help_panel=MACHINE),
    ] = None,
    compile: Annotated[
        bool | None,
        typer.Option("--compile/--no-compile", help="torch.compile.", rich_help_panel=MACHINE),
    ] = None,
    graphs: Annotated[
        bool | None,
        typer.Option("--graphs/--no-graphs", help="CUDA graphs.", rich_help_panel=MACHINE),
    ] = None,
    memory: Annotated[
        str | None, _panel(MACHINE, "A method's table by sample: auto, device, host.")
    ] = None,
    checkpoint_every: Annotated[int | None, _panel(MACHINE, "Steps; 0 = each epoch.")] = None,
    tensorboard: Annotated[
        bool | None,
        typer.Option("--tensorboard", help="Write its event files.", rich_help_panel=MACHINE),
    ] = None,
    report: Annotated[
        bool | None,
        typer.Option("--report/--no-report", help="Draw report.html.", rich_help_panel=MACHINE),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q")] = False,
) -> None:
    """Train on labels that may be incomplete.

    halftruth train labels.csv --images photos/ --method hill --out runs/first
    """
    from halftruth.train.recipes import collect
    from halftruth.train.stage_progress import Interrupted
    from halftruth.train.start import train as start

    here = locals()
    values = {name: here[name] for name in PASSED_ON}
    settings = collect({**o.given(**values), **reading})
    nested = {
        "options": o.assignments(set_, "--set"),
        "reading_truth": o.assignments(read_truth, "--read-truth"),
        "reading_features": o.assignments(read_features, "--read-features"),
    }
    settings |= {name: pairs for name, pairs in nested.items() if pairs}
    recipe = labels if labels is not None and labels.suffix in (".yaml", ".yml") else None
    if labels is not None and recipe is None:
        settings["labels"] = str(labels)
    if labels is None and not resume:
        raise typer.BadParameter("expected a label file, a recipe (.yaml), or --resume with --out")
    if labels is None and out is None:
        raise typer.BadParameter("--resume needs --out, the folder of the run")
    if labels is None and not (out / "config.yaml").is_file():  # type: ignore[operator]
        raise typer.BadParameter(f"{out} holds no run: there is no {out}/config.yaml")
    try:
        start(settings, recipe, resume=resume, quiet=quiet)
    except Interrupted as stop:
        raise typer.Exit(130) from stop
    except KeyboardInterrupt as stop:
        typer.echo(
            "stopped at once. Where a checkpoint was written, go on with --resume; otherwise the "
            "same command begins again",
            err=True,
        )
        raise typer.Exit(130) from stop
