"""The tables of the documents follow from the result files in benchmarks/results."""

import re
from pathlib import Path

import pytest

from halftruth.bench.cells import records_of
from halftruth.bench.paper_items import find_item, grids, items, last_records, make_sweeps
from halftruth.bench.result_tables import compare_orders, summarise, table
from halftruth.bench.results import read_results

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
DOCS = {name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        for name in ("benchmarks", "papers", "results")}  # fmt: skip
COMMANDS = re.findall(
    r"^\| `(\d{3}) --(table|figure) (\w+) --form ([\w-]+)` \|", DOCS["benchmarks"], re.MULTILINE
)
# The metrics of a grid's table, where it shows others than mAP.
METRICS = {"chest": ["macro_F1", "macro_F2", "mAP", "F1_neg"]}


def of_the_form(command):
    paper, kind, number, form = command
    item = find_item(paper, kind.title(), number)
    cells = [cell for grid in grids(item, Path("nowhere"), form=form) for cell in grid.cells()]
    return item, records_of(cells, read_results(RESULTS / f"{form}.jsonl"))


def line_of(command) -> str:
    """The row of docs/benchmarks.md: the best three rows and the last, and rank correlation."""
    item, records = of_the_form(command)
    paper, kind, number, form = command
    metric = item.values["metrics"][0]
    found = summarise(records, [metric], source=item.source)
    if "vary" in item.values:
        text = describe_sweep(item, form, found)
    else:
        named = found.replace({"method": item.names}).sort_values("mean", ascending=False)
        rows = [f"{row.method} {row.mean:.1f}" for row in named.itertuples()]
        skipped = [f"... ({len(rows)} rows)"] if len(rows) > 4 else []
        text = ", ".join([*rows[:3], *skipped, *rows[max(3, len(rows) - 1) :]])
        for correlation, _ in compare_orders(found).values():
            text += f"; rank correlation {correlation:.2f}"
    return (
        f"| `{paper} --{kind} {number} --form {form}` | {item.names.get(metric, metric)}: {text} |"
    )


def describe_sweep(item, form, found) -> str:
    swept = {row for sweep in make_sweeps(item, form, None)[form]
             for rows in sweep.rows.values() for row in rows.values()}  # fmt: skip
    inside = found[found["method"].isin(swept)].sort_values("mean")
    lines = found[~found["method"].isin(swept)].replace({"method": item.names})
    others = "".join(f"; {row.method} {row.mean:.2f}" for row in lines.itertuples())
    low, high = inside["mean"].iloc[[0, -1]]
    return f"{low:.2f} to {high:.2f} over {len(inside)} settings{others}"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_line_of_the_small_forms_follows_from_its_file(command):
    expected = line_of(command)
    assert expected in DOCS["benchmarks"], f"the line should be\n{expected}"


@pytest.mark.parametrize(
    "item", [item for item in items() if item.kind == "runs"], ids=lambda item: item.name
)
def test_every_row_of_every_small_form_has_its_result(item):
    """Also Tables X, XIV and XV of paper 003, which show more metrics of the runs of others."""
    kind, number = item.item.split()
    command = (item.paper, kind.lower(), number, item.forms[0])
    _, records = of_the_form(command)
    (grid,) = grids(item, Path("nowhere"), form=item.forms[0])
    assert {record["method"] for record in records} == {cell.method for cell in grid.cells()}
    assert all(record["test"]["mAP"] for record in records)
    assert command in COMMANDS or item.item in ("Table X", "Table XIV", "Table XV")


def test_every_figure_stands_in_the_gallery():
    gallery = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    for item in items():
        if item.item.startswith("Figure"):
            image = f"images/papers/{item.name.replace(' ', '-').lower()}.png"
            assert f"]({image})" in gallery
            assert (ROOT / "docs" / image).exists()


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_the_table_of_a_grid_follows_from_its_file(path):
    """The files of the small forms have lines in docs/benchmarks.md instead."""
    grid = path.stem.removesuffix("-448")
    if not (ROOT / "benchmarks" / "grids" / f"{grid}.yaml").exists():
        assert f"--form {path.stem}`" in DOCS["benchmarks"]
        return
    expected = table(read_results([path]), metrics=METRICS.get(grid, ["mAP"])).strip()
    assert any(expected in text for text in DOCS.values()), f"a page should have\n{expected}"


def test_the_files_are_compact():
    assert sum(path.stat().st_size for path in RESULTS.rglob("*")) < 3_000_000


def test_the_precision_of_pseudo_labels_follows_from_its_files():
    folders = sorted((RESULTS / "001-table-6").iterdir())
    names = find_item("001", "Table", "6").values["records"]
    cells = last_records({"voc-images": folders}, names, {"voc-images": "voc2012"}).split("\n")[-1]
    precision, published, recall = (cell.strip() for cell in cells.split("|")[3:6])
    text = f"precision of {precision} % (published {published}) and a recall of {recall} %"
    assert text in DOCS["benchmarks"]


def test_a_run_of_another_item_is_a_row_here_too():
    """Table III has the row of full labels that Table 7 of paper 001 trained, as left-40."""
    _, records = of_the_form(("003", "table", "III", "voc-few"))
    assert "complete" in {record["method"] for record in records}
    assert {record["column"] for record in records} == {"left-40"}
