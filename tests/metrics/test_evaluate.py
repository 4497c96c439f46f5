"""The report of `evaluate`, and `Evaluator`, which collects batches for it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from metric_cases import make

from halftruth.metrics import (
    SEWER_ML_WEIGHTS,
    Evaluator,
    UndefinedMetricWarning,
    class_and_overall,
    count,
    evaluate,
    f1_neg,
    f2_ciw,
    macro_f_beta,
    mean_average_precision,
)

KEYS = ["mAP", "CP", "CR", "CF1", "OP", "OR", "OF1", "macro_F1", "micro_F1", "macro_F2", "F1_neg"]


@pytest.mark.filterwarnings("ignore:Undefined")
def test_the_report_has_the_promised_keys_and_their_values():
    scores, labels = make(0, classes=17, unknown=True)
    options = {"empty": "zero", "ignore_unknown": True}
    report = evaluate(
        scores,
        labels,
        0.25,
        top_k=3,
        class_weights=SEWER_ML_WEIGHTS,
        classes=list(SEWER_ML_WEIGHTS),
        inclusive=True,
        **options,
    )
    counts = count(scores, labels, 0.25, inclusive=True, ignore_unknown=True)
    overall = class_and_overall(counts)
    highest = class_and_overall(count(scores, labels, top_k=3, ignore_unknown=True))
    assert report == {
        "mAP": mean_average_precision(scores, labels, **options),
        **overall,
        "macro_F1": macro_f_beta(counts),
        "micro_F1": overall["OF1"],
        "macro_F2": macro_f_beta(counts, 2.0),
        "F1_neg": f1_neg(counts),
        "F2_CIW": f2_ciw(counts, list(SEWER_ML_WEIGHTS.values())),
        **{f"{name}@3": value for name, value in highest.items()},
    }
    assert all(type(value) is float for value in report.values())
    assert report["CF1"] != pytest.approx(report["macro_F1"], abs=1e-4)


def test_default_report_has_the_default_keys_and_gives_one_warning():
    scores, labels = make(0)
    labels[:5, 3] = 1
    with pytest.warns(UndefinedMetricWarning, match="recall of 1 of 7 classes") as caught:
        report = evaluate(np.maximum(scores, 0.6), labels)
    assert list(report) == KEYS
    assert len(caught) == 1


def test_a_perfect_model_gets_one_everywhere():
    _, labels = make(0, rate=0.4)
    labels[:, :2] = -labels[:, :2]
    labels[:3] = -1
    report = evaluate((labels == 1) * 0.8 + 0.1, labels)
    assert report == dict.fromkeys(KEYS, 1.0)


def batches(scores, labels, index, sizes):
    at = 0
    for size in sizes:
        part = slice(at, at + size)
        yield scores[part], labels[part], index[part]
        at += size


@pytest.mark.filterwarnings("ignore:Undefined")
@given(st.integers(0, 10**6), st.booleans())
def test_order_and_duplicates_do_not_change_the_result(seed, sized):
    rng = np.random.default_rng(seed)
    scores, labels = make(1, samples=20, classes=3)
    index = rng.permutation(np.concatenate([np.arange(20), rng.integers(0, 20, 15)]))
    evaluator = Evaluator(num_samples=20 if sized else None)
    for batch in batches(scores[index], labels[index], index, rng.multinomial(35, [0.2] * 5)):
        evaluator.update(*batch)
    assert len(evaluator) == 20
    assert evaluator.compute(empty="zero") == evaluate(scores, labels, empty="zero")


@pytest.mark.filterwarnings("ignore:Undefined")
@given(st.integers(0, 10**6))
def test_merged_processes_equal_one_process(seed):
    rng = np.random.default_rng(seed)
    scores, labels = (torch.from_numpy(part) for part in make(1, samples=20, classes=3))
    parts = []
    for rank in range(3):
        own = np.unique(np.concatenate([np.arange(rank, 20, 3), rng.integers(0, 20, 2)]))
        parts.append(Evaluator())
        parts[-1].update(scores[own], labels[own], own)
    merged = Evaluator(num_samples=20)
    for part in parts:
        assert merged.merge(part.state() if seed % 2 else part) is merged
    assert merged.compute() == evaluate(scores, labels)
    state = merged.state()
    assert torch.equal(state["scores"], scores)
    assert torch.equal(state["labels"], labels)
    assert torch.equal(state["index"], torch.arange(20))
    assert len(Evaluator().merge(Evaluator())) == 0


def test_the_first_scores_of_a_sample_are_kept():
    evaluator = Evaluator()
    evaluator.update([[0.1], [0.2], [0.3]], [[1], [0], [1]], [4, 2, 4])
    evaluator.update([[0.9], [0.5]], [[0], [1]], [2, 0])
    state = evaluator.state()
    assert state["index"].tolist() == [0, 2, 4]
    assert state["scores"].tolist() == [[0.5], [0.2], [0.1]]
    assert state["labels"].tolist() == [[1], [0], [1]]


def test_storage_grows_without_copying_at_every_batch():
    evaluator, sizes = Evaluator(), set()
    for i in range(1000):
        evaluator.update([[0.5]], [[1]], [i])
        sizes.add(len(evaluator._seen))
    assert len(evaluator) == 1000
    assert len(sizes) <= 11


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_scores_keep_their_precision(dtype):
    evaluator = Evaluator()
    evaluator.update(torch.tensor([[0.3, 0.6]], dtype=dtype), torch.tensor([[1, -1]]), [0])
    assert evaluator.state()["scores"].dtype == dtype


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        (([[0.5]], [[1]], [5]), IndexError, "below num_samples = 3, but got 5"),
        (([[0.5]], [[1]], [-1]), IndexError, "from 0, but got -1"),
        (([[0.5]], [[1]], [0.0]), TypeError, "integer index"),
        (([[0.5]], [[1]], [True]), TypeError, "integer index"),
        (([[0.5]], [[1]], [1, 2]), ValueError, r"index \(B,\), but got \(1, 1\), \(1, 1\)"),
        (([[0.5]], [[1, 0]], [1]), ValueError, r"but got \(1, 1\), \(1, 2\)"),
        (([[0.5, 0.5]], [[1, 0]], [1]), ValueError, "Expected 1 classes as before, but got 2"),
        (([[0.5]], [[0]], [0]), ValueError, "Sample 0 was given twice with different labels"),
        (([[0.5], [0.5]], [[0], [1]], [2, 2]), ValueError, "Sample 2 was given twice"),
        (([[0.5]], [[3]], [1]), ValueError, r"\b0\b.*\b0\b.* is 3"),
    ],
)
def test_invalid_batches_are_refused_and_change_nothing(batch, error, message):
    evaluator = Evaluator(num_samples=3)
    evaluator.update([[0.7]], [[1]], [0])
    with pytest.raises(error, match=message):
        evaluator.update(*batch)
    assert len(evaluator) == 1


def test_missing_samples_are_an_error_if_the_number_is_known():
    evaluator = Evaluator(num_samples=4)
    with pytest.raises(ValueError, match="got only 0"):
        evaluator.compute()
    evaluator.update([[0.7], [0.2]], [[1], [0]], [0, 2])
    with pytest.raises(ValueError, match=r"got only 2 \(first missing: \[1, 3\]\)"):
        evaluator.compute()
    with pytest.raises(ValueError, match="call update"):
        Evaluator().compute()
    with pytest.raises(ValueError, match="at least 1"):
        Evaluator(0)


def test_an_empty_batch_changes_nothing():
    evaluator = Evaluator()
    evaluator.update(np.zeros((0, 2)), np.zeros((0, 2)), np.zeros(0, dtype=np.int64))
    assert len(evaluator) == 0
