"""`halftruth bench paper`: list and regenerate the tables and figures of the papers."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halftruth.cli import options as o
from halftruth.cli.terminal import say

if TYPE_CHECKING:
    from halftruth.bench.grid import Grid
    from halftruth.bench.paper_items import Item


def paper(
    number: Annotated[
        str | None, typer.Argument(help="Paper: 000 to 004; without, all are listed.")
    ] = None,
    table: Annotated[str | None, typer.Option(help="Regenerate this table: VI, 2, ...")] = None,
    figure: Annotated[str | None, typer.Option(help="Regenerate this figure.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with one folder per data set (docs/datasets.md).")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder of results. [default: papers/NUMBER-ITEM]"),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(help="A smaller form of the comparison, as listed: voc-features, voc, ..."),
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Other seeds: 0,1,2.")] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(help="key=value: another training setting for every run; may be repeated."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Rows per part at most, for a quick test.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Number of processes.")] = 1,
    device: Annotated[str, typer.Option(help="auto (every GPU), cpu, or cuda:0,cuda:1.")] = "auto",
) -> None:
    """List every table and figure of the papers, or regenerate one on your copy of the data.

    halftruth bench paper 003 --table VI --data DIR
    """
    from halftruth.bench.paper_items import KINDS, find_item, items

    given: dict[str, Any] = {"data": data, "out": out, "form": form, "seeds": seeds}
    given |= {"setting": setting, "limit": limit}
    if table is None and figure is None:
        _refuse(given, "without --table or --figure")
        for item in items(number):
            typer.echo(item.describe())
        return
    if number is None or (table is not None and figure is not None):
        raise typer.BadParameter(
            "expected a paper and either --table or --figure: halftruth bench paper 003 --table VI"
        )
    item = find_item(number, "Table" if table else "Figure", str(table or figure))
    _refuse({name: given[name] for name in given.keys() - KINDS[item.kind]}, f"for {item.name}")
    if form is not None and form not in item.forms:
        there = ", ".join(item.forms) or "none"
        raise typer.BadParameter(
            f"{item.name} has no form {form!r}; its forms: {there}", param_hint="--form"
        )
    if item.needs_data and data is None:
        raise typer.BadParameter(
            f"{item.name} needs {', '.join(item.readers)}: give the folder with their folders",
            param_hint="--data",
        )
    if data is not None and not data.is_dir():
        raise typer.BadParameter(f"{data}: there is no such folder", param_hint="--data")
    given |= {"seeds": parse_seeds(seeds), "settings": o.assignments(setting, "--setting")}
    del given["setting"]
    given["out"] = out or Path("papers") / f"{number}-{item.item.replace(' ', '-').lower()}"
    say(f"{item.name}: {item.title}")
    RUN[item.kind](item, **given, jobs=jobs, device=device)


def _refuse(given: dict[str, Any], where: str) -> None:
    """Refuse options without effect."""
    idle = [f"--{name}" for name, value in given.items() if value]
    if idle:
        raise typer.BadParameter(f"{', '.join(idle)} has no effect {where}", param_hint=idle[0])


def run_and_show(
    grids: list["Grid"],
    data: Path,
    out: Path,
    *,
    metrics: Sequence[str] = ("mAP",),
    source: str = "",
    after: Callable[[list[dict[str, Any]], str], None] = lambda records, text: None,
    **where: Any,
) -> None:
    """Run grids and print their table; `after` gets its records and its text."""
    from halftruth.bench.result_tables import table
    from halftruth.bench.runner import run_grids

    try:
        failed, records = run_grids(grids, data, out, **where, say=say)
    except KeyboardInterrupt:
        say(f"stopped; finished runs are in {out}, and the same command continues from there")
        raise typer.Exit(130) from None
    if out.is_file():
        text = table(records, metrics=metrics, source=source)
        say("\n" + text)
        after(records, text)
    if failed:
        say(f"{len(failed)} runs failed; the same command tries them again:")
        for line in failed:
            say(f"  {line}")
        raise typer.Exit(1)


def parse_seeds(text: str | None) -> list[Any] | None:
    """The seeds of a list such as 0,1,2; a grid reports what is not a number."""
    if text is None:
        return None
    return [int(part) if part.strip().isdigit() else part for part in text.split(",")]


def _run_grids(
    item: "Item", data: Path, out: Path, form: str | None, jobs: int, device: str, **given: Any
) -> None:
    from halftruth.bench.paper_items import grids

    name, metrics = form or "results", item.values["metrics"]

    def keep(records: list[dict[str, Any]], text: str) -> None:
        (out / f"{name}.md").write_text(text, encoding="utf-8")
        if item.values.get("draw"):
            from halftruth.plots.bench_figures import draw_bench

            _save(draw_bench(records, metrics[0])[0], out)

    made = list(grids(item, data, form=form, **given))
    run_and_show(
        made, data, out / f"{name}.jsonl", metrics=metrics, source=item.source, after=keep,
        jobs=jobs, device=device, cache=out / "cache",
    )  # fmt: skip


def _draw_runs(item: "Item", data: Path, out: Path, **given: Any) -> None:
    from halftruth.bench.paper_items import last_records, train_recipes
    from halftruth.plots.run_figures import draw_runs

    trained = train_recipes(item, data, out, given["settings"], given["limit"], say)
    if "records" in item.values:
        typer.echo(last_records(trained, item.values["records"]))
    for name, folders in trained.items():
        drawings = []
        if "examples" in item.values:
            from halftruth.plots.example_figures import draw_examples

            drawings.append(draw_examples(folders, out / "labels" / name))
        if "figures" in item.values:
            drawings += draw_runs(folders, item.values["figures"])[0]
        _save(drawings, out / name / "figures")


def _draw_losses(item: "Item", out: Path, **given: Any) -> None:
    from halftruth.plots.loss_figures import draw_losses, draw_means, draw_surface

    what, *arguments = item.values["losses"]
    if what == "surface":
        _save([draw_surface(arguments[0]), draw_means()], out)
    else:
        _save([draw_losses(arguments, item.values.get("at", [0.0]))], out)


def _draw_labels(item: "Item", data: Path, out: Path, **given: Any) -> None:
    from halftruth.bench.paper_items import read_data, source_of
    from halftruth.plots.annotation_figures import draw_annotations
    from halftruth.plots.label_figures import draw_data

    for about in item.values["labels"]:
        name, labels = about["data"], about["labels"]
        read = read_data(data, name, labels)
        drawings = draw_data(read.observed, read.truth if labels != "complete" else None)
        if item.values.get("annotations"):
            drawings += draw_annotations(data / source_of(data, name)["root"], read.observed)
        _save(drawings, out / name)


def _show(item: "Item", data: Path | None, **given: Any) -> None:
    from halftruth.bench.paper_items import TEXTS

    typer.echo(TEXTS[item.kind](item, data))


def _save(drawings: list[Any], out: Path) -> None:
    from halftruth.plots.style import save_all

    out.mkdir(parents=True, exist_ok=True)
    for path in save_all(drawings, out):
        say(str(path))


RUN: dict[str, Callable[..., None]] = {
    "runs": _run_grids,
    "train": _draw_runs,
    "statistics": _show,
    "settings": _show,
    "losses": _draw_losses,
    "labels": _draw_labels,
    "text": _show,
}
