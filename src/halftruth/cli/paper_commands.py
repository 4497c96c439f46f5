"""`halftruth bench paper`: list and regenerate the tables and figures of the papers."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halftruth.cli import options as o
from halftruth.cli.terminal import say

if TYPE_CHECKING:
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
    from halftruth.bench.paper_items import find_item, items

    if table is None and figure is None:
        given: dict[str, Any] = {"--data": data, "--out": out, "--form": form, "--seeds": seeds}
        given |= {"--setting": setting, "--limit": limit}
        idle = [name for name, value in given.items() if value]
        if idle:
            raise typer.BadParameter(
                f"{', '.join(idle)} has no effect without --table or --figure", param_hint=idle[0]
            )
        for item in items(number):
            typer.echo(describe(item))
        return
    if number is None or (table is not None and figure is not None):
        raise typer.BadParameter(
            "expected a paper and either --table or --figure: halftruth bench paper 003 --table VI"
        )
    kind = "Table" if table is not None else "Figure"
    item = find_item(number, kind, str(table if table is not None else figure))
    _check_options(item, data, form, seeds, setting, limit)
    folder = out or Path("papers") / f"{number}-{item.item.replace(' ', '-').lower()}"
    asked: dict[str, Any] = {"data": data, "out": folder, "form": form, "jobs": jobs}
    asked["device"] = device
    asked |= {"settings": o.assignments(setting, "--setting"), "limit": limit}
    asked["seeds"] = None if seeds is None else _parse_seeds(seeds)
    say(f"{item.name}: {item.title}")
    RUN[item.kind](item, **asked)


def describe(item: "Item") -> str:
    """A few lines on a table or figure: title, command, needs, what was run here."""
    from halftruth.bench.paper_items import form_about

    lines = [f"{item.name}  {item.title}", f"    {item.command}"]
    if item.readers and item.kind != "settings":
        lines.append(f"    needs: {', '.join(item.readers)}")
    lines += [f"    --form {form}: {form_about(form)}" for form in item.forms]
    lines.append(f"    here: {item.here}")
    return "\n".join(lines)


def _check_options(
    item: "Item",
    data: Path | None,
    form: str | None,
    seeds: str | None,
    setting: list[str] | None,
    limit: int | None,
) -> None:
    """Refuse a missing --data, and options without effect."""
    needs_data = bool(item.readers) and item.kind != "settings"
    if needs_data and data is None:
        raise typer.BadParameter(
            f"{item.name} needs {', '.join(item.readers)}: give the folder with their folders",
            param_hint="--data",
        )
    if data is not None and not needs_data:
        raise typer.BadParameter(f"{item.name} needs no data", param_hint="--data")
    if data is not None and not data.is_dir():
        raise typer.BadParameter(f"{data}: there is no such folder", param_hint="--data")
    if form is not None and form not in item.forms:
        there = ", ".join(item.forms) or "none"
        raise typer.BadParameter(
            f"{item.name} has no form {form!r}; its forms: {there}", param_hint="--form"
        )
    trains = {"runs": {"--seeds", "--setting", "--limit"}, "train": {"--setting", "--limit"}}
    for name, value in {"--seeds": seeds, "--setting": setting, "--limit": limit}.items():
        if value and name not in trains.get(item.kind, set()):
            raise typer.BadParameter(f"it has no effect for {item.name}", param_hint=name)


def _parse_seeds(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isdigit() for part in parts):
        raise typer.BadParameter(
            f"expected numbers such as 0,1,2, got {text!r}", param_hint="--seeds"
        )
    return [int(part) for part in parts]


def _run_grids(item: "Item", data: Path, out: Path, form: str | None, **given: Any) -> None:
    from halftruth.bench import read_results, run_grid, table
    from halftruth.bench.paper_items import grids

    results = out / f"{form or 'results'}.jsonl"
    failed: list[str] = []
    chosen = {key: given[key] for key in ("settings", "seeds", "limit")}
    for grid in grids(item, data, form=form, **chosen):
        where = {"jobs": given["jobs"], "device": given["device"], "cache": out / "cache"}
        try:
            failed += run_grid(grid, data, results, **where, say=say)
        except KeyboardInterrupt:
            say(f"stopped; finished runs are in {results}, and the same command continues")
            raise typer.Exit(130) from None
    if results.is_file():
        text = table(read_results(results), metrics=item.values["metrics"], source=item.source)
        (out / f"{form or 'results'}.md").write_text(text, encoding="utf-8")
        say("\n" + text)
        if item.values.get("draw"):
            from halftruth.plots.bench_figures import draw_bench

            _save(draw_bench(results, item.values["metrics"][0])[0], out)
    if failed:
        say(f"{len(failed)} runs failed; the same command tries them again:")
        for text in failed:
            say(f"  {text}")
        raise typer.Exit(1)


def _draw_runs(item: "Item", data: Path, out: Path, **given: Any) -> None:
    from halftruth.bench.paper_runs import last_records, train_recipes
    from halftruth.plots.run_figures import draw_runs

    chosen = {key: given[key] for key in ("settings", "limit")}
    trained = train_recipes(item, data, out, **chosen, say=say)
    if "records" in item.values:
        typer.echo(last_records(trained, item.values["records"]))
    for name, folders in trained.items():
        if "examples" in item.values:
            from halftruth.plots.example_figures import draw_examples

            _save([draw_examples(folders, out / "labels" / name)], out / name / "figures")
        if "figures" in item.values:
            drawings, _ = draw_runs(folders, item.values["figures"])
            _save(drawings, out / name / "figures")


def _show_statistics(item: "Item", data: Path, **given: Any) -> None:
    from halftruth.bench.paper_runs import compare_statistics

    typer.echo(compare_statistics(item, data))


def _show_settings(item: "Item", **given: Any) -> None:
    from halftruth.bench.paper_runs import list_settings

    typer.echo(list_settings(item))


def _draw_losses(item: "Item", out: Path, **given: Any) -> None:
    from halftruth.plots.loss_figures import draw_losses, draw_means, draw_surface

    what, *arguments = item.values["losses"]
    if what == "surface":
        _save([draw_surface(arguments[0]), draw_means()], out)
        return
    at = [0.0]
    if "--at" in arguments:
        place = arguments.index("--at")
        at = [float(part) for part in arguments[place + 1].split(",")]
        arguments = arguments[:place]
    _save([draw_losses(arguments, at)], out)


def _draw_labels(item: "Item", data: Path, out: Path, **given: Any) -> None:
    from halftruth.bench.paper_runs import data_root, read_data
    from halftruth.plots.annotation_figures import draw_annotations
    from halftruth.plots.label_figures import draw_data

    for about in item.values["labels"]:
        name = about["data"]
        read = read_data(data, name, about["labels"])
        hidden = read.truth if about["labels"] != "complete" else None
        drawings = draw_data(read.observed, hidden)
        if item.values.get("annotations"):
            drawings += draw_annotations(data_root(data, name), read.observed)
        _save(drawings, out / name)


def _explain(item: "Item", **given: Any) -> None:
    typer.echo(item.values["text"])


def _save(drawings: list[Any], out: Path) -> None:
    from halftruth.plots.style import save_all

    out.mkdir(parents=True, exist_ok=True)
    for path in save_all(drawings, out):
        say(str(path))


RUN: dict[str, Callable[..., None]] = {
    "runs": _run_grids,
    "train": _draw_runs,
    "statistics": _show_statistics,
    "settings": _show_settings,
    "losses": _draw_losses,
    "labels": _draw_labels,
    "text": _explain,
}
