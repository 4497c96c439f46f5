"""The ensemble head: a linear member and an MLP."""

import pytest
import torch

from halftruth import losses
from halftruth.models import build_feature_model, create_head, parameter_groups
from halftruth.train.config import Config, ConfigError
from halftruth.train.devices import OneProcess
from halftruth.train.step import Learner


def test_logits_are_the_mean_of_both_members_on_the_scale_of_the_linear_one():
    torch.manual_seed(0)
    head = create_head("ensemble", 6, 3)
    x = 2 * torch.randn(512, 6) + 1
    with torch.no_grad():
        head.linear.linear.weight.mul_(30)
        for _ in range(300):
            head.train()(x)
        a, h = head.linear(x), head.mlp.output(head.mlp.hidden(x))
        z = head.eval()(x)
    matched = a.mean(0) + (h - h.mean(0)) / h.std(0) * a.std(0)
    torch.testing.assert_close(z, (a + matched) / 2, rtol=1e-3, atol=1e-3)


def test_running_statistics_cover_the_variation_between_batches():
    head = create_head("ensemble", 2, 1)
    with torch.no_grad():
        head.linear.linear.weight.copy_(torch.tensor([[1.0, 0.0]]))
        for value in (-1.0, 1.0) * 40:
            head.train()(torch.tensor([[value, 0.0]] * 4))
    assert abs(float(head.mean[0])) < 0.05
    # Every batch is constant, so all variation is between batches.
    assert float(head.var[0]) == pytest.approx(1.0, abs=0.05)


def test_the_linear_member_learns_as_a_linear_head_alone():
    """Adam is not sensitive to the factor 1/2 of the mean over members."""
    x = torch.randn(16, 5, generator=torch.Generator().manual_seed(0))
    y = (x[:, :3] > 0).to(torch.int8)
    weights = []
    for head in ("linear", "ensemble"):
        torch.manual_seed(0)
        model = build_feature_model(5, 3, head=head)
        linear = model.head.linear if head == "linear" else model.head.linear.linear
        torch.nn.init.zeros_(linear.weight)
        config = Config(features="x", ema=0.0, weight_decay=0.02 / len(model.head.members))
        learner = Learner(model, losses.create("swan"), OneProcess("cpu"), config, 0.01, 0.01)
        for _ in range(20):
            model.train()
            learner.step(x, y, None, weight=1.0, rate=1.0)
        weights.append(linear.weight.detach())
    torch.testing.assert_close(*weights, rtol=1e-4, atol=1e-5)


def test_the_mlp_has_its_own_rate_and_no_decay():
    model = build_feature_model(4, 2, head="ensemble")
    groups = {g["name"]: g for g in parameter_groups(model, 1.0, 0.5, 0.1)}
    assert (groups["head/decay"]["lr"], groups["head/decay"]["weight_decay"]) == (0.5, 0.1)
    assert (groups["head/mlp"]["lr"], groups["head/mlp"]["weight_decay"]) == (1e-3, 0.0)
    listed = [p for g in groups.values() for p in g["params"]]
    assert len(listed) == len({id(p) for p in listed}) == len(list(model.parameters()))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"features": "x", "method": "ll-cp"},
            "2 members, and ll-cp keeps a memory per row",
        ),
        ({"images": ["x"], "method": "em"}, "is for `features`"),
    ],
)
def test_combinations_that_are_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        Config.of({"labels": "y.csv", "head": "ensemble", **settings})


def test_sizes_out_of_range_are_refused():
    with pytest.raises(ValueError, match="expected mlp_width >= 1"):
        create_head("ensemble", 4, 2, mlp_width=0)
