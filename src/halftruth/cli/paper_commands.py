"""`halftruth bench paper`: list and regenerate the tables and figures of the papers."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halftruth.cli import options as o
from halftruth.cli.terminal import say

if TYPE_CHECKING:
    from halftruth.bench.grid import Grid
    from halftruth.bench.paper_items import Item

# Options of `run` and `paper`.
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, help="Number of processes.")]
Device = Annotated[str, typer.Option(help="auto (every GPU), cpu, or a list: cuda:0,cuda:1.")]
Seeds = Annotated[str | None, typer.Option(help="Other seeds: 0,1,2.")]
Setting = Annotated[
    list[str] | None,
    typer.Option(help="key=value: another training setting for every run; may be repeated."),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Rows per part at most, for a quick test.")]


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
    seeds: Seeds = None,
    setting: Setting = None,
    limit: Limit = None,
    only: Annotated[
        str | None, typer.Option(help="Only these data sets: voc2012,coco2014.")
    ] = None,
    add: Annotated[
        list[str] | None,
        typer.Option(help="Another row: a method, or package.module:Loss; with :key=value,..."),
    ] = None,
    jobs: Jobs = 1,
    device: Device = "auto",
) -> None:
    """List every table and figure of the papers, or regenerate one on your copy of the data.

    halftruth bench paper 003 --table VI --data DIR
    """
    from halftruth.bench.paper_items import KINDS, check_data, find_item, items

    given: dict[str, Any] = {"data": data, "out": out, "form": form, "seeds": seeds}
    given |= {"setting": setting, "limit": limit, "only": only, "add": add or []}
    given |= {"jobs": jobs if jobs > 1 else None, "device": None if device == "auto" else device}
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
    wrong = {}
    if form is not None and form not in item.forms:
        wrong["--form"] = f"has no form {form!r}; its forms: {', '.join(item.forms) or 'none'}"
    if item.needs_data and (data is None or not data.is_dir()):
        there = "" if data is None else f" ({data}: there is no such folder)"
        needed = ", ".join(item.readers)
        wrong["--data"] = f"needs {needed}: give the folder with their folders{there}"
    if form is not None and only is not None:
        wrong["--only"] = "has no effect with --form, which has one data set"
    for option, text in wrong.items():
        raise typer.BadParameter(f"{item.name} {text}", param_hint=option)
    del given["setting"]
    given |= {"seeds": parse_seeds(seeds), "settings": o.assignments(setting, "--setting")}
    given["out"] = out or Path("papers") / f"{number}-{item.item.replace(' ', '-').lower()}"
    say(f"{item.name}: {item.title}")
    if form is None and item.kind in ("runs", "train"):
        assert data is not None
        check_data(item, data, only)
    kinds: dict[str, Callable[..., None]]
    kinds = {"runs": _run_grids, "train": _draw, "losses": _draw, "labels": _draw}
    kinds.get(item.kind, _show)(item, **{**given, "jobs": jobs, "device": device})


def _refuse(given: Mapping[str, object], where: str) -> None:
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
    names: Mapping[str, str] | None = None,
    order: Sequence[str] = (),
    after: Callable[[list[dict[str, object]], str], None] = lambda records, text: None,
    start: Path | None = None,
    shown: Sequence["Grid"] = (),
    **where: Any,
) -> None:
    """Run grids and print their table, or that of `shown`; `after` gets its records and text."""
    from halftruth.bench.result_tables import table
    from halftruth.bench.runner import read_records, run_grid

    try:
        failed = run_grid(grids, data, out, start=start, **where, say=say)
    except KeyboardInterrupt:
        say(f"stopped; finished runs are in {out}, and the same command continues from there")
        raise typer.Exit(130) from None
    if out.is_file():
        records = read_records(shown or grids, out, start)
        text = table(records, metrics=metrics, source=source, names=names, order=order)
        say("\n" + text)
        after(records, text)
    if failed:
        say(f"{len(failed)} runs failed; the same command tries them again:")
        for line in failed:
            say(f"  {line}")
        raise typer.Exit(1)


def parse_seeds(text: str | None) -> list[object] | None:
    """The seeds of a list such as 0,1,2; a grid reports what is not a number."""
    if text is None:
        return None
    return [int(part) if part.strip().isdigit() else part for part in text.split(",")]


def _run_grids(
    item: "Item", data: Path, out: Path, form: str | None, jobs: int, device: str, **given: Any
) -> None:
    from halftruth.bench.paper_items import grids, make_sweeps
    from halftruth.plots.loss_figures import parse_method

    name, metrics = form or "results", item.values["metrics"]
    given["add"] = {text: parse_method(text) for text in given["add"]}

    def keep(records: list[dict[str, object]], text: str) -> None:
        (out / f"{name}.md").write_text(text, encoding="utf-8")
        if "vary" in item.values:
            from halftruth.plots.bench_figures import draw_sweep

            sweeps = make_sweeps(item, form, given["only"])
            _save([draw_sweep(records, sweeps, metrics, item.names)], out)

    made = list(grids(item, data, form=form, **given))
    run_and_show(
        made, data, out / f"{name}.jsonl", metrics=metrics, source=item.source, names=item.names,
        order=list(dict.fromkeys(row for grid in made for row in grid.entries())), after=keep,
        jobs=jobs, device=device, cache=out / "cache",
    )  # fmt: skip


def _draw(item: "Item", data: Path, out: Path, **given: Any) -> None:
    from halftruth.bench.paper_items import last_records
    from halftruth.plots.paper_figures import draw_item

    trained: dict[str, list[Path]] = {}
    where = {name: given[name] for name in ("form", "only", "device")}
    drawn = draw_item(item, data, out, given["settings"], given["limit"], say, **where)
    for folder, drawings, runs in drawn:
        _save(drawings, folder)
        trained |= runs
    if "records" in item.values:
        published = dict.fromkeys(item.forms, item.values["small"]["published"])
        typer.echo(last_records(trained, item.values["records"], published))


def _show(item: "Item", data: Path | None, **given: object) -> None:
    from halftruth.bench.paper_items import TEXTS

    typer.echo(TEXTS[item.kind](item, data))


def _save(drawings: list[Any], out: Path) -> None:
    from halftruth.plots.style import save_all

    out.mkdir(parents=True, exist_ok=True)
    for path in save_all(drawings, out):
        say(str(path))
