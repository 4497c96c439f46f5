"""Figures of searches and benchmarks, from an Optuna study and from a results file."""

import json

import numpy as np
import pandas as pd
import pytest
from legible import assert_legible

from halftruth.bench.paper_items import Sweep
from halftruth.bench.result_tables import summarise
from halftruth.bench.results import read_results
from halftruth.data import DataError
from halftruth.plots.bench_figures import draw_bench, draw_comparison, draw_sweep
from halftruth.plots.search_figures import draw_sensitivity, draw_study, read_study

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
    drawing = draw_bench(results)
    table = drawing.numbers.set_index(["data", "method"])
    runs = [r for r in records(results) if r["data"] == "yeast" and r["method"] == "bce"]
    values = [100 * run["test"]["mAP"] for run in runs if "test" in run]
    assert table.loc[("yeast", "bce"), "mean"] == pytest.approx(np.mean(values))
    assert table.loc[("yeast", "bce"), "std"] == pytest.approx(np.std(values, ddof=1))
    assert table.loc[("voc2012", "em"), "published"] > 80
    assert np.isnan(table.loc[("yeast", "em"), "published"])
    assert_legible(drawing.figure)


def test_methods_can_be_selected(results):
    assert set(draw_bench([results], methods=["em"]).numbers["method"]) == {"em"}
    with pytest.raises(DataError, match="no results of"):
        draw_bench(results, methods=["hill"])


def test_trials_without_test_scores_have_no_comparison(results):
    results.write_text("\n".join(json.dumps(r) for r in records(results) if r["trial"]))
    with pytest.raises(DataError, match="test rows"):
        draw_bench(results)


def run_of(method, seed, value):
    scores = {"mAP": value, "macro_F1": value / 2}
    by_epoch = [value / 4, value / 2]
    return {"data": "voc", "method": method, "seed": seed, "trial": False, "test": scores,
            "val_by_epoch": by_epoch}  # fmt: skip


def test_a_sweep_has_a_curve_per_second_value_on_test_rows_and_baselines_as_lines():
    runs = [run_of(f"gr {b} {x}", seed, 0.1 * b + 0.01 * x + 0.001 * seed)
            for b in (2, 5) for x in (1, 2, 3) for seed in (0, 1)]  # fmt: skip
    runs += [run_of("bce", 0, 0.3), {**run_of("gr 2 1", 7, 0.9), "trial": True}]
    rows = {f"b {b}": {x: f"gr {b} {x}" for x in (1, 2, 3)} for b in (2, 5)}
    by_epoch = {"b 2": {None: "gr 2 1"}}
    sweeps = {"voc": [Sweep("ratio", rows), Sweep("epoch", by_epoch)]}
    drawing = draw_sweep(runs, sweeps, ["mAP", "macro_F1"], {"bce": "AN", "macro_F1": "CF1"})
    table = drawing.numbers.set_index(["x", "metric", "curve", "at"])["value"]
    assert table["ratio", "mAP", "b 5", 2] == pytest.approx(52.05)
    assert table["ratio", "macro_F1", "b 2", 3] == pytest.approx(11.525)
    assert table["epoch", "mAP", "b 2", 2] == pytest.approx(100 * (0.21 + 0.211) / 4)
    panels = [axes for axes in drawing.figure.axes if axes.get_visible()]
    assert [axes.get_xlabel() for axes in panels] == ["ratio", "ratio", "epoch", "epoch"]
    assert panels[1].get_ylabel() == "CF1, %, test rows"
    assert panels[2].get_ylabel() == "mAP, %, validation rows"
    (line,) = [one for one in panels[0].get_lines() if one.get_label() == "AN"]
    assert list(line.get_ydata()) == [30, 30]


def test_equal_settings_are_an_error():
    table = pd.DataFrame({"state": "complete", "lr": [0.1, 0.1], "value": [1.0, 2.0]})
    with pytest.raises(DataError, match="the same settings: lr"):
        draw_sensitivity(table, ["lr"], "mAP, %")


@pytest.mark.parametrize(("other", "lines"), [([1, 1, 1, 1, 1, 1], 1), ([3, 1, 4, 1, 5, 9], 0)])
def test_a_line_joins_a_sweep_but_not_a_search(other, lines):
    columns = {"state": "complete", "lr": [1, 2, 3, 4, 5, 5], "other": other}
    table = pd.DataFrame({**columns, "value": [1.0, 2.0, 4.0, 3.0, 2.0, 1.0]})
    figure = draw_sensitivity(table, ["lr", "other"], "mAP, %").figure
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
