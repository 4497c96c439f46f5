"""Metrics against values from the reference code of the papers and the data sets."""

import json
from pathlib import Path

import numpy as np
import pytest

from halftruth.metrics import (
    SEWER_ML_WEIGHTS,
    average_precision,
    class_and_overall,
    count,
    f1_neg,
    f2_ciw,
    hamming_loss,
    macro_f_beta,
    mean_average_precision,
    micro_f_beta,
    precision_at_k,
    recall_at_k,
    thresholds,
)

FOLDER = Path(__file__).parents[1] / "golden"
ARRAYS = dict(np.load(FOLDER / "metrics.npz"))
SCALARS = json.loads((FOLDER / "metrics_scalars.json").read_text())
LABELS = ARRAYS["targets"]
# There -1 is unknown and 0 absent.
PARTIAL = np.select([ARRAYS["targets_partial"] == 1, ARRAYS["targets_partial"] == 0], [1, -1], 0)
NOT_EMPTY = [k for k in range(20) if k != 7]

both = pytest.mark.parametrize("case", ["scores", "scores_ties"])


@both
def test_cole(case):
    scores = ARRAYS[case]
    value = average_precision(scores, LABELS, empty="zero")
    np.testing.assert_allclose(value, ARRAYS[f"cole/{case}/ap_per_class"], rtol=0, atol=1e-15)
    mean = mean_average_precision(scores, LABELS, empty="zero")
    assert 100 * mean == pytest.approx(SCALARS[f"cole/{case}/map"], abs=1e-12)
    expected = SCALARS[f"sklearn/{case}/map_macro_excluding_empty"]
    assert mean_average_precision(scores, LABELS) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("k", [1, 3, 5])
def test_cole_at_k(k):
    scores = ARRAYS["scores"]
    precision, recall = precision_at_k(scores, LABELS, k), recall_at_k(scores, LABELS, k)
    assert precision == pytest.approx(SCALARS[f"cole/scores/prec_at_{k}"], abs=1e-15)
    assert recall == pytest.approx(SCALARS[f"cole/scores/rec_at_{k}"], abs=1e-15)


def test_asl_divides_by_a_guarded_count():
    mean = mean_average_precision(ARRAYS["scores"], LABELS, empty="zero")
    assert 100 * mean == pytest.approx(SCALARS["asl/scores/mAP"], abs=1e-7)


def test_csl_leaves_unknown_entries_and_empty_classes_out():
    value = average_precision(ARRAYS["scores"], PARTIAL, ignore_unknown=True)
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(value)), [7])
    expected = ARRAYS["csl/scores/AP"]
    np.testing.assert_allclose(value[NOT_EMPTY], expected[NOT_EMPTY], rtol=0, atol=1e-9)
    mean = mean_average_precision(ARRAYS["scores"], PARTIAL, ignore_unknown=True)
    assert 100 * mean == pytest.approx(SCALARS["csl/scores/map"], abs=1e-7)


@both
def test_open_images_leaves_unknown_entries_out_and_keeps_empty_classes(case):
    mean = mean_average_precision(ARRAYS[case], PARTIAL, ignore_unknown=True, empty="zero")
    assert 100 * mean == pytest.approx(SCALARS[f"ll_openimages/{case}/map"], abs=1e-12)


@both
@pytest.mark.parametrize("threshold", [0.5, 0.75])
@pytest.mark.parametrize("sign", [">", ">="])
def test_scikit_learn_f1(case, threshold, sign):
    counts = count(ARRAYS[case], LABELS, threshold, inclusive=sign == ">=")
    expected = {
        name: SCALARS[f"sklearn/{case}/{name}_f1 {sign}{threshold}"] for name in ("micro", "macro")
    }
    assert micro_f_beta(counts) == pytest.approx(expected["micro"], abs=1e-15)
    assert macro_f_beta(counts) == pytest.approx(expected["macro"], abs=1e-15)


@both
@pytest.mark.parametrize(
    ("threshold", "source"),
    [
        (0.8, "validate(Alibaba-MIIL+ASL) thre=0.8"),
        (0.5, "validate(xinyu1205+robust-loss-mlml) thre=0.5"),
    ],
)
def test_asl_and_hill_scripts(case, threshold, source):
    counts = count(ARRAYS[case], LABELS, threshold)
    report = class_and_overall(counts)
    # These scripts call the mean of the classes' F1 mean_f_c, compute in float32, times 100.
    report["macro_F1"] = macro_f_beta(counts)
    names = {"CP": "mean_p_c", "CR": "mean_r_c", "macro_F1": "mean_f_c",
             "OP": "p_o", "OR": "r_o", "OF1": "f_o"}  # fmt: skip
    for name, theirs in names.items():
        expected = SCALARS[f"{source}/{case}/{theirs}"]
        assert 100 * report[name] == pytest.approx(expected, abs=1e-5), name


@both
@pytest.mark.parametrize(
    ("columns", "source"),
    [
        (NOT_EMPTY[:17], "17classes(no empty)"),
        (list(range(17)), "17classes(with empty class 7)"),
    ],
)
def test_sewer_ml(case, columns, source):
    counts = count(ARRAYS[case][:, columns], LABELS[:, columns], inclusive=True)
    f2 = f2_ciw(counts, SEWER_ML_WEIGHTS, list(SEWER_ML_WEIGHTS))
    assert f2 == pytest.approx(SCALARS[f"sewerml/{case}/{source}/new/F2"], abs=1e-15)
    assert f1_neg(counts) == SCALARS[f"sewerml/{case}/{source}/new/F1_Normal"]


@both
def test_sewer_ml_classes(case):
    counts = count(ARRAYS[case][:, NOT_EMPTY[:17]], LABELS[:, NOT_EMPTY[:17]], inclusive=True)
    # The last entry there is the class "normal".
    for value, name in (
        (counts.precision, "aux/P_class"),
        (counts.recall, "aux/R_class"),
        (counts.f_beta(2.0), "new/F2_class"),
    ):
        expected = ARRAYS[f"sewerml/{case}/17classes(no empty)/{name}"][:17]
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-15)


@both
def test_any_class_code(case):
    columns = NOT_EMPTY[:17]
    counts = count(ARRAYS[case][:, columns], LABELS[:, columns], inclusive=True)
    # Rounded weights and guarded ratios there.
    expected = SCALARS[f"gmean/{case}/17classes_sewer/main/CIW_F2"]
    assert f2_ciw(counts, list(SEWER_ML_WEIGHTS.values())) == pytest.approx(expected, abs=1e-5)
    expected = SCALARS[f"gmean/{case}/17classes_sewer/meta/NEGATIVE_F1"]
    assert f1_neg(counts) == pytest.approx(expected, abs=1e-7)

    counts = count(ARRAYS[case][:, NOT_EMPTY], LABELS[:, NOT_EMPTY], inclusive=True)
    folder = f"gmean/{case}/no_empty_class/class"
    np.testing.assert_array_equal(counts.tp + counts.fp, ARRAYS[f"{folder}/NP"])
    np.testing.assert_array_equal(counts.tp, ARRAYS[f"{folder}/NTP"])
    np.testing.assert_array_equal(counts.tp + counts.fn, ARRAYS[f"{folder}/NG"])
    np.testing.assert_allclose(counts.f_beta(), ARRAYS[f"{folder}/F1_CLS"], rtol=0, atol=1e-7)


def test_best_thresholds_reach_what_a_grid_over_all_scores_reaches():
    scores, labels = ARRAYS["scores_ties"][:, NOT_EMPTY], LABELS[:, NOT_EMPTY]
    counts = count(scores, labels, thresholds.best(scores, labels))
    expected = SCALARS["gmean/scores_ties/no_empty_class/max_f1"]
    assert macro_f_beta(counts) == pytest.approx(expected, abs=1e-7)


@both
def test_hamming(case):
    expected = SCALARS[f"smile/{case}/HammingLoss"]
    assert hamming_loss(ARRAYS[case], LABELS) == pytest.approx(expected, abs=1e-7)
