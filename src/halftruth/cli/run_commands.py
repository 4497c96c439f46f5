"""`halftruth evaluate`, `predict`, `decide` and `export`."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from halftruth.cli import options as o
from halftruth.cli.terminal import list_not_predicted, say, show_evaluation

Flip = Annotated[
    bool,
    typer.Option("--flip", help="Average over each image and its mirror image, in twice the time."),
]

Decide = Annotated[
    str | None,
    typer.Option(
        help="Another rule of decisions than that of training: f1, macro-f1, f2, precision=0.9, "
        "recall=0.9, threshold=0.5, score=0.5 (before calibration), top=3, count or cost=5."
    ),
]

LabelsPerRow = Annotated[
    float | None,
    typer.Option(help="The mean number of present classes per row, if it is known."),
]

Prevalence = Annotated[
    list[str] | None,
    typer.Option(help="class=0.1: the share of the rows that have a class; may be repeated."),
]

Hints = Annotated[
    list[Path] | None,
    typer.Option(
        help="Hints of these items, for a run that was trained with hints, in the same order; may "
        "be repeated. Without them, the model alone predicts."
    ),
]


@o.with_options(reading=o.READING_OPTIONS)
def evaluate(
    run: o.Run,
    reading: dict[str, object],
    labels: Annotated[
        Path | None,
        typer.Argument(
            help="Label file to compare with. Without it, scores are estimated on the rows that "
            "the run was not fitted on."
        ),
    ] = None,
    images: o.Images = None,
    features: o.Features = None,
    hints: Hints = None,
    split: Annotated[str | None, typer.Option(help="Only this part: train, val or test.")] = None,
    unknown: Annotated[
        Literal["estimate", "absent"],
        typer.Option(
            help="Unknown labels: estimate the scores that complete labels would give, or count "
            "them as absent."
        ),
    ] = "estimate",
    decide: Decide = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Also write the metrics to this JSON file.")
    ] = None,
    overwrite: o.Overwrite = False,
    flip: Flip = False,
    device: o.Device = None,
) -> None:
    """Evaluate a run on a label file.

    The label file of training is read with the options of training, unless options are given here.

    halftruth evaluate runs/first labels.csv --images photos/ --split test

    halftruth evaluate runs/first                    (on the rows that it was not fitted on)
    """
    if out is not None:
        o.check_outputs(out, labels, images, features, hints, overwrite=overwrite)
    _check_rule(decide)
    trained = open_run(run, device, flip)
    from halftruth.train.results.evaluate import evaluate as measure
    from halftruth.train.run_folder import to_json, write_text

    if labels is None:
        _check_no_effect(
            {"--images": images, "--features": features, "--split": split, "--flip": flip}
            | {"--unknown": unknown == "absent"}
            | {"--hints": hints}
            | {f"--{name.replace('_', '-')}": value for name, value in reading.items()}
        )
    found = measure(
        trained, labels, images=images or None, features=features or None, split=split,
        hints=hints or None, reading=reading, decide=decide, unknown=unknown,
    )  # fmt: skip
    if not trained.accelerator.is_main_process:
        return
    show_evaluation(found)
    if out is not None:
        written = found._asdict() | {"classes": found.classes.to_dict(orient="records")}
        written["bad_images"] = written.pop("bad")
        write_text(out, to_json(written, indent=1))


def _check_no_effect(given: dict[str, object]) -> None:
    """Refuse options that only a label file needs."""
    if idle := [name for name, value in given.items() if value]:
        raise typer.BadParameter(
            "has no effect without a label file: the scores are those of the rows that the run "
            "was not fitted on",
            param_hint=", ".join(idle),
        )


def predict(
    run: o.Run,
    inputs: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Images (files, folders or zip files), files of features, or a table with text."
        ),
    ] = None,
    images: o.Images = None,
    features: o.Features = None,
    hints: Hints = None,
    out: Annotated[
        str,
        typer.Option("--out", "-o", help="Table (.csv, .parquet), or folder of parts (ends in /)."),
    ] = "predictions.csv",
    decide: Decide = None,
    labels_per_row: LabelsPerRow = None,
    prevalence: Prevalence = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Write the sigmoid of the logits, not calibrated; labels are still decided by "
            "calibrated probabilities.",
        ),
    ] = False,
    top: Annotated[
        int | None,
        typer.Option(min=1, help="Write this many most probable classes per row, not all columns."),
    ] = None,
    bad_images: Annotated[
        str, typer.Option(help="Images that cannot be read: skip or fail.")
    ] = "skip",
    float16: Annotated[
        bool,
        typer.Option("--float16", help="Write 16 bits, not 32, in a folder of parts."),
    ] = False,
    engine: o.Engine = None,
    address: o.Address = None,
    overwrite: o.Overwrite = False,
    flip: Flip = False,
    device: o.Device = None,
) -> None:
    """Write the predicted labels and P(present | x) per class of images or features.

    halftruth predict runs/first new_photos/*.jpg --out predictions.csv
    """
    folder, path = out.endswith("/"), Path(out)
    if not folder:
        _check_table(path)
        o.check_outputs(path, inputs, images, features, hints, overwrite=overwrite)
    o.check_engine(engine, address)
    for name, value in (("--float16", float16), ("--engine", engine)):
        if value and not folder:
            raise typer.BadParameter(
                "has no effect without --out with a folder, such as predictions/", param_hint=name
            )
    _check_rule(decide)
    if raw and (decide or labels_per_row or prevalence):
        raise typer.BadParameter(
            "labels are decided by calibrated probabilities, which --raw does not show; leave out "
            "--raw, or --decide, --labels-per-row and --prevalence",
            param_hint="--raw",
        )
    trained = open_run(run, device, flip).at_level(labels_per_row, prevalence or ())
    from halftruth.train.results.predictions import write_predictions

    source: Any = inputs or None
    if inputs and trained.inputs is not None and (trained.config.text or trained.encoder.is_plain):
        kind = "table with text" if trained.config.text else "file of features"
        if len(inputs) > 1:
            raise typer.BadParameter(f"expected one {kind}, got {len(inputs)} paths")
        source = inputs[0]
    given: dict[str, Any] = {
        "images": images or None, "features": features or None, "bad_images": bad_images,
        "hints": hints or None, "decide": decide, "raw": raw, "top": top,
    }  # fmt: skip
    if not folder:
        if trained.accelerator.num_processes > 1:
            raise typer.BadParameter(
                f"several processes write a folder of parts; expected a name that ends in /, got "
                f"{out}",
                param_hint="--out",
            )
        found: Any = write_predictions(trained, path, source, **given)
    else:
        from halftruth.train.results.write_parts import write_parts

        writer = None
        if engine == "ray":
            from halftruth.ray import write_missing

            writer = partial(write_missing, address=address, device=device or "auto")
        more: dict[str, Any] = {"half": float16, "overwrite": overwrite, "engine": writer}
        found = write_parts(trained, path, source, **given, **more)
    if found is None:
        # The main process says the rest.
        return
    _say_decisions(trained, decide, found[0], path)
    for name, reason in found[1]:
        say(f"left out: {name}: {reason}")


def _say_decisions(trained: Any, decide: str | None, count: int, out: Path) -> None:
    from halftruth.data.errors import mask
    from halftruth.data.remote import to_url

    decisions = trained.decisions if decide is None else trained.decide(decide)
    say(f"{count:,} rows written to {mask(to_url(out))}; decisions by {decisions.rule}")
    pairs = zip(trained.classes, decisions.predicted, strict=True)
    list_not_predicted([name for name, is_predicted in pairs if not is_predicted])
    if expected := trained.describe_expected(decisions):
        say(expected)


def decide(
    predictions: Annotated[
        Path, typer.Argument(help="Table of `halftruth predict` (.csv or .parquet), without --raw.")
    ],
    run: Annotated[
        Path, typer.Option(help="The run that predicted.", parser=o.find_run, metavar="<path>")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Table to write: .csv or .parquet.")
    ] = Path("decided.csv"),
    rule: Annotated[
        str | None,
        typer.Option(help="The rule (default: that of training), see --decide of predict."),
    ] = None,
    labels_per_row: LabelsPerRow = None,
    prevalence: Prevalence = None,
    overwrite: o.Overwrite = False,
) -> None:
    """Decide again about rows that are predicted, by another rule or level; nothing is scored.

    halftruth decide predictions.csv --run runs/first --rule precision=0.8 --labels-per-row 1.2
    """
    _check_table(out)
    o.check_outputs(out, predictions, overwrite=overwrite)
    _check_rule(rule, "--rule")
    from halftruth.data import DataError
    from halftruth.train.results.output_tables import TableWriter
    from halftruth.train.results.predictions import decide_again, read_predictions

    trained, table = open_run(run, "cpu"), read_predictions(predictions)
    try:
        found = decide_again(trained, table, rule, labels_per_row, prevalence or ())
    except DataError as error:
        raise DataError(f"{predictions}: {error}") from error
    with TableWriter(out) as writer:
        writer.write(found)
    _say_decisions(trained.at_level(labels_per_row, prevalence or ()), rule, len(found), out)


def export(
    run: o.Run,
    out: Annotated[Path, typer.Option("--out", "-o", help="File: .onnx or .pt2.")],
    format: Annotated[
        str | None, typer.Option(help="onnx or torch-export; default: by the ending of the file.")
    ] = None,
    overwrite: o.Overwrite = False,
) -> None:
    """Write a run's model for other programs; the file is loaded again and compared.

    halftruth export runs/first --out model.onnx
    """
    o.check_outputs([out, Path(f"{out}.json")], overwrite=overwrite)
    from halftruth.models.export import SUFFIXES
    from halftruth.models.export import export as write

    kind = format or {suffix: name for name, suffix in SUFFIXES.items()}.get(out.suffix)
    if kind is None:
        endings = " or ".join(SUFFIXES.values())
        raise typer.BadParameter(f"expected a file that ends in {endings}", param_hint="--out")
    done = write(open_run(run, "cpu"), out, kind)
    say(
        f"{done.path} written, described in {done.notes}; its outputs agree with the model to "
        f"{done.difference:.1g}"
    )


def _check_table(out: Path) -> None:
    if out.suffix not in (".csv", ".parquet"):
        raise typer.BadParameter(f"expected a .csv or .parquet file, got {out}", param_hint="--out")


def _check_rule(text: str | None, option: str = "--decide") -> None:
    from halftruth.presence.decisions import parse_rule

    if text is not None:
        try:
            parse_rule(text)
        except ValueError as error:
            reason = str(error).removeprefix("decide: ")
            raise typer.BadParameter(reason, param_hint=option) from error


def open_run(run: Path, device: str | None, flip: bool = False, quiet: bool = False) -> Any:
    """The run in a folder; mistakes are reported before the imports that only scoring needs."""
    from halftruth.train.config import check_device, read_settings

    check_device(device or "auto")
    read_settings(run)
    from halftruth.train.results.trained_run import TrainedRun

    return TrainedRun(run, device=device or "auto", flip=flip, quiet=quiet)
