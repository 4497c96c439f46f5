"""Paired significance tests between methods over seeds."""

import json
import sys

import pytest
from typer.testing import CliRunner

from halftruth.bench.significance import compare, significance_table
from halftruth.cli import main
from halftruth.cli.bench_commands import app


def record(method: str, seed: int, value: float, **more: object) -> dict:
    about = {"data": "toy", "column": "single", "trial": False, "training": {}, "options": {}}
    about |= {"source": {}, "threshold": "fit", "method": method, "seed": seed}
    measured = {"val": {"mAP": value}, "test": {"mAP": value}}
    return {**about, **measured, "id": f"{method}{seed}", **more}


def records(**values: list[float]) -> list[dict]:
    return [record(m, seed, v / 100) for m, vs in values.items() for seed, v in enumerate(vs)]


def test_seeds_are_paired():
    """Both methods vary much by seed, their difference little: only a paired test sees it."""
    found = compare(records(a=[50, 60, 70, 80], b=[49, 59.1, 69, 78.9]))
    (one,) = found.to_dict("records")
    assert (one["better"], one["than"], one["seeds"]) == ("a", "b", 4)
    assert one["difference"] == pytest.approx(1.0, abs=1e-9)
    assert one["p"] < 0.001


def test_only_seeds_of_both_methods_count():
    some = records(a=[50, 60, 70], b=[49, 59, 68])
    some.append(record("a", 9, 0.01))
    assert compare(some)["seeds"].tolist() == [3]
    assert not len(compare(records(a=[50], b=[40])))
    assert "no two methods" in significance_table(compare([]), "mAP", 0.05)


def test_seeds_of_one_label_sample_count_once():
    """They share their labels: six runs of three samples are three pairs."""
    some = [
        record(
            method, seed, value * (1 + 0.01 * at) + 0.001 * seed, label_seed=at, id=f"{at}{seed}"
        )
        for method, value in (("a", 0.5), ("b", 0.4))
        for at in (1, 2, 3)
        for seed in (0, 1)
    ]
    assert compare(some)["seeds"].tolist() == [3]


def test_many_comparisons_are_corrected_by_holm():
    values = {"a": [3.0, 3.2, 3.1], "b": [2.0, 2.3, 2.1], "c": [1.0, 1.4, 1.1]}
    found = compare(records(**values)).sort_values("p")
    a, b, c = found["p"]
    assert found["p corrected"].tolist() == pytest.approx(
        [a * 3, max(a * 3, b * 2), max(a * 3, b * 2, c)]
    )


def test_complete_labels_are_no_method_and_one_method_can_be_the_reference():
    some = records(a=[3.0, 3.2], b=[2.0, 2.3], c=[1.0, 1.4], complete=[9.0, 9.1])
    assert set(compare(some)["better"]) == {"a", "b"}
    assert len(compare(some, against="c")) == 2
    with pytest.raises(ValueError, match="there are no runs of 'x'"):
        compare(some, against="x")


def test_the_table_marks_what_is_significant():
    found = compare(records(a=[50, 60, 70, 80], b=[49, 59.1, 69, 78.9], c=[10, 99, 20, 30]))
    text = significance_table(found, "mAP", 0.05)
    assert "| toy, single | `a` | `b` | +1.00 | 4 |" in text
    assert text.count("**") == 2
    assert "corrected by Holm" in text


@pytest.fixture
def results(tmp_path):
    path = tmp_path / "r.jsonl"
    lines = [json.dumps(one) for one in records(a=[50, 60, 70], b=[49, 58, 68])]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_the_command_adds_the_comparisons(results):
    shown = CliRunner().invoke(app, ["table", results, "--test"]).output
    assert "Student's paired t test" in shown
    assert "| 0.0377 |" in shown


@pytest.mark.parametrize(
    "words", [["--test", "x"], ["--against", "a"], ["--test", "--against", "nobody"]]
)
def test_wrong_options_end_with_2(results, words, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["halftruth", "bench", "table", results, *words])
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code == 2
