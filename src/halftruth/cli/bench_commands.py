"""`halftruth bench`: a grid of runs into one file, and its tables."""

from pathlib import Path
from typing import Annotated

import typer

from halftruth.cli import options as o
from halftruth.cli.terminal import say

app = typer.Typer(
    help="Compare methods: a grid of runs into one file of results, and tables of it.",
    no_args_is_help=True,
)


@app.command("run")
def run(
    grid: Annotated[Path, typer.Argument(help="YAML file of the grid.")],
    data: Annotated[Path, typer.Option(help="Folder of data sets.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File of results (.jsonl).")],
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes at once.")] = 1,
    device: Annotated[
        str, typer.Option(help="auto (every GPU), cpu, or a list: cuda:0,cuda:1.")
    ] = "auto",
    methods: Annotated[str | None, typer.Option(help='Only these: "em,ll-*".')] = None,
    only: Annotated[str | None, typer.Option(help="Only these data sets of the grid.")] = None,
    labels: Annotated[
        str | None, typer.Option(help="Other label settings: single,left-75.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Other seeds: 0,1,2.")] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Settings tried a method.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Another number of epochs.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most so many rows a part, to try a grid out.")
    ] = None,
    cache: Annotated[Path | None, typer.Option(help="For decoded images and features.")] = None,
    start: Annotated[
        Path | None,
        typer.Option(help="Results of another grid: begin with the settings found best there."),
    ] = None,
) -> None:
    """Run what is missing in the file of results; the same command goes on after a stop.

    halftruth bench run benchmarks/grids/tabular.yaml --data data/ --out results/tabular.jsonl
    """
    from halftruth.bench import load_grid, run_grid, table
    from halftruth.bench.results import read_results

    # What is no number is for the grid to refuse, with everything else that is wrong.
    numbers = seeds and [int(part) if part.isdigit() else part for part in seeds.split(",")]
    spec = load_grid(
        grid, seeds=numbers, trials=trials, labels=None if labels is None else labels.split(",")
    )
    if epochs is not None:
        spec.training |= {"epochs": epochs, "head_epochs": epochs}
        for about in spec.data.values():
            about.get("training", {}).update(epochs=epochs, head_epochs=epochs)
    if limit is not None:
        spec.data = {name: {**about, "limit": limit} for name, about in spec.data.items()}
    spec = spec.select(methods=methods, data=only)

    where = {"jobs": jobs, "device": device, "cache": cache, "start": start}
    try:
        failed = run_grid(spec, data, out, **where, say=say)  # type: ignore[arg-type]
    except KeyboardInterrupt:
        say(f"stopped; finished runs are in {out}, the same command goes on from there")
        raise typer.Exit(130) from None
    if out.is_file():
        say("\n" + table(read_results(out)))
    if failed:
        say(f"{len(failed)} runs failed; the same command tries them again:")
        for text in failed:
            say(f"  {text}")
        raise typer.Exit(1)


@app.command("table")
def show(
    results: Annotated[list[Path], typer.Argument(help="Files of results.")],
    metric: Annotated[list[str] | None, typer.Option(help="May be repeated; mAP if none.")] = None,
    style: Annotated[str, typer.Option(help="markdown, csv or latex.")] = "markdown",
    only: Annotated[str | None, typer.Option(help="Only these data sets.")] = None,
    part: Annotated[str, typer.Option(help="test, or val.")] = "test",
) -> None:
    """Print results in the papers' shape, beside the published numbers.

    halftruth bench table results/tabular.jsonl --style latex
    """
    import fnmatch

    from halftruth.bench import read_results, table

    records = read_results(results)
    if only is not None:
        records = [
            r for r in records if any(fnmatch.fnmatch(r["data"], p) for p in only.split(","))
        ]
    try:
        text = table(records, metrics=metric or ["mAP"], style=style, part=part)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--style") from error
    typer.echo(text, nl=False)


@app.command("recipes")
def recipes(
    pattern: Annotated[
        str, typer.Argument(help='Only these: "voc2012/*"; one name prints the whole recipe.')
    ] = "*",
) -> None:
    """List the papers' training settings, with the published numbers, or print one.

    halftruth bench recipes "voc2012/*"
    """
    import fnmatch

    from halftruth.bench import papers

    known = papers.recipes()
    if pattern in known:
        typer.echo(known[pattern].to_yaml(), nl=False)
        return
    found = [recipe for name, recipe in known.items() if fnmatch.fnmatch(name, pattern)]
    if not found:
        raise typer.BadParameter(
            f"no recipe matches {pattern!r}; without an argument all are listed"
        )
    for recipe in found:
        numbers = "; ".join(f"{metric} {n.value:g} ({n.source})" for metric, n in recipe.numbers)
        typer.echo(f"{recipe.name:<32} {recipe.labels:<9} {numbers or '-'}".rstrip())


@app.command("labels")
def write(
    name: Annotated[str, typer.Argument(help="Data set, as in docs/datasets.md.")],
    root: Annotated[Path, typer.Argument(help="Its folder or file.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")],
    labels: Annotated[str, typer.Option(help="What to show: single, left-75, ...")] = "single",
    seed: Annotated[int, typer.Option(help="Of the draw; 1200: the published one.")] = 1200,
    option: Annotated[
        list[str] | None, typer.Option(help="key=value: an option of the data set.")
    ] = None,
) -> None:
    """Write a data set's labels as files for `halftruth train` and the recipes.

    halftruth bench labels voc2012 data/VOC --labels single --out data/voc2012
    """
    import dataclasses

    from halftruth.bench import datasets as benchmarks
    from halftruth.data import write_labels

    o.check_folder(out)
    try:
        read = benchmarks.load(
            name, root, labels=labels, seed=seed, **o.assignments(option, "--option")
        )
    except (TypeError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    out.mkdir(parents=True, exist_ok=True)
    shown = out / f"{labels}.csv"
    write_labels(read.observed, shown)
    write_labels(dataclasses.replace(read.observed, values=read.truth), out / "truth.csv")
    say(f"{read.describe()}\n{shown} and {out / 'truth.csv'} written")
