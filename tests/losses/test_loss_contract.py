"""The contract of every loss: reductions, layouts, label types, precision, autograd, state."""

import copy
import io

import pytest
import torch

from cases import CASES
from cases.remembering import with_index
from halftruth import losses
from loss_batches import every_method, fresh, mixed, value_and_gradient


def ready(name: str, **options: object) -> tuple[losses.Loss, torch.Tensor, torch.Tensor]:
    _, labels = mixed()
    loss = fresh(name, labels, **options)
    return loss, *mixed(loss.views)


@every_method()
def test_reductions_are_multiples_of_one_another(name):
    """mean over B K entries, sum, batch = sum over classes and mean over rows."""
    results = {}
    for reduction in losses.base.REDUCTIONS:
        loss, logits, labels = ready(name, reduction=reduction)
        results[reduction] = value_and_gradient(loss, logits, labels)
    rows, classes = labels.shape
    mean, slope = results["mean"]
    close = {"rtol": 1e-12, "atol": 1e-15}
    for reduction, factor in {"sum": rows * classes, "batch": classes}.items():
        value, gradient = results[reduction]
        torch.testing.assert_close(value, mean * factor, **close)
        torch.testing.assert_close(gradient, slope * factor, **close)
    values, gradient = results["none"]
    assert values.shape == ((rows,) if loss.couples_rows else (rows, classes))
    torch.testing.assert_close(values.sum(), mean * rows * classes, **close)
    torch.testing.assert_close(gradient, slope * rows * classes, **close)


@pytest.mark.parametrize("wrapper", ["any-class", "class-balanced"])
def test_dividing_by_labels_is_a_mean_only(wrapper):
    logits, labels = mixed()
    count = int((labels > 0).sum() + (~(labels > 0).any(dim=1)).sum())
    by_labels = fresh(wrapper, labels, normalizer="labels")(logits, labels)
    summed = fresh(wrapper, labels, normalizer="labels", reduction="sum")(logits, labels)
    torch.testing.assert_close(by_labels * count, summed, rtol=1e-13, atol=0)


@every_method()
def test_upstream_gradient_of_a_scalar(name):
    loss, logits, labels = ready(name)
    _, gradient = value_and_gradient(loss, logits, labels)
    for upstream in (-2.5, 0.0, 1024.0):
        _, scaled = value_and_gradient(loss, logits, labels, torch.tensor(upstream).double())
        torch.testing.assert_close(scaled, gradient * upstream, rtol=1e-13, atol=0)


@every_method()
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "batch"])
def test_value_and_gradient_without_autograd(name, dtype, reduction):
    loss, logits, labels = ready(name, reduction=reduction)
    logits = logits.to(dtype)
    index = torch.arange(len(labels)) if loss.needs_index else None
    expected, slope = value_and_gradient(loss, logits, labels)
    own = [parameter.grad for parameter in loss.parameters()]
    loss.zero_grad()
    value, gradient = loss.value_and_grad(logits, labels, index)
    assert gradient.dtype == dtype
    assert not value.requires_grad
    assert not gradient.requires_grad
    close = {"rtol": 0, "atol": 0}
    torch.testing.assert_close(value, expected, **close)
    torch.testing.assert_close(gradient, slope, **close)
    torch.testing.assert_close([parameter.grad for parameter in loss.parameters()], own, **close)


def test_value_and_gradient_need_one_value():
    with pytest.raises(ValueError, match="reduction to one value"):
        losses.create("bce", reduction="none").value_and_grad(*mixed())


@pytest.mark.parametrize("wrapper", ["any-class", "class-balanced"])
def test_value_and_gradient_of_a_mean_over_labels(wrapper):
    logits, labels = mixed()
    loss = fresh(wrapper, labels, normalizer="labels")
    value, gradient = loss.value_and_grad(logits, labels)
    expected, slope = value_and_gradient(loss, logits, labels)
    torch.testing.assert_close(value, expected, rtol=1e-13, atol=0)
    torch.testing.assert_close(gradient, slope, rtol=1e-13, atol=0)


@every_method()
def test_upstream_gradient_of_each_entry_or_row(name):
    """A weighted sum of values has the weighted sum of their gradients."""
    loss, logits, labels = ready(name, reduction="none")
    values, _ = value_and_gradient(loss, logits, labels)
    weights = torch.randn(values.shape, generator=torch.Generator().manual_seed(1)).double()
    _, gradient = value_and_gradient(loss, logits, labels, weights)
    expected = torch.zeros_like(gradient)
    for at in range(values.numel()):
        one = torch.zeros_like(weights)
        one.view(-1)[at] = 1
        expected += value_and_gradient(loss, logits, labels, one)[1] * weights.view(-1)[at]
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-15)


@every_method()
@pytest.mark.parametrize(
    "kind", [torch.int8, torch.int32, torch.int64, torch.float16, torch.float32]
)
def test_labels_of_any_number_type(name, kind):
    loss, logits, labels = ready(name)
    want = value_and_gradient(loss, logits, labels)
    got = value_and_gradient(loss, logits, labels.to(kind))
    torch.testing.assert_close(got, want, rtol=0, atol=0)


@every_method()
def test_boolean_labels_and_nested_lists(name):
    loss, logits, labels = ready(name)
    want = value_and_gradient(loss, logits, labels.clamp(min=0))
    for given in (labels > 0, labels.clamp(min=0).tolist(), (labels > 0).numpy()):
        torch.testing.assert_close(value_and_gradient(loss, logits, given), want, rtol=0, atol=0)


@every_method()
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_strided_and_transposed_inputs(name, reduction):
    loss, logits, labels = ready(name, reduction=reduction)
    want = value_and_gradient(loss, logits, labels)
    layouts = {
        "transposed": (logits.mT.contiguous().mT, labels.mT.contiguous().mT),
        "strided": (logits.repeat_interleave(2, -1)[..., ::2], labels.repeat(2, 2)[:7, :5]),
        "one of both": (logits.mT.contiguous().mT, labels),
    }
    for given, given_labels in layouts.values():
        assert not given.is_contiguous()
        leaf = given.detach().requires_grad_()
        value = loss(leaf, given_labels)
        value.backward(torch.ones_like(value))
        # Strided entries take scalar code, contiguous ones vector code: exp differs in last bits.
        torch.testing.assert_close((value, leaf.grad), want, rtol=1e-12, atol=1e-14)


@every_method()
def test_rows_of_one_vector_repeated(name):
    """expand() gives strides of 0."""
    loss, logits, labels = ready(name)
    row = logits[..., :1, :]
    leaf = row.clone().requires_grad_()
    loss(leaf.expand_as(logits), labels).backward()
    _, want = value_and_gradient(loss, row.expand_as(logits), labels)
    torch.testing.assert_close(leaf.grad, want.sum(dim=-2, keepdim=True), rtol=1e-12, atol=1e-15)


@every_method()
def test_second_backward_gives_the_same_gradient(name):
    loss, logits, labels = ready(name)
    leaf = logits.requires_grad_()
    value = loss(leaf, labels)
    (first,) = torch.autograd.grad(value, leaf, retain_graph=True)
    first = first.clone()
    for _ in range(2):
        (again,) = torch.autograd.grad(value, leaf, retain_graph=True)
        torch.testing.assert_close(again, first, rtol=0, atol=0)


@every_method()
def test_two_batches_in_flight(name):
    """As with gradient accumulation: one module, two graphs, backward in any order."""
    loss, logits, labels = ready(name)
    other, other_labels = logits.flip(-1) - 0.5, labels.flip(-1)
    want = (
        value_and_gradient(loss, logits, labels)[1],
        value_and_gradient(loss, other, other_labels)[1],
    )
    leaves = logits.clone().requires_grad_(), other.clone().requires_grad_()
    values = loss(leaves[0], labels), loss(leaves[1], other_labels)
    (values[0] * 2 + values[1]).backward()
    torch.testing.assert_close(leaves[0].grad, want[0] * 2, rtol=1e-14, atol=0)
    torch.testing.assert_close(leaves[1].grad, want[1], rtol=1e-14, atol=0)


@every_method()
def test_without_gradient(name):
    """no_grad builds no graph, returns the same value and does not change the grad mode."""
    loss, logits, labels = ready(name)
    want, _ = value_and_gradient(loss, logits, labels)
    constant = loss(logits, labels)
    assert not constant.requires_grad
    leaf = logits.clone().requires_grad_()
    with torch.no_grad():
        value = loss(leaf, labels)
        assert not torch.is_grad_enabled()
        assert value.grad_fn is None
        assert not value.requires_grad
    with torch.inference_mode():
        inferred = loss(logits, labels)
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()
    for got in (constant, value, inferred):
        torch.testing.assert_close(got, want, rtol=0, atol=0)


@every_method()
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_computed_in_float32(name, dtype):
    loss, logits, labels = ready(name)
    half = logits.to(dtype)
    value, gradient = value_and_gradient(loss, half, labels)
    want, slope = value_and_gradient(loss, half.float(), labels)
    assert value.dtype == torch.float32
    assert torch.equal(value, want)
    assert torch.equal(gradient, slope.to(dtype)), "rounded once, with any number of terms"


TWO_PARTS = [
    ("epr", {"expected_positives": 3.0}),
    ("role", {"expected_positives": 3.0}),
    ("role", {"expected_positives": 3.0, "light": True, "rate": 0.1}),
    ("consistency", {"base": "bce", "weight": 0.7}),
    ("consistency", {"base": {"name": "epr", "expected_positives": 3.0}, "weight": 0.7}),
    ("any-class", {"base": {"name": "epr", "expected_positives": 3.0}}),
]


@pytest.mark.parametrize(("name", "options"), TWO_PARTS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_gradients_of_two_parts_are_added_before_they_are_rounded(name, options, dtype):
    random = torch.Generator().manual_seed(0)
    labels = torch.randint(-1, 2, (64, 20), generator=random).to(torch.int8)
    loss = losses.create(name, reduction="sum", **options)
    logits = 3 * torch.randn(loss.views, 64, 20, generator=random)
    logits = (logits if loss.views > 1 else logits[0]).to(dtype)
    gradients = []
    for kind in (dtype, torch.float64):
        loss.begin(labels)
        z = logits.detach().to(kind, copy=True).requires_grad_()
        loss(z, labels, index=torch.arange(64)).backward()
        gradients.append(z.grad.double())
    half, exact = gradients
    size = exact.abs().clamp(min=torch.finfo(dtype).tiny)
    ulp = torch.finfo(dtype).eps * 2 ** size.log2().floor()
    # Where the parts nearly cancel, the sum has the float32 rounding error of the parts.
    assert ((half - exact).abs() <= ulp / 2 + 1e-6).all()


@every_method()
def test_autocast(name):
    """bfloat16 logits inside autocast; the loss is computed in float32.

    Without a product in bfloat16, which ends the process on some processors.
    """
    loss, logits, labels = ready(name)
    features = logits.float().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = features.bfloat16()
        value = loss(half, labels)
        assert torch.is_autocast_enabled("cpu")
    assert half.dtype == torch.bfloat16
    assert value.dtype == torch.float32
    value.backward()
    want, slope = value_and_gradient(loss, half.detach().float(), labels)
    assert torch.equal(value, want)
    assert torch.equal(features.grad, slope.bfloat16().float())


def test_autocast_is_off_inside_and_back_on_after():
    seen = []

    class Probe(losses.BCE):
        def extra(self, logits, labels):
            seen.append(torch.is_autocast_enabled("cpu"))

    with torch.autocast("cpu", dtype=torch.bfloat16):
        Probe()(*mixed())
        assert torch.is_autocast_enabled("cpu")
    assert seen == [False]


@every_method()
def test_epochs_are_checked(name):
    loss, _, _ = ready(name)
    for epoch, epochs in ((3, 3), (-1, 3)):
        with pytest.raises(ValueError, match=f"epoch {epoch} of {epochs}"):
            loss.start_epoch(epoch, epochs)


@every_method()
def test_state_survives_saving(name):
    """Through torch.load(weights_only=True), into a loss without counts or epoch."""
    loss, logits, labels = ready(name)
    loss.start_epoch(4, 9)
    want = value_and_gradient(loss, logits, labels)
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    needed = {k: v for k, v in CASES[name].needed.items() if k not in ("counts", "negatives")}
    again = with_index(losses.create(name, **needed))
    again.load_state_dict(torch.load(file, weights_only=True))
    assert (again.epoch, again.epochs) == (4, 9)
    torch.testing.assert_close(value_and_gradient(again, logits, labels), want, rtol=0, atol=0)


def test_state_of_a_nested_wrapper():
    logits, labels = mixed()
    what = {
        "name": "any-class",
        "base": {"name": "class-balanced", "base": {"name": "splc", "base": "gr"}},
    }
    loss = losses.create(what)
    loss.begin(labels)
    loss.start_epoch(3, 7)
    again = losses.create(what)
    again.load_state_dict(loss.state_dict())
    assert again.base.base.correcting
    assert again.base.base.base.w == loss.base.base.base.w != 0
    assert torch.equal(again.base.weights, loss.base.weights)
    torch.testing.assert_close(again(logits, labels), loss(logits, labels), rtol=0, atol=0)
    assert len(list(loss.parameters())) == 0


@every_method()
def test_copies_are_independent(name):
    loss, logits, labels = ready(name)
    want = loss(logits, labels)
    twin = copy.deepcopy(loss)
    twin.start_epoch(0, 99)
    assert (loss.epoch, twin.epoch) == (CASES[name].epoch or 1, 0)
    torch.testing.assert_close(loss(logits, labels), want, rtol=0, atol=0)


def test_class_balanced_learns_its_counts_from_the_training_labels():
    logits, labels = mixed(rows=50)
    counts, negatives = (labels > 0).sum(dim=0), int((~(labels > 0).any(dim=1)).sum())
    given = losses.create("class-balanced", counts=counts, negatives=negatives)
    for training in (labels, labels.long(), labels.numpy()):
        learned = losses.create("any-class", base="class-balanced")
        learned.begin(training)
        torch.testing.assert_close(learned.base.weights, given.weights, rtol=0, atol=0)
    assert given.weights.sum().item() == pytest.approx(labels.shape[1] + 1)
    assert given(logits, labels).isfinite()


def test_hooks_reach_the_innermost_loss():
    loss = losses.create("any-class", base={"name": "class-balanced", "base": "gr"})
    loss.start_epoch(2, 4)
    assert loss.base.base.w == 1.0
    loss.end_epoch()


@every_method()
def test_the_docstring_states_what_becomes_of_unknown_and_what_is_needed(name):
    cls = losses.registry.get(name)
    text = " ".join((cls.__doc__ or "").split())
    assert cls.paper
    assert cls.unknown_is
    assert "UNKNOWN:" in text
    assert "Needs:" in text
    assert cls.needs_index == ("Needs: index" in text)
