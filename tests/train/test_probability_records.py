"""Histograms and numbers of probabilities: against plain loops, and in the run folder."""

import json
import math

import numpy as np
import pytest
import tiny_data
import torch

from halftruth import fit, losses
from halftruth.train.records import (
    BINS,
    GROUPS,
    choose_followed_rows,
    count_class_histograms,
    count_histograms,
    describe_part,
    measure_ambiguity,
)


@pytest.fixture
def batch():
    draw = torch.Generator().manual_seed(3)
    logits = 3 * torch.randn(40, 5, generator=draw)
    labels = torch.randint(-1, 2, (40, 5), generator=draw, dtype=torch.int8)
    truth = torch.where(labels == 0, torch.randint(-1, 2, (40, 5), generator=draw), labels)
    return logits, labels, truth.to(torch.int8)


def slow_group(label: int, true: int) -> str:
    if label:
        return "labelled" if label > 0 else "absent"
    return {1: "hidden", -1: "negative", 0: "unknown"}[true]


def test_histograms_count_every_entry_in_its_group_and_bin(batch):
    logits, labels, truth = batch
    slow = {name: [0] * BINS for name in GROUPS}
    for z, label, true in zip(logits.flatten(), labels.flatten(), truth.flatten(), strict=True):
        slow[slow_group(int(label), int(true))][int(BINS * float(torch.sigmoid(z)))] += 1
    assert count_histograms(logits, labels, truth) == slow


def test_class_histograms_sum_to_the_histograms(batch):
    logits, labels, truth = batch
    p = torch.sigmoid(logits)
    found = count_class_histograms(p.numpy(), labels.numpy(), truth.numpy())
    assert found.shape == (5, len(GROUPS), 20)
    whole = count_histograms(logits, labels, truth)
    for group, name in enumerate(GROUPS):
        assert (
            found[:, group].sum(axis=0).tolist() == np.reshape(whole[name], (20, 5)).sum(1).tolist()
        )
    hidden = (labels[:, 2] == 0) & (truth[:, 2] > 0) & (p[:, 2] < 0.05)
    assert found[2, GROUPS.index("hidden"), 0] == int(hidden.sum())


def test_without_complete_labels_unknown_labels_are_one_group(batch):
    logits, labels, _ = batch
    found = count_histograms(logits, labels, None)
    assert set(found) == {"labelled", "absent", "unknown"}
    assert sum(found["unknown"]) == int((labels == 0).sum())


def test_extreme_logits_fall_into_the_outer_bins():
    found = count_histograms(torch.tensor([[1e4, -1e4]]), torch.tensor([[1, 1]]), None)
    assert (found["labelled"][0], found["labelled"][-1]) == (1, 1)


def test_loss_predictive_values_and_logit_sizes_by_hand():
    logits = torch.tensor([[2.0, -2.0], [3.0, 1.0], [-1.0, -3.0], [1.0, -1.0]])
    labels = torch.tensor([[1, 0], [0, 0], [1, 0], [0, 0]])
    truth = torch.tensor([[1, -1], [1, -1], [1, -1], [-1, 1]])
    numbers, _ = describe_part("val", logits, labels, truth, tau=0.5)
    present = [math.log1p(math.exp(-2)), math.log1p(math.exp(1))]
    assert numbers["val_loss_labelled"] == pytest.approx(np.mean(present))
    # Class 0: 2 of 3 positive predictions are right, 0 of 1 negative. Class 1: 0 of 1 and 2 of 3.
    assert numbers["val_PPV"] == pytest.approx((2 / 3 + 0) / 2)
    assert numbers["val_NPV"] == pytest.approx((0 + 2 / 3) / 2)
    assert numbers["val_size_hidden"] == pytest.approx((3 + 1) / 2)
    assert numbers["val_size_negative"] == pytest.approx((2 + 1 + 3 + 1) / 4)


def test_the_threshold_is_that_of_the_method():
    assert losses.create("bce").pseudo_label_threshold == 0.5
    wrapped = losses.create("any-class", base={"name": "splc", "tau": 0.7})
    assert wrapped.pseudo_label_threshold == 0.7


def test_few_images_are_scored_after_every_epoch():
    rows = np.arange(100, 6100)
    assert len(choose_followed_rows(rows, on_images=True)) == 375
    picked = choose_followed_rows(rows, on_images=False)
    assert len(picked) == 2048
    assert (picked[0], picked[-1]) == (100, 6099)
    assert (np.diff(picked) > 0).all()
    assert choose_followed_rows(np.array([7]), on_images=True).tolist() == [7]


def test_a_run_writes_histograms_and_resuming_keeps_them(on_features, data, tmp_path):
    settings = on_features | {"truth": data / "truth.csv", "quiet": True}
    fit(**settings, out=tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "histograms.jsonl").open()]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    values = tiny_data.records(tmp_path / "run")
    assert all({"val_PPV", "train_NPV", "val_loss_labelled"} <= record.keys() for record in values)
    assert "histograms" not in values[0]
    parts = (data / "labels.csv").read_text().splitlines()[1:]
    count = sum(",train," in line for line in parts)
    assert sum(sum(bins) for bins in lines[0]["train"].values()) == 3 * count
    assert {"labelled", "hidden", "negative"} == set(lines[0]["train"])
    before = (tmp_path / "run" / "histograms.jsonl").read_bytes()
    fit(out=tmp_path / "run", resume=True, quiet=True)
    assert (tmp_path / "run" / "histograms.jsonl").read_bytes() == before


def test_ambiguity_of_hidden_positives_and_of_negatives():
    """Of unknown labels; those whose truth is unknown are on neither side."""
    logits = torch.tensor([[1.0, -2.0, 3.0, 9.0], [4.0, -5.0, 6.0, 8.0]])
    labels = torch.tensor([[0, 0, 1, 0], [0, 0, 0, 0]])
    truth = torch.tensor([[1, -1, 1, 0], [1, -1, 1, 0]])
    found = measure_ambiguity(logits, labels, truth)
    assert found == {"hidden": pytest.approx(11 / 3), "negative": pytest.approx(3.5)}
