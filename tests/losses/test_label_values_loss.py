"""Soft labels and weights around losses."""

import pytest
import torch

from halftruth import losses

ELEMENTWISE = ["bce", "wan", "hill", "em", "asl", "swan"]


def batch(seed=0, rows=6, classes=5):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, classes, generator=generator)
    labels = torch.randint(-1, 2, (rows, classes), generator=generator, dtype=torch.int8)
    return logits, labels


def value_and_slope(loss, logits, labels, **more):
    leaf = logits.clone().requires_grad_()
    value = loss(leaf, labels, **more)
    value.backward()
    return value.detach(), leaf.grad


@pytest.mark.parametrize("name", ELEMENTWISE)
@pytest.mark.parametrize("rows", [6, 4000])
def test_soft_labels_of_0_and_1_are_absent_and_present(name, rows):
    logits, labels = batch(rows=rows)
    soft = torch.where(labels == 0, torch.nan, (labels > 0).float())
    wrapped = losses.LabelValues(losses.create(name), soft=soft)
    index = torch.arange(rows)
    loss = losses.create(name)
    loss.begin(labels)
    wrapped.begin(labels)
    expected = value_and_slope(
        loss, logits, labels, **({"index": index} if loss.needs_index else {})
    )
    found = value_and_slope(wrapped, logits, labels, index=index)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)


def test_a_soft_label_mixes_the_two_curves():
    logits = torch.tensor([[0.3, -1.2]])
    soft = torch.tensor([[0.25, torch.nan]])
    labels = torch.tensor([[-1, 0]], dtype=torch.int8)
    loss = losses.LabelValues(losses.create("bce", reduction="sum"), soft=soft)
    found, slope = value_and_slope(loss, logits, labels, index=torch.tensor([0]))
    p = torch.sigmoid(logits)
    expected = -(0.25 * p[0, 0].log() + 0.75 * (1 - p[0, 0]).log()) - (1 - p[0, 1]).log()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(slope[0, 0], p[0, 0] - 0.25)


@pytest.mark.parametrize("shape", [(6, 1), (6, 5)])
@pytest.mark.parametrize("name", ["bce", "hill", "em"])
def test_weights_scale_the_terms(shape, name):
    logits, labels = batch()
    weights = torch.rand(shape, generator=torch.Generator().manual_seed(1))
    wrapped = losses.LabelValues(losses.create(name, reduction="sum"), weights=weights)
    entries = losses.create(name, reduction="none")(logits, labels)
    found, _ = value_and_slope(wrapped, logits, labels, index=torch.arange(6))
    torch.testing.assert_close(found, (entries * weights).sum())


def test_values_are_looked_up_by_index():
    logits, labels = batch()
    weights = torch.arange(6.0)[:, None]
    loss = losses.LabelValues(losses.create("bce", reduction="sum"), weights=weights)
    order = torch.tensor([3, 0, 5])
    some = loss(logits[order], labels[order], index=order)
    entries = losses.create("bce", reduction="none")(logits, labels)
    torch.testing.assert_close(some, (entries * weights)[order].sum())
    with pytest.raises(ValueError, match="needs the index"):
        loss(logits, labels)


def test_methods_that_couple_rows_refuse_soft_labels():
    with pytest.raises(ValueError, match="compares the labels of a row with each other"):
        losses.LabelValues(losses.create("pr"), soft=torch.zeros(2, 2))
