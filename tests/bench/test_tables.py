"""Tables in the papers' shape."""

import math

import pandas as pd
import pytest
from scipy.stats import spearmanr

from halftruth.bench import table
from halftruth.bench.papers import find_published, published_all
from halftruth.bench.result_tables import COLUMN, compare_orders, one_setting, summarise
from halftruth.bench.significance import compare


def record(method, seed, value, *, column="single", data="voc", val=0.5, lr=0.1, **more):
    return {
        "id": f"{data}{column}{method}{seed}{lr}", "data": data, "column": column,
        "labels": column, "method": method, "seed": seed, "trial": False,
        "source": {"published": "voc2012"}, "training": {"lr": lr}, "options": {},
        "threshold": "fit", "val": {"mAP": val}, "test": {"mAP": value, "CF1": value / 2}, **more,
    }  # fmt: skip


def rows_of(text):
    """The lines of the first table of a text."""
    return text[text.index("| method") :].split("\n")


RECORDS = [
    record("complete", 0, 0.9),
    record("gr", 0, 0.80), record("gr", 1, 0.82),
    record("em", 0, 0.815), record("em", 1, 0.825),
    record("bce", 0, 0.70), record("bce", 1, 0.70),
    record("own", 0, 0.60),
]  # fmt: skip


def test_markdown_marks_best_and_second_next_to_the_published_number():
    lines = rows_of(table(RECORDS))
    assert lines[0] == "| method | voc, single | published | difference |"
    assert lines[2:7] == [
        "| `complete` | 90.00 | 89.04 | +0.96 |",
        "| `em` | **82.00** ± 0.71 | 88.67 ± 0.08 | -6.67 |",
        "| `gr` | <u>81.00</u> ± 1.41 | 89.83 ± 0.12 | -8.83 |",
        "| `bce` | 70.00 ± 0.00 | 85.89 ± 0.38 | -15.89 |",
        "| `own` | 60.00 | – | – |",
    ]
    text = "with Chen et al. 2024 (GR) 0.50 over 3 methods."
    assert f"rank correlation (Spearman) {text}" in "\n".join(lines)


def test_a_table_names_the_methods_whose_places_differ_most_from_each_paper():
    values = {"bce": 0.9, "em": 0.8, "ll-r": 0.7, "lasd": 0.6}
    lines = rows_of(table([record(name, 0, value) for name, value in values.items()]))
    text = "rank correlation (Spearman) with {} over {} methods; places here and there that "
    chen = text.format("Chen et al. 2024 (GR) -1.00", 3)
    assert any(chen + "differ most: bce (1, 3), ll-r (3, 1)." in line for line in lines)
    assert any(text.format("LASD (ICLR 2023 submission) -0.40", 4) in line for line in lines)


def test_tables_leave_out_trials():
    trial = {**record("em", 7, 0.99), "trial": True, "id": "t"}
    assert rows_of(table([*RECORDS, trial])) == rows_of(table(RECORDS))


def test_settings_are_never_averaged_together():
    """Most seeds first, then validation; test numbers are not used."""
    few = [record("em", 0, 0.9, lr=0.2, val=0.9)]
    many = [record("em", seed, 0.5, lr=0.1, val=0.1) for seed in (0, 1)]
    better = [record("em", seed, 0.4, lr=0.3, val=0.2) for seed in (0, 1)]
    assert one_setting(few + many) == many
    assert one_setting(few + many + better) == better


@pytest.mark.parametrize(
    "other",
    [
        {"source": {"published": "voc2012", "limit": 60}},
        {"source": {"published": "voc2012", "frozen": {"backbone": "b"}}},
        {"setup": {"epochs": 1}},
    ],
)
def test_another_setup_makes_another_table_and_other_tests(other):
    """Other rows, another backbone or other settings, with more seeds."""
    some = [record(m, seed, 0.5, **other) for m in ("em", "wan") for seed in (0, 1, 2)]
    text = table([*RECORDS, *some])
    assert rows_of(text)[:7] == rows_of(table(RECORDS))[:7]
    second = rows_of(text[text.index("| method") + 1 :])
    assert second[2] == "| `em` | **50.00** ± 0.00 | 88.67 ± 0.08 | -38.67 |"
    found = compare([*RECORDS, *some])
    pairs = set(found[["data, labels", "better", "than"]].itertuples(index=False, name=None))
    assert ("voc, single", "em", "bce") in pairs
    assert ("voc, single (set-up 2)", "em", "wan") in pairs
    assert not any({"wan", "bce"} <= {*pair} for pair in pairs)


def test_the_setup_stands_above_the_table():
    about = {"epochs": 3, "backbone": "r", "image_size": 448, "batch_size": 8, "lr": 0.1}
    cut = [
        record("bce", 0, 0.7, rows=[4574, 1143, 5823], training=about, threshold=0.5),
        record("em", 0, 0.7, training={**about, "lr": 0.2}, threshold=0.75, label_seed=7),
        {**record("em", 0, 0.7), "trial": True, "id": "t"},
    ]
    head = table(cut)[: table(cut).index("| method")].splitlines()
    assert head == [
        "- voc: 4,574 / 1,143 / 5,823 rows (training / validation / test), backbone r, image size "
        "448, epochs 3, batch size 8",
        "- Cut of predictions: score 0.5 (the sigmoid, not calibrated); em score 0.75 (the "
        "sigmoid, not calibrated)",
        "- lr: 0.1; em 0.2",
        "- Settings chosen by at most 1 trials per method, on validation rows",
        "- Label samples: 7; training seeds: 0",
        "",
    ]
    assert "% lr: 0.1; em 0.2" in table(cut, style="latex").splitlines()


def test_the_spread_over_label_samples_is_apart_from_that_over_seeds():
    values = {(1, 0): 0.50, (1, 1): 0.52, (2, 0): 0.60, (2, 1): 0.62}
    runs = [record("em", seed, v, label_seed=at) for (at, seed), v in values.items()]
    (row,) = summarise(runs).to_dict("records")
    assert row["std"] == pytest.approx(2**0.5)
    assert row["label_std"] == pytest.approx(10 / 2**0.5)
    assert (row["mean"], row["seeds"], row["samples"]) == (pytest.approx(56), 4, 2)
    assert "**56.00** ± 7.07 / 1.41" in table(runs)
    assert "of the means of label samples / over training seeds, 4 runs" in table(runs)


def test_each_label_sample_with_one_seed_has_one_spread():
    runs = [record("em", at, 0.5 + at / 10, label_seed=at) for at in (0, 1)]
    text = table(runs)
    assert "**55.00** ± 7.07 |" in text
    assert "standard deviation over label samples, each with its training seed, 2 runs" in text


def test_rates_that_differ_between_columns_are_all_named():
    rates = {"single": 0.1, "left-40": 0.3}
    runs = [record("em", 0, 0.5, column=column, lr=lr) for column, lr in rates.items()]
    assert "- lr: 0.1 / 0.3\n" in table(runs)


def test_a_paper_has_its_names_and_its_order():
    names = {"bce": "AN", "em": "EM loss", "gr": "GR", "CF1": "F"}
    text = table(
        RECORDS, names=names, order=["bce", "own", "em", "gr", "complete"], metrics=["CF1"]
    )
    assert [line.split("|")[1].strip() for line in rows_of(text)[2:7]] == [
        "`AN`", "`own`", "`EM loss`", "`GR`", "`complete`",
    ]  # fmt: skip
    assert "F in percent" in text


def test_complete_labels_are_in_every_column():
    both = [*RECORDS, record("em", 0, 0.8, column="left-40")]
    found = {key[1:]: part.set_index("method") for key, part in summarise(both).groupby(COLUMN)}
    assert found.keys() == {("voc", "single", "mAP"), ("voc", "left-40", "mAP")}
    assert all("complete" in part.index for part in found.values())
    assert math.isnan(found["voc", "left-40", "mAP"].loc["em", "published"])


def test_complete_labels_alone_make_no_column():
    """Runs of another label setting or data set, where nothing else was run."""
    left = [record(m, 0, 0.8, column="left-40") for m in ("em", "bce")]
    elsewhere = record("complete", 0, 0.7, data="other")
    found = summarise([record("complete", 0, 0.9), *left, elsewhere])
    assert {(*place,) for place in found[["data", "labels"]].to_numpy()} == {("voc", "left-40")}
    assert found.set_index("method").loc["complete", "mean"] == 90
    head = rows_of(table([record("complete", 0, 0.9), *left]))[0]
    assert head == "| method | voc, left-40 |"


def test_complete_labels_are_shown_where_there_is_nothing_else():
    found = summarise([record("complete", 0, 0.9), record("complete", 0, 0.7, data="other")])
    assert found[["data", "method"]].to_numpy().tolist() == [
        ["voc", "complete"],
        ["other", "complete"],
    ]


def test_several_metrics_are_several_columns():
    head = rows_of(table(RECORDS, metrics=("mAP", "CF1")))[0]
    assert head == "| method | voc, single, mAP | published | difference | voc, single, CF1 |"


def test_latex_marks_best_and_second():
    lines = table(RECORDS, style="latex").split("\n")
    assert r"em & \textbf{82.00} $\pm$ 0.71 & 88.67 $\pm$ 0.08 & -6.67 \\" in lines
    assert r"gr & \underline{81.00} $\pm$ 1.41 & 89.83 $\pm$ 0.12 & -8.83 \\" in lines
    assert lines.count(r"\end{tabular}") == 1


def test_a_table_without_runs_is_one_line():
    assert table([]) == "no finished runs yet\n"


def test_an_unknown_style_is_refused():
    with pytest.raises(ValueError, match="markdown, latex, got 'html'"):
        table(RECORDS, style="html")


def correlate(pairs):
    rows = [{"method": f"m{k}", "rank": 1, "mean": mean, "papers": {"a": there}}
            for k, (mean, there) in enumerate(pairs)]  # fmt: skip
    return compare_orders(pd.DataFrame([*rows, {**rows[0], "rank": 0}]))


@pytest.mark.parametrize("pairs", [[(1, 4), (2, 2), (2, 9), (7, 9)], [(3, 1), (2, 2), (1, 3)]])
def test_rank_correlation_equals_that_of_scipy(pairs):
    ((value, places),) = correlate(pairs).values()
    assert value == pytest.approx(spearmanr(*zip(*pairs, strict=True)).statistic, abs=1e-12)
    assert len(places) == len(pairs)


def test_rank_correlation_of_equal_values_is_nan_and_two_methods_have_none():
    assert math.isnan(correlate([(1, 1), (1, 2), (1, 3)])["a"][0])
    assert correlate([(1, 1), (2, 2)]) == {}


def test_published_numbers_are_percentages_of_known_methods():
    from halftruth import losses
    from halftruth.bench import datasets as benchmarks
    from halftruth.bench.papers import recipes

    data = {*benchmarks.names(), *(name.split("/")[0] for name in recipes())}
    rows = {*losses.names(), *(name.split("/")[1] for name in recipes())}
    for (name, _, method, _), number in published_all():
        assert 0 < number.value < 100
        assert name in data
        assert method in rows


def test_of_two_papers_the_first_counts():
    found = find_published(("voc2012", "single", "em", "mAP"), "Chen")
    assert [number.value for number in found.values()] == [88.67]
    values = [n.value for key, n in published_all() if key == ("voc2012", "single", "em", "mAP")]
    assert values == [88.67, 89.09]
