"""`halftruth tune`: options become settings and a search."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from halftruth.cli import shared_options as o

console = Console()


def tune(
    labels: Annotated[Path, typer.Argument(help="Label file, or a recipe (.yaml).")],
    images: o.Images = None,
    features: o.Features = None,
    method: Annotated[
        str | None, typer.Option("--method", "-m", help="See `halftruth methods`.")
    ] = None,
    truth: Annotated[Path | None, typer.Option(help="Complete labels, for validation.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="key=value: an argument of the method.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(help="key=value: any other setting of `halftruth train` (epochs=20, ...)."),
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(help='key=choices or range: "alpha={low: 0.01, high: 1, log: true}".'),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="In the study, over all workers.")] = 50,
    storage: Annotated[
        str | None, typer.Option(help="URL of Optuna's storage, to share a study; else in --out.")
    ] = None,
    study: Annotated[str, typer.Option(help="Name of the study.")] = "halftruth",
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the search.")] = Path(
        "runs/tune"
    ),
) -> None:
    """Search a method's rate and arguments on validation; write the best recipe.

    halftruth tune labels.csv --features x.npy --method em --trials 30 --out runs/tune-em
    """
    from halftruth.bench.tune import tune as start
    from halftruth.train.recipes import collect

    given = o.given(images=images, features=features, method=method, truth=truth)
    settings = collect({**given, **o.assignments(setting, "--setting")})
    if options := o.assignments(set_, "--set"):
        settings["options"] = options
    recipe = labels if labels.suffix in (".yaml", ".yml") else None
    if recipe is None:
        settings["labels"] = str(labels)

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    try:
        start(
            settings, recipe, trials=trials, search=o.assignments(search, "--search"),
            storage=storage, study=study, out=out, say=say,
        )  # fmt: skip
    except KeyboardInterrupt:
        say("stopped; the same command continues the study with the interrupted trial")
        raise typer.Exit(130) from None
