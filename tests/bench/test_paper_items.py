"""The list of the papers' tables and figures: complete, and every entry starts on a stand-in."""

import re
import shutil
import sys
import warnings
from pathlib import Path

import pytest
import torch
from paper_standins import WRITERS, make_standins
from tiny_grid import HereOnly
from typer.testing import CliRunner

from halftruth.bench import paper_items, run_data, runner
from halftruth.bench.datasets import BenchmarkWarning
from halftruth.bench.paper_items import KINDS, Item, find_item, grids, items
from halftruth.bench.processes import Answer
from halftruth.cli import main, paper_commands
from halftruth.cli.bench_commands import app
from halftruth.plots import paper_figures
from halftruth.plots.example_figures import draw_examples
from halftruth.plots.run_records import read_run, read_runs
from halftruth.train.config import ConfigError
from halftruth.train.results.trained_run import TrainedRun

# What the texts of the papers hold. Paper 000 and 001 are supplements: their numbering continues
# that of the main text, whose Table 3 (the ablation of APL) is listed as well.
COMPLETE = {
    "000": (["5", "6", "7", "8"], ["2", "3", "4", "5"]),
    "001": (["3", "4", "5", "6", "7"], ["7", "8", "9", "10", "11"]),
    "002": (["1", "2", "3", "4", "5", "6"], ["1", "2", "3", "4", "5"]),
    "003": (
        [
            "I",
            "II",
            "III",
            "IV",
            "V",
            "VI",
            "VII",
            "VIII",
            "IX",
            "X",
            "XI",
            "XII",
            "XIII",
            "XIV",
            "XV",
        ],
        ["1", "2", "3", "4", "5", "6", "7", "8", "9"],
    ),
    "004": (["1", "2", "3", "4"], ["1", "2"]),
}
ITEMS = items()
QUICK = {
    "backbone": "test_efficientnet", "weights": "none", "image_size": 32, "epochs": 1,
    "batch_size": 8,
}  # fmt: skip
METRICS = {"mAP", "CP", "CR", "CF1", "OP", "OR", "OF1", "macro_F1", "micro_F1", "macro_F2"}


def test_every_table_and_figure_is_declared_once():
    declared = [item.name for item in ITEMS]
    wanted = [
        f"{paper} {kind} {number}"
        for paper, both in COMPLETE.items()
        for kind, numbers in zip(("Table", "Figure"), both, strict=True)
        for number in numbers
    ]
    assert sorted(declared) == sorted(wanted)


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_an_item_has_one_kind_and_its_recipes_exist(item):
    assert sum(kind in item.values for kind in KINDS) == 1
    for key in ("runs", "train", "settings"):
        for pattern in item.values.get(key, []):
            assert item.recipes([pattern]), pattern
    if item.kind == "runs":
        # Rows whose numbers the paper gives are compared with them.
        numbers = {n.source for recipe in item.recipes() for _, n in recipe.numbers}
        assert any(source.startswith(item.source) for source in numbers) or item.here


def test_the_list_names_command_needs_and_what_was_run():
    shown = CliRunner().invoke(app, ["paper"]).output
    for item in ITEMS:
        assert item.command in shown
    assert len(re.findall("^    here: ", shown, re.MULTILINE)) == len(ITEMS)
    assert "needs: coco2014" in shown
    only = CliRunner().invoke(app, ["paper", "004"]).output
    assert "003 Table" not in only


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BenchmarkWarning)
        return make_standins(tmp_path_factory.mktemp("papers") / "data")


class FirstOfEachDataSet(HereOnly):
    """A pool that trains one run per data set for all tests, and makes up the other results."""

    trained: set[str] = set()

    def answers(self):
        what, job = self.task
        if what != "run" or job.source["reader"] not in self.trained:
            if what == "run":
                self.trained.add(job.source["reader"])
            return super().answers()
        self.task = None
        made_up = dict.fromkeys((*METRICS, "F1_neg"), 0.5)
        found = {"val": made_up, "test": made_up, "seconds": 0.0, "val_by_epoch": [0.5]}
        return [Answer(job, found)]


@pytest.fixture
def quick(monkeypatch, tmp_path_factory):
    """One training per data set for all figures of runs: later ones are copies of its folder."""
    monkeypatch.setattr(runner, "Pool", FirstOfEachDataSet)
    real, folder = paper_items._train, tmp_path_factory.getbasetemp() / "trained"

    def once(values, say, keep=()):
        out, first = Path(values["out"]), folder / Path(values["labels"]).parent.name
        if not first.exists():
            real({**values, "out": str(first)}, say)
        copies = [*(out.with_name(f"{out.name}-epoch-{epoch}") for epoch in keep), out]
        for copy in copies:
            shutil.copytree(first, copy)
        return copies

    monkeypatch.setattr(paper_items, "_train", once)


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_every_command_starts_on_a_stand_in(item, data, quick, tmp_path, monkeypatch):
    saved = []
    if item.name != "003 Figure 3":  # saving takes most of the time: once is enough
        monkeypatch.setattr(paper_commands, "_save", lambda drawings, out: saved.extend(drawings))
    words = item.command.replace("DIR", str(data)).split()[2:]
    assert words[:2] == ["paper", item.paper]
    if "out" in KINDS[item.kind]:
        words += ["--out", str(tmp_path)]
    if item.kind in ("runs", "train"):
        words += [f"--setting={key}={value}" for key, value in QUICK.items()]
        words += ["--device", "cpu"]
    if item.kind == "runs":
        words += ["--seeds", "0"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, (result.output, result.exception)
    if item.kind in ("statistics", "settings"):
        assert result.output.count("\n|") > 1
    if item.kind in ("losses", "labels", "train") or "vary" in item.values:
        assert saved or list(tmp_path.rglob("*.svg"))
    if item.kind == "runs":
        assert "mean ± standard deviation" in (tmp_path / "results.md").read_text()


def train_here(item, data, out, settings, say=lambda text: None):
    return paper_items.train_rows(item, data, out, settings, say=say, device="cpu")


def test_copies_after_early_epochs_hold_the_weights_of_these_epochs(data, tmp_path):
    """Figures 6 and 9 of paper 003: predictions after the first and the third epoch."""
    item = find_item("003", "Figure", "6")
    some = {"train": ["coco2014-left-40/splc"], "examples": {"splc": [1, 3, 9]}}
    kept = Item(item.paper, item.item, item.title, {**item.values, **some})
    settings = {**QUICK, "epochs": 3, "ema": 0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (folders,) = train_here(kept, data, tmp_path, settings).values()
        drawing = draw_examples(folders)
    assert [folder.name for folder in folders] == ["splc-epoch-1", "splc-epoch-3", "splc"]
    one, three, end = (TrainedRun(folder).model.head.state_dict() for folder in folders)
    assert not torch.equal(one["linear.weight"], three["linear.weight"])
    assert torch.equal(three["linear.weight"], end["linear.weight"])
    assert set(drawing.numbers["run"]) == {"splc-epoch-1", "splc-epoch-3", "splc"}
    # The scores are the sigmoid, and the labels of the paper's rule are told from missing ones.
    row = drawing.numbers[drawing.numbers["run"] == "splc"].iloc[0]
    run = TrainedRun(folders[-1])
    scores = run.predict(run.config.images[0], raw=True).set_index("item")
    assert row["score"] == pytest.approx(scores.loc[row["image"], row["class"]], abs=1e-6)
    assert drawing.numbers.groupby("image")["shown"].any().all()
    # A finished run is not trained again.
    (again,) = train_here(kept, data, tmp_path, settings, say=pytest.fail).values()
    assert again == folders


def test_the_untrained_run_of_figure_5_predicts_as_before_training(data, tmp_path):
    """Paper 002, Fig. 5: the share of missing labels that are present, before training."""
    item = find_item("002", "Figure", "5")
    kept = Item(item.paper, item.item, item.title, {**item.values, "train": ["voc2012/gr"]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = train_here(kept, data, tmp_path, QUICK)
    (folders,) = found.values()
    assert [folder.name for folder in folders] == ["gr-before-training", "gr"]
    (run,) = paper_figures._join_starts(read_runs(folders))
    assert list(run.epochs["number"]) == [0, 1]
    assert run.histograms[0] == read_run(folders[0]).histograms[0]
    assert run.place("best") == 1
    weights = [TrainedRun(folder).model.head.state_dict()["linear.weight"] for folder in folders]
    assert not torch.equal(*weights)
    # A normal initialisation of standard deviation 0.01, unchanged to six digits.
    assert weights[0].std().item() == pytest.approx(0.01, rel=0.2)


def test_figures_of_labels_count_the_rows_whose_labels_are_hidden(data, tmp_path):
    """Paper 002, Fig. 4: test rows are complete, so all of them would count as labelled."""
    item = find_item("002", "Figure", "4")
    kept = {**item.values, "labels": item.values["labels"][:1]}
    found = paper_figures.draw_item(
        Item(item.paper, item.item, item.title, kept), data, tmp_path, {}, None, print
    )
    ((folder, (drawing,), _),) = found
    read = paper_items.read_data(data, "voc2012", "single")
    learnt = len(read.splits.train) + len(read.splits.val)
    assert (folder.name, drawing.name) == ("voc2012", "counts")
    assert set(drawing.numbers["rows"]) == {learnt}
    assert drawing.numbers["labelled"].sum() == learnt


def test_records_of_the_last_epoch_are_means_next_to_published_numbers(tmp_path):
    """Paper 001, Table 6: the precision of positive pseudo-labels, 3 runs."""
    name, folders = "pseudo_positive_precision", []
    for seed, value in enumerate((0.1, 0.2, 0.3)):
        folders.append(tmp_path / f"em-apl-positive-seed-{seed}")
        folders[-1].mkdir()
        lines = f'{{"{name}": 0.5}}\n{{"{name}": {value}, "b": null}}\n'
        (folders[-1] / "metrics.jsonl").write_text(lines)
    text = paper_items.last_records({"small": folders}, [name, "b"], {"small": "voc2012"})
    assert "| small | em-apl-positive | 20.00 ± 10.00 | 15.66 | – | – | 3 |" in text


def test_a_sweep_has_a_row_per_combination_and_the_names_of_recipes():
    item = find_item("002", "Figure", "2")
    (grid,) = grids(item, Path("nowhere"), form="voc-features")
    rows = grid.entries()
    a, b, c = paper_items.make_sweeps(item, "voc-features", None)["voc-features"]
    assert [sweep.x for sweep in (a, b, c)] == ["ratio", "mu", "epoch"]
    assert list(a.rows) == ["b -2", "b -5", "b -8"]
    assert list(a.rows["b -2"]) == [0.6, 0.8, 1.0, 1.2]
    # The paper's own values are the recipe's row, which has a published number.
    assert a.rows["b -2"][1.0] == b.rows["sigma 0.5"][0.8] == "gr"
    assert rows[a.rows["b -8"][0.8]]["options"]["w"] == [0, 10.0]
    assert rows[b.rows["sigma 1.0"][0.2]]["options"]["mu"] == [0.5, 0.2]
    assert {"bce", "em"} <= rows.keys() - {
        row for s in (a, b, c) for r in s.rows.values() for row in r.values()
    }
    chest = paper_items.make_sweeps(find_item("000", "Figure", "4"), "chest-features", None)
    assert chest["chest-features"][0].rows[""][0.05] == "bce-cb-any-0.05"


def test_an_item_checks_all_its_data_sets_before_it_starts(data, tmp_path, quick):
    """Only VOC and CUB are there: nothing is trained, and --only runs those."""
    for name in ("voc2012", "cub"):
        (tmp_path / name).symlink_to(data / name)
    words = ["paper", "001", "--figure", "8", "--data", str(tmp_path), "--out", str(tmp_path / "o")]
    words += [f"--setting={key}={value}" for key, value in QUICK.items()]
    words += ["--device", "cpu"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refused = CliRunner().invoke(app, words)
        assert not (tmp_path / "o").exists()
        done = CliRunner().invoke(app, [*words, "--only", "voc2012,cub"])
    text = str(refused.exception)
    assert "not found below" in text
    assert "coco2014, nuswide; the others run with --only voc2012,cub" in text
    assert "cocodataset.org" in text
    assert done.exit_code == 0, (done.output, done.exception)
    assert (tmp_path / "o" / "cub" / "em").exists()


def test_the_forms_of_voc_read_the_official_files_too(data):
    """A stranger has no labels.csv."""
    (grid,) = grids(find_item("004", "Table", "2"), data, form="voc-few")
    (about,) = grid.data
    read = run_data.load_benchmark(grid.source(about), "single", 1200, data)
    official = paper_items.read_data(data, "voc2012", "single")
    assert read.observed.values.tolist() == official.observed.values.tolist()
    assert read.images == official.images


def test_every_training_item_has_a_small_form():
    training = [item for item in ITEMS if item.kind in ("runs", "train")]
    assert [item.name for item in training if not item.forms] == []


def test_table_2_of_paper_004_has_its_search_and_ten_seeds():
    (grid, *_) = grids(find_item("004", "Table", "2"), Path("nowhere"))
    assert len(grid.seeds) == 10
    cell = next(cell for cell in grid.cells() if cell.method == "em")
    tried = {(t.training["lr"], t.training["batch_size"]) for t in cell.own_trials}
    assert tried == {(lr, n) for lr in (1e-2, 1e-3, 1e-4, 1e-5) for n in (8, 16)}


def test_every_data_set_of_the_papers_has_a_stand_in():
    assert {reader for item in ITEMS for reader in item.readers} == set(WRITERS)


@pytest.mark.parametrize("item", [item for item in ITEMS if item.forms], ids=lambda item: item.name)
def test_the_smaller_forms_are_valid_grids_with_published_numbers(item):
    for form in item.forms if item.kind == "runs" else ():
        for grid in grids(item, Path("nowhere"), form=form):
            assert grid.cells()
            ((_, about),) = grid.data.items()
            assert about["published"]
            losses = [entry["options"] for entry in grid.entries().values()]
            assert all("reduction" not in options for options in losses)


def test_arabic_numbers_find_the_tables_of_paper_003():
    assert find_item("003", "Table", "6").item == "Table VI"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["003", "--table", "VI"], "needs coco2014"),
        (["003", "--table", "VI", "--data", "nowhere"], "there is no such folder"),
        (["003", "--table", "I", "--seeds", "1"], "has no effect for 003 Table I"),
        (["003", "--figure", "3", "--data", "."], "--data has no effect for 003 Figure 3"),
        (["003", "--table", "V", "--data", ".", "--form", "gone"], "has no form 'gone'"),
        (
            ["003", "--table", "V", "--data", ".", "--form", "voc", "--seeds", "a"],
            "seeds: expected a list, each a whole",
        ),
        (["003", "--data", "."], "has no effect without --table"),
        (["--table", "V"], "expected a paper and either --table or --figure"),
    ],
)
def test_mistakes_are_one_message(words, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["halftruth", "bench", "paper", *words])
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code == 2
    assert message in " ".join(re.sub("[│╭╰─╮╯]", " ", "".join(capsys.readouterr())).split())


@pytest.mark.parametrize(
    ("paper", "number", "message"),
    [("003", "99", "paper 003 has Table I"), ("9", "1", "expected one of 000")],
)
def test_an_unknown_paper_or_table_is_an_error_with_the_known_ones(paper, number, message):
    with pytest.raises(ConfigError, match=message):
        find_item(paper, "Table", number)
