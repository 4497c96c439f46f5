"""A network averaged with a classifier on frozen features."""

import pytest
import torch
from torch import nn

from halftruth.models.averaged import average_classifiers
from halftruth.models.classifier import Classifier
from halftruth.models.heads import LinearHead


def make_classifier(dim, seed):
    torch.manual_seed(seed)
    head = LinearHead(dim, 3)
    return Classifier(nn.Linear(4, dim), head, feature_dim=dim, num_classes=3, image_size=8).eval()


@torch.no_grad()
def test_both_count_the_same_whatever_their_scales():
    one, two = make_classifier(5, 0), make_classifier(6, 1)
    two.head.linear.weight *= 100
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(2))
    both = average_classifiers(one, two).eval()
    both.head.set_scales(one(x), two(x))
    z = [(model(x) - model(x).mean(0)) / model(x).std(0) for model in (one, two)]
    average = (both(x) - one(x).mean(0)) / one(x).std(0)
    assert torch.allclose(average, (z[0] + z[1]) / 2, atol=1e-4)
    assert both.features(x).shape == (50, 11)
    assert both.image_size == 8


@torch.no_grad()
@pytest.mark.parametrize("rows", [1, 5])
def test_a_class_without_spread_stays_finite(rows):
    one, two = make_classifier(5, 0), make_classifier(6, 1)
    both = average_classifiers(one, two).eval()
    both.head.set_scales(torch.zeros(rows, 3), torch.full((rows, 3), 2.0))
    assert both(torch.randn(2, 4)).isfinite().all()
