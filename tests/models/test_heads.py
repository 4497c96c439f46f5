"""Heads against loops and reference values."""

from pathlib import Path

import numpy as np
import pytest
import torch

from halftruth.models import LabelQueryHead, VariationalHead, create_head
from halftruth.models.heads import registry
from halftruth.train.config import Config

GOLDEN = Path(__file__).parents[1] / "golden" / "boostlu.npz"


@pytest.fixture(autouse=True)
def seeded():
    """Seed the random state that weights are drawn from."""
    torch.manual_seed(0)


@pytest.mark.parametrize("name", registry.names())
def test_every_head_returns_one_logit_per_class_and_has_gradients(name):
    head = create_head(name, 6, 4, dropout=0.1)
    shape = (3, 6, 5, 5) if head.wants_map else (3, 6)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    logits = head(x)
    assert logits.shape == (3, 4)
    logits.sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in head.parameters())
    assert head.eval()(x).abs().max() < 0.3, "starts near one half"


@pytest.mark.parametrize("name", registry.names())
def test_settings_are_checked_by_the_attributes_of_a_head(name):
    """So a new head needs no change elsewhere."""
    head = registry.get(name)
    weights = [tuple(p.shape) for p in create_head(name, 6, 4).parameters()]
    assert head.has_linear_layer == ((4, 6) in weights)
    images = " ".join(Config(images=["x"], head=name, tune="all", method="scl").problems())
    assert ("is for `features`" in images) == head.only_features
    assert ("scl needs class maps" in images or "scl keeps" in images) == (not head.keeps_maps)
    features = " ".join(Config(features="x", head=name, method="ll-cp").problems())
    assert ("needs feature maps" in features) == head.wants_map


@pytest.mark.parametrize("name", registry.names())
def test_every_head_can_be_exported_for_any_batch(name):
    head = create_head(name, 6, 4).eval()
    x = torch.randn((5, 6, 5, 5) if head.wants_map else (5, 6))
    shapes = ({0: torch.export.Dim("batch")},)
    exported = torch.export.export(head, (x[:2],), dynamic_shapes=shapes).module()
    torch.testing.assert_close(exported(x), head(x))


@pytest.mark.parametrize("prior", [0.03, 0.8])
@pytest.mark.parametrize("name", registry.names())
def test_the_first_probability_is_the_prior(name, prior):
    head = create_head(name, 6, 4, prior=prior)
    x = torch.zeros((2, 6, 5, 5) if head.wants_map else (2, 6))
    # Codes and hidden layers are never zero, so these heads start near the prior.
    exact = name in ("linear", "cam", "boostlu")
    near = 1e-6 if exact else 0.03
    for answer in (head(x), head.eval()(x)):
        wanted = torch.full((len(answer), 4), prior)
        torch.testing.assert_close(torch.sigmoid(answer), wanted, rtol=0, atol=near)


def test_boostlu_equals_the_reference_values():
    golden = {key: torch.from_numpy(value) for key, value in np.load(GOLDEN).items()}
    head = create_head("boostlu", 8, 20).double().eval()
    with torch.no_grad():
        head.conv.weight.copy_(golden["conv_w"])
        head.conv.bias.copy_(golden["conv_b"])
    feats = golden["feats"].requires_grad_()
    logits = head(feats)
    torch.testing.assert_close(logits, golden["logits"], rtol=1e-12, atol=1e-12)
    logits.sum().backward()
    # d(sum of logits)/d(bias) is the sum of the reference's slopes over the map.
    torch.testing.assert_close(head.conv.bias.grad, golden["dlogits_dcam"].sum((0, 2, 3)))


def test_maps_and_their_mean_have_one_gradient_that_is_rounded_once():
    """As `scl` wants it, over a convolution that is computed in half precision."""
    head = create_head("cam", 8, 3)
    head.conv = torch.nn.Identity()
    random = torch.Generator().manual_seed(0)
    cam = torch.randn(4, 3, 7, 7, generator=random).bfloat16().requires_grad_()
    of_mean, of_maps = (torch.randn(*s, generator=random) for s in ((4, 3), (4, 3, 7, 7)))
    ((head(cam) * of_mean).sum() + (head.maps * of_maps).sum()).backward()
    both = (of_mean / 49)[:, :, None, None] + of_maps
    assert torch.equal(cam.grad, both.bfloat16())


def test_boostlu_equals_loops():
    head = create_head("boostlu", 2, 3, alpha=2.0).double()
    torch.nn.init.normal_(head.conv.weight, generator=torch.Generator().manual_seed(0))
    x = torch.randn(2, 2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    weight, bias = head.conv.weight.detach()[:, :, 0, 0], head.conv.bias.detach()
    logits = head(x).detach()
    for b in range(2):
        for k in range(3):
            total = 0.0
            for i in range(3):
                for j in range(4):
                    c = float(weight[k] @ x[b, :, i, j] + bias[k])
                    total += 2.0 * c if c > 0 else c
            assert float(logits[b, k]) == pytest.approx(total / 12, rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "boostlo"}, "did you mean 'boostlu'"),
        ({"prior": 1.0}, "0 < prior < 1"),
        ({"dropout": 1.0}, "dropout < 1"),
        ({"dim": 0}, "dim of at least 1"),
        ({"name": "boostlu", "alpha": 0.0}, "alpha > 0"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        create_head(**{"name": "linear", "dim": 4, "num_classes": 2, **arguments})


def test_label_queries_attend_by_content_and_position():
    """By hand: one head of attention, then the small network, then one dot product per class."""
    torch.manual_seed(0)
    head = LabelQueryHead(3, 2, width=8, heads=1).eval()
    x = torch.randn(1, 3, 2, 3)
    places = torch.einsum("dc,bchw->bdhw", head.project.weight[:, :, 0, 0], x)[0]
    places = (places + head.project.bias[:, None, None]).flatten(1).T
    marks = torch.stack(
        [
            torch.cat([torch.sin(r * w), torch.cos(r * w), torch.sin(c * w), torch.cos(c * w)])
            for r in range(2)
            for c in range(3)
            for w in [torch.tensor([1.0, 1e-2])]
        ]
    )
    weights, biases = head.attention.in_proj_weight, head.attention.in_proj_bias
    (wq, wk, wv), (bq, bk, bv) = weights.split(8), biases.split(8)
    for k in range(2):
        query = head.queries[k]
        scores = ((places + marks) @ wk.T + bk) @ (wq @ query + bq) / 8**0.5
        found = head.attention.out_proj(scores.softmax(0) @ (places @ wv.T + bv))
        code = head.norms[0](query + found)
        code = head.norms[1](code + head.mlp(code))
        expected = code @ head.dots.weight[k] + head.dots.bias[k]
        torch.testing.assert_close(head(x)[0, k], expected, rtol=1e-5, atol=1e-6)


def test_widths_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="divisible by 4 and by 3 heads, got 16"):
        LabelQueryHead(3, 2, width=16, heads=3)


def test_a_variational_head_is_random_in_training_only_and_has_a_penalty():
    torch.manual_seed(0)
    head = VariationalHead(5, 3, width=4, beta=0.5)
    x = torch.randn(6, 5)
    assert not torch.equal(head(x), head(x))
    evidence = torch.tanh(head.embed(x)[:, None] * head.classes)
    own = torch.distributions.Normal(head.mean(evidence), head.log_std(evidence).exp())
    kl = torch.distributions.kl_divergence(own, torch.distributions.Normal(0.0, 1.0))
    torch.testing.assert_close(head.penalty, 0.5 * kl.mean())
    head.eval()
    expected = torch.einsum("bkd,kd->bk", own.mean, head.dots.weight) + head.dots.bias
    torch.testing.assert_close(head(x), expected)
    with pytest.raises(ValueError, match="expected beta >= 0"):
        VariationalHead(5, 3, beta=-1)
