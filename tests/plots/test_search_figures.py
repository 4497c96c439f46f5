"""Figures of searches and benchmarks, from an Optuna study and from a results file."""

import json

import numpy as np
import pandas as pd
import pytest
from legible import assert_legible

from halftruth.bench.result_tables import summarise
from halftruth.bench.results import read_results
from halftruth.data import DataError
from halftruth.plots.bench_figures import draw_bench, draw_comparison, tried_settings
from halftruth.plots.search_figures import draw_sensitivity, draw_study, read_study
from halftruth.plots.style import save_all

optuna = pytest.importorskip("optuna")


@pytest.fixture
def study(tmp_path):
    """A study as `halftruth tune` writes it, with choices as JSON and one pruned trial."""
    made = optuna.create_study(
        study_name="halftruth", storage=f"sqlite:///{tmp_path / 'study.db'}", direction="maximize"
    )
    rates = [1e-4, 1e-3, 1e-2, 3e-4]
    for number, rate in enumerate(rates):
        params = {"head_lr": rate, "w": json.dumps([0, 2 + 8 * (number % 2)])}
        about = {
            "head_lr": optuna.distributions.FloatDistribution(1e-5, 1, log=True),
            "w": optuna.distributions.CategoricalDistribution(["[0, 2]", "[0, 10]"]),
        }
        reached = {"value": 0.4 + 0.1 * number}
        if number == 3:
            reached = {
                "intermediate_values": {0: 0.2, 1: 0.35},
                "state": optuna.trial.TrialState.PRUNED,
            }
        made.add_trial(optuna.trial.create_trial(params=params, distributions=about, **reached))
    return tmp_path


def test_a_study_is_read_from_folder_file_or_url(study):
    trials = read_study(study)
    assert trials["trial"].tolist() == [1, 2, 3, 4]
    assert trials["value"].tolist() == pytest.approx([40, 50, 60, 35])
    assert trials["state"].tolist() == ["complete"] * 3 + ["pruned"]
    assert trials["head_lr"].tolist() == [1e-4, 1e-3, 1e-2, 3e-4]
    for other in (study / "study.db", f"sqlite:///{study / 'study.db'}"):
        assert read_study(other, "halftruth").equals(trials)


def test_figures_of_a_study(study):
    history, sensitivity = draw_study(study)
    assert history.numbers["best"].tolist() == pytest.approx([40, 50, 60, 60])
    assert list(sensitivity.numbers) == ["state", "head_lr", "w", "value"]
    for drawing in (history, sensitivity):
        assert_legible(drawing.figure)


def test_a_missing_study_is_an_error(study, tmp_path):
    with pytest.raises(DataError, match="no study here"):
        read_study(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="there is no study 'x'"):
        read_study(study, "x")
    optuna.create_study(study_name="second", storage=f"sqlite:///{study / 'study.db'}")
    with pytest.raises(DataError, match="expected one study"):
        read_study(study)
    with pytest.raises(DataError, match="no trial"):
        read_study(study, "second")


@pytest.fixture
def results(tmp_path):
    """Two data sets, two methods and complete labels, with three learning rates per method."""
    lines = []
    random = np.random.default_rng(0)
    for data in ("voc2012", "yeast"):
        for method in ("complete", "bce", "em"):
            for number in range(5):
                trial = number < 3
                value = 0.5 + 0.1 * random.random()
                record = {
                    "id": f"{data}-{method}-{number}", "data": data, "column": "single",
                    "labels": "single", "method": method, "trial": trial, "seed": number % 3,
                    "loss": "bce" if method == "complete" else method,
                    "options": {"alpha": 0.1 * number} if method == "em" and number else {},
                    "training": {"head_lr": 10.0 ** -(2 + number) if trial else 0.01},
                    "source": {}, "threshold": "fit", "val": {"mAP": value, "CF1": value / 2},
                }  # fmt: skip
                if not trial:
                    record["test"] = {"mAP": value - 0.01, "CF1": value / 2}
                lines.append(json.dumps(record))
    path = tmp_path / "results.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_comparison_is_the_mean_over_seeds(results):
    drawings, left_out = draw_bench(results)
    assert left_out == []
    assert [drawing.name for drawing in drawings] == [
        "comparison",
        *(f"sensitivity-{method}" for method in ("complete", "bce", "em")),
    ]
    table = drawings[0].numbers.set_index(["data", "method"])
    runs = [r for r in records(results) if r["data"] == "yeast" and r["method"] == "bce"]
    values = [100 * run["test"]["mAP"] for run in runs if "test" in run]
    assert table.loc[("yeast", "bce"), "mean"] == pytest.approx(np.mean(values))
    assert table.loc[("yeast", "bce"), "std"] == pytest.approx(np.std(values, ddof=1))
    assert table.loc[("voc2012", "em"), "published"] > 80
    assert np.isnan(table.loc[("yeast", "em"), "published"])
    for drawing in drawings:
        assert_legible(drawing.figure)


def test_a_dot_in_a_name_or_a_folder_is_no_file_ending(results, tmp_path):
    """Row names of paper 000 end in their lambda: bce-cb-any-0.01."""
    lines = results.read_text().replace('"method": "em"', '"method": "em-0.01"')
    results.write_text(lines)
    folder = tmp_path / "figures-0.5"
    folder.mkdir()
    drawings, _ = draw_bench(results, methods=["em-0.01"])
    written = {path.name for path in save_all(drawings, folder) if path.parent == folder}
    assert {"comparison.svg", "sensitivity-em-0-01.svg"} <= written


def test_settings_that_were_not_given_have_their_default(results):
    table = tried_settings(records(results), "em", "CF1")
    assert table["alpha"].tolist()[:3] == pytest.approx([0.1, 0.1, 0.2])
    assert table["value"][0] == pytest.approx(50 * records(results)[10]["val"]["mAP"])


def test_methods_can_be_selected(results):
    drawings, _ = draw_bench([results], methods=["em"])
    assert [drawing.name for drawing in drawings] == ["comparison", "sensitivity-em"]
    with pytest.raises(DataError, match="no results of"):
        draw_bench(results, methods=["hill"])


def test_trials_without_test_scores_have_no_comparison(results):
    trials = [json.dumps(r) for r in records(results) if r["trial"]]
    results.write_text("\n".join(trials))
    drawings, left_out = draw_bench(results)
    assert drawings[0].name == "sensitivity-complete"
    assert "test rows" in left_out[0]


def test_equal_settings_are_an_error():
    table = pd.DataFrame({"data": "a", "lr": [0.1, 0.1], "value": [1.0, 2.0]})
    with pytest.raises(DataError, match="the same settings: lr"):
        draw_sensitivity("x", table, ["lr"], "data", "mAP, %")


@pytest.mark.parametrize(("other", "lines"), [([1, 1, 1, 1, 1, 1], 1), ([3, 1, 4, 1, 5, 9], 0)])
def test_a_line_joins_a_sweep_but_not_a_search(other, lines):
    columns = {"data": "a", "lr": [1, 2, 3, 4, 5, 5], "other": other}
    table = pd.DataFrame({**columns, "value": [1.0, 2.0, 4.0, 3.0, 2.0, 1.0]})
    figure = draw_sensitivity("x", table, ["lr", "other"], "data", "mAP, %").figure
    drawn = figure.axes[0].get_lines()
    assert len(drawn) == lines
    if drawn:
        assert drawn[0].get_ydata().tolist() == [1, 2, 4, 3, 1.5]


def test_many_methods_can_be_read(results):
    lines = []
    for number in range(30):
        for record in records(results)[5:10]:
            name = f"method-{number}-with-a-name"
            lines.append({**record, "method": name, "id": f"{number}-{record['id']}"})
    results.write_text("\n".join(map(json.dumps, lines)))
    drawing = draw_comparison(summarise(read_results(results)))
    assert_legible(drawing.figure)
    assert len(drawing.numbers) == 30
