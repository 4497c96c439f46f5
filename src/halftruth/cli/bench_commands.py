"""`halftruth bench`: grids of runs, tables of results, recipes and label files of the papers."""

from pathlib import Path
from typing import Annotated

import typer

from halftruth.cli import options as o
from halftruth.cli.paper_commands import (
    Device,
    Jobs,
    Limit,
    Seeds,
    Setting,
    paper,
    parse_seeds,
    run_and_show,
)
from halftruth.cli.terminal import say

app = typer.Typer(
    help="Compare methods: run a grid, print its table, list the papers' recipes.",
    no_args_is_help=True,
)


# The level of significance at which a corrected p is printed bold.
LEVEL = 0.05


@app.command("run")
def run(
    grid: Annotated[Path, typer.Argument(help="YAML file of the grid.")],
    data: Annotated[Path, typer.Option(help="Folder of data sets.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Results file (.jsonl).")],
    jobs: Jobs = 1,
    device: Device = "auto",
    methods: Annotated[str | None, typer.Option(help='Only these: "em,ll-*".')] = None,
    only: Annotated[str | None, typer.Option(help="Only these data sets of the grid.")] = None,
    labels: Annotated[
        str | None, typer.Option(help="Other label settings: single,left-75,frequent.")
    ] = None,
    seeds: Seeds = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Settings to try per method.")] = None,
    label_seeds: Annotated[
        str | None, typer.Option(help="Other samples of the shown labels: 1200,1201.")
    ] = None,
    setting: Setting = None,
    limit: Limit = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder of decoded images and features.")
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(help="Results of another grid: start with its best settings."),
    ] = None,
) -> None:
    """Run a grid; finished runs in the results file are not repeated, so the same command resumes.

    halftruth bench run benchmarks/grids/tabular.yaml --data data/ --out results/tabular.jsonl
    """
    from halftruth.bench import load_grid

    if out.suffix != ".jsonl":
        raise typer.BadParameter(f"expected a .jsonl file, got {out}", param_hint="--out")
    spec = load_grid(
        grid, o.assignments(setting, "--setting"), seeds=parse_seeds(seeds), trials=trials,
        label_seed=parse_seeds(label_seeds), labels=None if labels is None else labels.split(","),
    )  # fmt: skip
    if limit is not None:
        spec.data = {name: {**about, "limit": limit} for name, about in spec.data.items()}
    chosen = spec.select(methods=methods, data=only)
    run_and_show(
        [chosen], data, out, jobs=jobs, device=device, cache=cache, start=start, shown=[spec]
    )


@app.command("table")
def show(
    results: Annotated[list[Path], typer.Argument(help="Results files.")],
    metric: Annotated[
        list[str] | None, typer.Option(help="Metric, may be repeated; mAP by default.")
    ] = None,
    style: Annotated[str, typer.Option(help="markdown or latex.")] = "markdown",
    only: Annotated[str | None, typer.Option(help="Only these data sets.")] = None,
    part: Annotated[str, typer.Option(help="test or val.")] = "test",
    test: Annotated[
        bool, typer.Option("--test", help="Add paired t tests between methods over seeds.")
    ] = False,
    against: Annotated[
        str | None, typer.Option(help="With --test: compare every method with this one only.")
    ] = None,
) -> None:
    """Print results as a table, next to the published numbers.

    halftruth bench table results/tabular.jsonl --style latex
    """
    from halftruth.bench import read_results, table
    from halftruth.bench.grid import matching
    from halftruth.bench.significance import compare, significance_table

    if against is not None and not test:
        raise typer.BadParameter("it has no effect without --test", param_hint="--against")
    records, metrics = read_results(results), metric or ["mAP"]
    if only is not None:
        kept = matching({record["data"]: None for record in records}, only, "data")
        records = [record for record in records if record["data"] in kept]
    typer.echo(table(records, metrics=metrics, style=style, part=part), nl=False)
    for name in metrics if test else ():
        compared = compare(records, name, part, against)
        typer.echo("\n" + significance_table(compared, name, LEVEL), nl=False)


app.command("paper")(paper)


@app.command("recipes")
def list_recipes(
    pattern: Annotated[
        str, typer.Argument(help='Only these: "voc2012/*"; one name prints the whole recipe.')
    ] = "*",
) -> None:
    """List the papers' training settings, with the published numbers, or print one.

    halftruth bench recipes "voc2012/*"
    """
    from halftruth.bench.grid import matching
    from halftruth.bench.papers import recipes

    known = recipes()
    if pattern in known:
        typer.echo(known[pattern].to_yaml(), nl=False)
        return
    for recipe in matching(known, pattern, "recipes").values():
        numbers = "; ".join(f"{metric} {n} ({n.source})" for metric, n in recipe.numbers)
        typer.echo(f"{recipe.name:<32} {recipe.labels:<9} {numbers or '-'}".rstrip())


@app.command("labels")
def write(
    name: Annotated[str, typer.Argument(help="Data set, as in docs/datasets.md.")],
    root: Annotated[Path, typer.Argument(help="Folder or file of the data set.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")],
    labels: Annotated[str, typer.Option(help="Label setting: single, left-75, largest, ...")] = (
        "single"
    ),
    seed: Annotated[
        int, typer.Option(help="Seed of the shown labels; 1200 is the published draw.")
    ] = 1200,
    option: Annotated[
        list[str] | None, typer.Option(help="key=value: an option of the data set.")
    ] = None,
    overwrite: o.Overwrite = False,
) -> None:
    """Write a data set's labels as files for `halftruth train` and the recipes.

    halftruth bench labels voc2012 data/VOC --labels single --out data/voc2012
    """
    from halftruth.bench import datasets as benchmarks
    from halftruth.bench.run_data import write_labels_and_truth

    o.check_folder(out)
    shown, truth = out / f"{labels}.csv", out / "truth.csv"
    o.check_outputs([shown, truth], root, overwrite=overwrite)
    try:
        read = benchmarks.load(
            name, root, labels=labels, seed=seed, **o.assignments(option, "--option")
        )
    except (TypeError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    write_labels_and_truth(read, shown, truth, read.truth)
    say(f"{read.describe()}\n{shown} and {truth} written")
