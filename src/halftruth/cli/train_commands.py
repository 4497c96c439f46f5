"""`halftruth train` and `halftruth tune`."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from halftruth.cli import options as o
from halftruth.cli.terminal import say
from halftruth.train.settings import DATA, MACHINE, METHOD


@o.with_options(settings=o.setting_options(), reading=o.READING_OPTIONS)
def train(
    settings: dict[str, Any],
    reading: Mapping[str, object],
    labels: Annotated[
        Path | None, typer.Argument(help="Label file (or a recipe, or config.yaml of a run).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="key=value: an argument of the method.", rich_help_panel=METHOD),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Settings from a file, or of a paper by name (voc2012/em; see `halftruth bench "
            "recipes`). Options override them.",
            rich_help_panel=DATA,
        ),
    ] = None,
    read_truth: Annotated[
        list[str] | None,
        typer.Option(
            help="key=value: how to read the complete labels, where it differs.",
            rich_help_panel=DATA,
        ),
    ] = None,
    read_features: Annotated[
        list[str] | None,
        typer.Option(
            help="key=value: how to read the features (key, drop_columns, ...).",
            rich_help_panel=DATA,
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print nothing.", rich_help_panel=MACHINE)
    ] = False,
) -> None:
    """Train on labels that may be incomplete.

    halftruth train labels.csv --images photos/ --method hill --out runs/first
    """
    from halftruth.train.config import collect, load_settings

    source, file = o.split_recipe(labels, recipe)
    values = collect({**settings, **reading, **file})
    nested = {
        "options": o.assignments(set_, "--set"),
        "reading_truth": o.assignments(read_truth, "--read-truth"),
        "reading_features": o.assignments(read_features, "--read-features"),
    }
    values |= {name: pairs for name, pairs in nested.items() if pairs}
    if labels is None and recipe is None:
        _check_resume(settings.get("out"), resume)
    # Mistakes are reported before the imports that only training needs.
    with warnings.catch_warnings(action="ignore"):
        if not resume:
            load_settings(source, values)
    from halftruth import fit
    from halftruth.train.trainer import Interrupted

    try:
        fit(**values, recipe=source, resume=resume, quiet=quiet)
    except Interrupted as stop:
        raise typer.Exit(130) from stop
    except KeyboardInterrupt as stop:
        say(
            "stopped at once. If there is a checkpoint, continue with --resume; otherwise start "
            "the same command again",
            error=True,
        )
        raise typer.Exit(130) from stop


@o.with_options(
    settings=o.setting_options(
        ["out", "decide", "labels_per_row", "prevalence", "complete_classes", "complete_rows",
         "verdicts", "truth", "seed", "report"]
    ),
    reading=o.READING_OPTIONS,
)  # fmt: skip
def calibrate(
    scores: Annotated[
        Path,
        typer.Argument(
            help="Scores of any model for rows that it was not trained on: a table with a column "
            "per class (probabilities or logits), or an array (.npy)."
        ),
    ],
    labels: Annotated[Path, typer.Argument(help="Label file of these rows.")],
    settings: Mapping[str, object],
    reading: Mapping[str, object],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing.")] = False,
) -> None:
    """Turn the scores of another model into probabilities, decisions and estimated scores.

    halftruth calibrate scores.csv labels.csv --out runs/calibrated

    halftruth predict runs/calibrated new_scores.csv        (applies it to new scores)
    """
    from halftruth import calibrate as take
    from halftruth.train.config import collect

    take(str(scores), str(labels), quiet=quiet, **collect({**settings, **reading}))


def _check_resume(out: str | None, resume: bool) -> None:
    """Without a label file there has to be a run to resume."""
    if not resume:
        raise typer.BadParameter(
            "expected a label file, a recipe (.yaml or --recipe), or --resume with --out"
        )
    if out is None:
        raise typer.BadParameter("--resume needs --out, the run folder")
    if not (Path(out) / "config.yaml").is_file():
        raise typer.BadParameter(f"{out} holds no run: there is no {out}/config.yaml")


@o.with_options(settings=o.setting_options(["images", "features", "method", "truth"]))
def tune(
    labels: Annotated[Path, typer.Argument(help="Label file, or a recipe (.yaml).")],
    settings: Mapping[str, object],
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="key=value: an argument of the method.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(help="key=value: any other setting of `halftruth train` (epochs=20, ...)."),
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Settings from a file, or of a paper by name (voc2012/em).")
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(help='key=choices or range: "alpha={low: 0.01, high: 1, log: true}".'),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Trials of the study, over all workers.")] = 50,
    storage: Annotated[
        str | None,
        typer.Option(help="URL of an Optuna storage, to share a study. (default: a file in --out)"),
    ] = None,
    study: Annotated[str, typer.Option(help="Name of the study.")] = "halftruth",
    objective: Annotated[
        str,
        typer.Option(
            help="selection (the criterion of epochs), or on complete labels macro_F2 or F2_CIW."
        ),
    ] = "selection",
    prune_after: Annotated[
        int, typer.Option(min=0, help="Epochs before a trial may be stopped.")
    ] = 2,
    prune_every: Annotated[
        int, typer.Option(min=1, help="Epochs between two checks of a trial.")
    ] = 1,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the search.")] = Path(
        "runs/tune"
    ),
) -> None:
    """Search the learning rate and arguments of a method on validation; write the best recipe.

    halftruth tune labels.csv --features x.npy --method em --trials 30 --out runs/tune-em
    """
    from halftruth.bench.tune import tune as start
    from halftruth.train.config import collect

    o.check_folder(out)
    if storage is None and not (out / "study.db").exists():
        o.check_outputs(out / "best.yaml")
    source, file = o.split_recipe(labels, recipe)
    values = collect({**settings, **o.assignments(setting, "--setting"), **file})
    if options := o.assignments(set_, "--set"):
        values["options"] = options
    try:
        start(
            values, source, trials=trials, search=o.assignments(search, "--search"),
            storage=storage, study=study, out=out, objective=objective,
            prune_after=prune_after, prune_every=prune_every, say=say,
        )  # fmt: skip
    except KeyboardInterrupt:
        say("stopped; the same command continues the study with the interrupted trial")
        raise typer.Exit(130) from None
