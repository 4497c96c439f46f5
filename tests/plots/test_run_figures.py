"""Figures of runs: they show the recorded numbers, and texts can be read."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from legible import assert_legible
from scipy.stats import wasserstein_distance

from halftruth.data import DataError
from halftruth.losses import GR
from halftruth.plots.epoch_figures import (
    draw_ambiguity,
    draw_corrected,
    draw_curves,
    draw_predictive_values,
    draw_separation,
    wasserstein,
)
from halftruth.plots.probability_figures import (
    draw_class_distributions,
    draw_distributions,
    draw_false_negatives,
)
from halftruth.plots.run_figures import FIGURES, draw_classes, draw_runs
from halftruth.plots.run_records import NotRecorded, read_run, read_runs
from halftruth.train.run_folder import CheckpointError


def recorded(folder, name="metrics.jsonl"):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def test_every_figure_of_a_run_can_be_read(make_run):
    drawings, left_out = draw_runs([make_run("one")])
    assert [drawing.name for drawing in drawings] == list(FIGURES)
    assert left_out == []
    for drawing in drawings:
        assert_legible(drawing.figure)
        assert len(drawing.numbers)


def test_many_classes_can_be_read(make_run):
    """The other figures do not depend on the number of classes."""
    drawings, _ = draw_runs([make_run("one", classes=312)], ["classes", "class-distributions"])
    for drawing in drawings:
        assert_legible(drawing.figure)


def test_several_runs_share_a_figure(make_run):
    folders = [make_run(name) for name in ("first", "a_second_with_a_rather_long_name")]
    drawings, _ = draw_runs(folders)
    for drawing in drawings:
        assert_legible(drawing.figure)
        assert set(drawing.numbers["run"]) == {folder.name for folder in folders}


def test_runs_of_the_same_name_get_their_parent_folders(make_run):
    runs = read_runs([make_run("a/run"), make_run("b/run")])
    assert [run.name for run in runs] == ["a/run", "b/run"]


def test_curves_are_the_recorded_ones(make_run):
    folder = make_run("one", epochs=4)
    numbers = draw_curves([read_run(folder)]).numbers.set_index(["series", "epoch"])["value"]
    for epoch, record in enumerate(recorded(folder), start=1):
        assert numbers["training loss", epoch] == record["loss"]
        assert numbers["validation mAP, %", epoch] == pytest.approx(100 * record["val_mAP"])


def test_the_distance_equals_scipys():
    random = np.random.default_rng(1)
    first, second = random.integers(0, 50, (2, 6, 100))
    middle = (np.arange(100) + 0.5) / 100
    slow = [wasserstein_distance(middle, middle, a, b) for a, b in zip(first, second, strict=True)]
    assert wasserstein(first, second) == pytest.approx(slow)


def test_separation_grows_as_the_scores_do(make_run):
    folder = make_run("one", epochs=4)
    numbers = draw_separation([read_run(folder)]).numbers
    values = numbers[numbers["series"] == "validation rows"]["value"].to_numpy()
    assert (np.diff(values) > 0).all()
    counts = recorded(folder, "histograms.jsonl")[2]["val"]
    middle = (np.arange(100) + 0.5) / 100
    slow = wasserstein_distance(middle, middle, counts["hidden"], counts["negative"])
    assert values[2] == pytest.approx(slow)


def test_corrected_labels_are_counted_above_the_methods_threshold(make_run):
    folder = make_run("one", method="splc", options={"tau": 0.7})
    numbers = draw_corrected([read_run(folder)]).numbers.set_index(["series", "epoch"])["value"]
    counts = recorded(folder, "histograms.jsonl")[1]["train"]
    right, wrong = sum(counts["hidden"][70:]), sum(counts["negative"][70:])
    assert numbers["precision, %", 2] == pytest.approx(100 * right / (right + wrong))
    assert numbers["recall, %", 2] == pytest.approx(100 * right / sum(counts["hidden"]))


def test_a_methods_own_pseudo_labels_are_preferred(make_run):
    folder = make_run("one")
    records = [
        {**record, "pseudo_positive_precision": 0.25, "pseudo_positive_recall": None}
        for record in recorded(folder)
    ]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, records)))
    numbers = draw_corrected([read_run(folder)]).numbers.set_index(["series", "epoch"])["value"]
    assert numbers["precision, %", 1] == 25
    assert np.isnan(numbers["recall, %", 1])


def test_predictive_values_list_their_threshold(make_run):
    folder = make_run("one", method="splc")
    numbers = draw_predictive_values([read_run(folder)]).numbers
    assert set(numbers["threshold"]) == {0.6}
    assert numbers["value"].iloc[0] == pytest.approx(100 * recorded(folder)[0]["val_PPV"])


def test_distributions_show_the_first_and_the_last_epoch(make_run):
    folder = make_run("one", epochs=4)
    numbers = draw_distributions([read_run(folder)]).numbers
    assert sorted(set(numbers["epoch"])) == [1, 4]
    late = numbers[(numbers["epoch"] == 4) & (numbers["group"] == "hidden")]
    assert late["count"].tolist() == recorded(folder, "histograms.jsonl")[3]["train"]["hidden"]
    shares = numbers.groupby(["epoch", "group"])["share"].sum()
    assert shares.to_numpy() == pytest.approx(1)


def test_single_classes_are_drawn_by_name(make_run):
    run = read_run(make_run("one"))
    numbers = draw_class_distributions([run], ["c0"]).numbers
    assert set(numbers["class"]) == {"c0"}
    assert numbers["count"].sum() == 300
    with pytest.raises(DataError, match="no class 'c77'"):
        draw_class_distributions([run], ["c77"])


def test_false_negative_shares_and_k(make_run):
    folder = make_run("one", method="gr", epochs=4, options={"w": [0, 10], "b": [-2, -8]})
    numbers = draw_false_negatives([read_run(folder)]).numbers
    late = numbers[numbers["epoch"] == 4].reset_index(drop=True)
    counts = recorded(folder, "histograms.jsonl")[3]["train"]
    a = sum(counts["labelled"]) / (sum(counts["labelled"]) + sum(counts["hidden"]))
    for place in (25, 75):
        p = (place + 0.5) / 100
        hidden, negative = counts["hidden"][place], counts["negative"][place]
        assert late["share"][place] == pytest.approx(hidden / (hidden + negative))
        assert late["expected"][place] == pytest.approx((1 - a) * p / (1 - a * p))
        loss = GR(w=(0, 10), b=(-2, -8))
        loss.start_epoch(3, 4)
        k = torch.sigmoid(torch.tensor(loss.w * p + loss.b)).item()
        assert late["k"][place] == pytest.approx(k, rel=1e-5)


def test_other_methods_have_no_k(make_run):
    numbers = draw_false_negatives([read_run(make_run("one", method="em"))]).numbers
    assert numbers["k"].isna().all()


def test_classes_are_those_of_the_table(make_run):
    folder = make_run("one", classes=12)
    numbers = draw_classes([read_run(folder)]).numbers
    table = pd.read_csv(folder / "classes.csv")
    assert numbers["AP"].tolist() == table["val_AP"].tolist()
    assert numbers["labelled"].tolist() == table["train_present"].tolist()


def test_without_complete_labels_the_reason_is_given(make_run):
    folder = make_run("blind", known=False)
    drawings, left_out = draw_runs([folder])
    assert [d.name for d in drawings] == [
        "curves",
        "distributions",
        "class-distributions",
        "labelled-loss",
        "classes",
    ]
    assert all("--truth" in reason for reason in left_out)
    with pytest.raises(NotRecorded, match="--truth"):
        draw_runs([folder], ["separation"])


def test_an_unfinished_run_is_drawn_up_to_its_last_epoch(make_run):
    folder = make_run("going")
    for name in ("result.json", "classes.csv", "class_histograms.npz"):
        (folder / name).unlink()
    drawings, left_out = draw_runs([folder])
    assert {d.name for d in drawings} == set(FIGURES) - {"classes", "class-distributions"}
    assert all("not finished" in reason for reason in left_out)


def test_epochs_without_histograms_keep_their_place(make_run):
    folder = make_run("one", epochs=4)
    lines = (folder / "histograms.jsonl").read_text().splitlines()
    (folder / "histograms.jsonl").write_text("\n".join(lines[2:]))
    run = read_run(folder)
    assert sorted(set(draw_distributions([run]).numbers["epoch"])) == [3, 4]
    numbers = draw_separation([run]).numbers
    missing = numbers[numbers["series"] == "validation rows"].set_index("epoch")["value"].isna()
    assert missing.to_dict() == {1: True, 2: True, 3: False, 4: False}


@pytest.mark.parametrize("name", ["_hidden", "a $ b $ c", "a very long name of a folder " * 3])
def test_any_folder_name_is_shown(make_run, name):
    folders = [make_run(name), make_run("other")]
    drawing = draw_classes(read_runs(folders))
    assert_legible(drawing.figure)
    assert len(drawing.figure.legends[0].get_texts()) == 2


def test_classes_without_ap_get_no_name(make_run):
    folder = make_run("one")
    table = pd.read_csv(folder / "classes.csv").assign(val_AP=np.nan)
    table.to_csv(folder / "classes.csv", index=False)
    assert_legible(draw_classes([read_run(folder)]).figure)


def test_wrong_requests_are_errors(make_run, tmp_path):
    folder = make_run("one")
    with pytest.raises(DataError, match=r"no figure curve; the figures are: curves, "):
        draw_runs([folder], ["curve"])
    with pytest.raises(DataError, match="each run once"):
        draw_runs([folder, folder])
    with pytest.raises(ValueError, match="holds no run"):
        draw_runs([tmp_path / "nothing"])
    (folder / "metrics.jsonl").write_text("")
    with pytest.raises(DataError, match="before the end of the first epoch"):
        draw_runs([folder])


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("result.json", "{", "result.json is damaged: JSONDecodeError"),
        ("result.json", "[]", "result.json is damaged"),
        ("result.json", "{}", "best_stage and best_epoch are missing"),
        (
            "result.json",
            '{"best_stage": "all", "best_epoch": 1, "thresholds": [0.5]}',
            "expected 5 thresholds, one per class, got 1",
        ),
        ("metrics.jsonl", '{"stage": "all", "ep\n', "metrics.jsonl is damaged"),
        ("metrics.jsonl", "3\n", "metrics.jsonl is damaged"),
        ("histograms.jsonl", "{}\n", "histograms.jsonl is damaged: .*no stage and epoch"),
        ("classes.csv", "", "classes.csv is damaged"),
        ("classes.csv", "a,b\n1,2\n", "expected the columns class"),
        ("class_histograms.npz", "PK", "class_histograms.npz is damaged"),
    ],
)
def test_a_damaged_file_is_named(make_run, file, text, message):
    folder = make_run("one")
    (folder / file).write_text(text)
    with pytest.raises(CheckpointError, match=message):
        draw_runs([folder])


def test_a_line_that_is_still_being_written_is_skipped(make_run):
    folder = make_run("one", epochs=3)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"stage": "all", "epo')
    assert len(read_run(folder).epochs) == 3


def test_the_dot_marks_the_best_epoch_of_the_result(make_run):
    folder = make_run("one", epochs=4)
    (folder / "result.json").write_text(json.dumps({"best_stage": "all", "best_epoch": 2}))
    axes = draw_curves([read_run(folder)]).figure.axes[1]
    dots = [line for line in axes.get_lines() if line.get_marker() == "o"]
    assert [dot.get_xdata().tolist() for dot in dots] == [[2]]


def test_both_kinds_of_unknown_labels_share_a_panel(make_run):
    """001 Fig. 8: hidden positives beside true negatives, on one scale."""
    drawing = draw_ambiguity(read_runs([make_run("a"), make_run("b")]))
    panels = drawing.figure.axes
    assert [axes.get_title() for axes in panels] == ["a", "b"]
    assert all(len(axes.get_lines()) >= 2 for axes in panels)


def test_runs_with_one_panel_stand_side_by_side(make_run):
    """003 Fig. 5: eight losses at their best epochs."""
    runs = read_runs([make_run(name) for name in "abcde"])
    drawing = draw_distributions(runs, epochs=["best"])
    shown = [axes for axes in drawing.figure.axes if axes.get_visible()]
    rows = [round(axes.get_position().y0, 3) for axes in shown]
    assert len(shown) == 5
    assert len(set(rows)) == 2
