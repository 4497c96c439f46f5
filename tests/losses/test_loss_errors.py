"""Errors name the expected and the given value, the place, and what to do."""

import warnings

import pytest
import torch

from cases import CASES
from halftruth import losses
from loss_batches import WRAPPERS, every_method, fresh, mixed


@every_method()
@pytest.mark.parametrize("wrong", [2, -2, 0.5, float("nan"), float("inf")])
def test_the_position_of_an_invalid_label_is_named(name, wrong):
    _, labels = mixed()
    loss = fresh(name, labels)
    logits, _ = mixed(loss.views)
    labels = labels.double()
    labels[4, 2] = wrong
    with pytest.raises(
        ValueError, match=r"labels\[4, 2\] is .*expected 1 \(present\), 0"
    ) as caught:
        loss(logits, labels)
    assert str(int(wrong) if wrong in (2, -2) else wrong) in str(caught.value)


def test_every_batch_is_checked_and_the_error_gives_advice():
    loss = losses.create("bce")
    logits, labels = mixed()
    loss(logits, labels)
    labels = labels.float()
    labels[0, 0] = float("nan")
    with pytest.raises(ValueError, match="from_zero_absent"):
        loss(logits, labels)
    labels[0, 0] = 0.3
    with pytest.raises(ValueError, match="Soft labels"):
        loss(logits, labels)


@every_method()
@pytest.mark.parametrize("shape", [(7, 4), (6, 5), (5, 7), (7,), (7, 5, 1), (1, 5)], ids=str)
def test_labels_of_a_wrong_shape_are_refused(name, shape):
    _, labels = mixed()
    loss = fresh(name, labels)
    logits, _ = mixed(loss.views)
    with pytest.raises(ValueError) as caught:
        loss(logits, torch.zeros(shape))
    assert "(7, 5)" in str(caught.value)
    assert str(shape) in str(caught.value)


@every_method()
def test_logits_of_a_wrong_number_of_dimensions_are_refused(name):
    _, labels = mixed()
    loss = fresh(name, labels)
    for shape in ((5,), (2, 2, 7, 5), (7, 5) if loss.views > 1 else (1, 7, 5)):
        with pytest.raises(
            ValueError, match=r"expected logits of shape \(([23], )?B, K\)"
        ) as caught:
            loss(torch.zeros(shape), labels)
        assert str(shape) in str(caught.value)


def test_a_wrong_number_of_views_is_refused():
    loss = losses.create("consistency", views=3)
    with pytest.raises(ValueError, match="expected 3 views of the batch, got 2"):
        loss(torch.zeros(2, 7, 5), torch.zeros(7, 5))
    with pytest.raises(ValueError, match="views >= 2, got 1"):
        losses.create("consistency", views=1)


@every_method()
@pytest.mark.parametrize("kind", [torch.int64, torch.bool, torch.complex64], ids=str)
def test_logits_that_are_not_floats_are_refused(name, kind):
    _, labels = mixed()
    with pytest.raises(TypeError, match=f"expected a tensor of floating-point logits, got {kind}"):
        fresh(name, labels)(torch.zeros(7, 5, dtype=kind), labels)


@pytest.mark.parametrize(
    "change", [lambda one: one.to("meta"), lambda one: one.to_sparse()], ids=["meta", "sparse"]
)
def test_labels_without_values_here_are_refused(change):
    with pytest.raises(TypeError, match="expected a dense tensor of labels, got torch"):
        losses.create("bce")(torch.zeros(2, 2), change(torch.ones(2, 2)))


def test_logits_that_are_not_a_tensor_are_refused():
    with pytest.raises(TypeError, match="expected a tensor of floating-point logits, got list"):
        losses.create("bce")([[0.5]], torch.zeros(1, 1))


@every_method()
def test_probabilities_give_one_warning_at_the_line_of_the_caller(name):
    _, labels = mixed()
    loss = fresh(name, labels)
    logits, _ = mixed(loss.views)
    with pytest.warns(UserWarning, match="look like probabilities.*before the sigmoid") as caught:
        loss(torch.sigmoid(logits), labels)
    # The index is passed by a hook, which is one more frame between the caller and the loss.
    assert loss.needs_index or caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(torch.sigmoid(logits), labels)


@pytest.mark.parametrize(
    "logits",
    [
        torch.zeros(4, 5),
        torch.tensor([[0.5]]),
        torch.tensor([[0.2, 1.01]]),
        torch.tensor([[-0.1, 1]]),
    ],
    ids=["a fresh head", "one number", "above 1", "below 0"],
)
def test_no_warning_without_reason(logits):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        losses.create("bce")(logits, torch.zeros(logits.shape))


def test_class_weights_for_a_wrong_number_of_classes_are_refused():
    loss = losses.create("class-balanced")
    logits, labels = mixed()
    with pytest.raises(ValueError, match=r"not known yet.*5 classes.*begin"):
        loss(logits, labels)
    loss.begin(torch.ones(3, 4))
    with pytest.raises(ValueError, match=r"for 4 classes.*5 classes"):
        loss(logits, labels)
    with pytest.raises(ValueError, match="got only counts"):
        losses.create("class-balanced", counts=[1, 2])
    with pytest.raises(ValueError, match="got only negatives"):
        losses.create("class-balanced", negatives=3)


def test_class_counts_refuse_other_codings():
    with pytest.raises(ValueError, match=r"labels\[0, 1\] is 2"):
        losses.create("class-balanced").begin(torch.tensor([[1, 2]]))


def test_more_expected_positives_than_classes_are_refused():
    logits, labels = mixed()
    with pytest.raises(ValueError, match=r"got 31\.4 for 5 classes"):
        losses.create("lasd", expected_positives=31.4)(logits, labels)


BAD = {
    "an-ls": [{"smoothing": -0.1}, {"smoothing": 1.0}, {"sides": "positive"}],
    "any-class": [{"alpha": -1}, {"lam": -0.1}, {"empty_rows": "some"}, {"normalizer": "sum"}],
    "asl": [{"gamma_pos": -1}, {"gamma_neg": -1}, {"margin": 1.0}, {"margin": -0.1}],
    "bce": [{"unknown": "positive"}],
    "class-balanced": [{"beta": 1.0}, {"beta": -0.1}, {"normalizer": "sum"}],
    "consistency": [{"weight": -1}, {"views": 0}],
    "em": [{"alpha": -0.1}],
    "em-apl": [{"alpha": -0.1}, {"beta": -1}, {"theta": 1.5}, {"warmup": 0}],
    "em-teacher": [{"alpha": -0.1}, {"weight": -1}],
    "en": [{"expected_positives": -1}, {"decay": 1.0}, {"decay": -0.1}],
    "entmin": [{"weight": -0.1}],
    "epr": [{"expected_positives": 0}, {"expected_positives": -1}, {"weight": -1}],
    "csl": [
        {"unknown": "x"},
        {"top": -1},
        {"prior": [2.0]},
        {"prior_limit": 1.5},
        {"gamma_pos": -1},
        {"gamma_neg": -1},
        {"gamma_unknown": -1},
        {"alpha": -1},
    ],
    "focal": [{"gamma": -1}, {"alpha": 1.5}, {"alpha": -0.1}],
    "focal-margin": [{"gamma": -1}, {"margin": float("nan")}],
    "gr": [
        {"w": (1,)},
        {"sigma": (0.0, 1.0)},
        {"q1": -1},
        {"q2": -1},
        {"q3": -1},
        {"q2": (0.1, -1.0)},
        {"schedule": "x"},
    ],
    "gce": [{"q": -0.1}],
    "hill": [{"lam": 0}, {"gamma": -1}, {"margin": float("inf")}],
    "lagc": [{"weight": -1}, {"tau": 0.4}, {"tau": 1.1}],
    "las": [{"lam": -1}, {"gamma_pos": -1}, {"gamma_neg": -1}],
    "lasd": [{"expected_positives": 0}, {"lam_pos": -1}, {"lam_neg": -1}, {"tau": 1.1}],
    "ll-cp": [{"delta": -0.1}],
    "ll-ct": [{"delta": -0.1}, {"delta": 1.1}],
    "ll-r": [{"delta": -0.1}],
    "mime": [{"theta": 1.1}, {"theta": -0.1}, {"warmup": 0}],
    "pr": [],
    "pseudo-label": [{"tau": -0.1}, {"tau": 1.1}, {"tau_neg": -0.1}, {"tau_neg": 0.9}],
    "role": [{"expected_positives": 0}, {"init": 0.4}, {"init": 1.0}, {"lr_mult": 0}, {"rate": 0}],
    "sce": [{"alpha": -1}, {"beta": -1}, {"log_zero": 0.0}],
    "scl": [{"weight": -1}, {"decay": 1.0}, {"side": 0}, {"start": -1}],
    "smile": [{"mu": 1.1}, {"prior": -0.1}, {"rate": -1}, {"decay": 1.1}],
    "splc": [{"tau": -0.1}, {"tau": 60}, {"tau": []}, {"tau": [0.5, 2.0]}, {"start": -1}],
    "taylor": [{"order": 0}, {"order": 1.5}],
    "unified": [{"k": 1.5}, {"k": {"over": 0.5}}, {"k": "x"}, {"v": -1}, {"v": {"mu": 0.5}}],
    "wan": [{"weight": -1}],
    "swan": [{"weight": -1}, {"propensity": "size"}, {"propensity": [1.0, 0.0]}],
}


@every_method()
def test_bad_values_name_the_argument(name):
    arguments = losses.registry.signature(name).keys() - {"reduction", "eps", "base"}
    assert name in BAD or not arguments, f"{name}: add values it must refuse to BAD, above"
    for bad in BAD.get(name, []):
        (key,) = bad
        with pytest.raises(ValueError, match=rf"expected {key}\b.*got"):
            losses.create(name, **{**CASES[name].needed, **bad})
    needed = CASES[name].needed
    with pytest.raises(ValueError, match=r"expected reduction in .*'mean'.*got 'average'"):
        losses.create(name, **needed, reduction="average")
    if "eps" in losses.registry.signature(name):
        with pytest.raises(ValueError, match="expected eps >= 0, got -1"):
            losses.create(name, **needed, eps=-1)


@every_method()
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_arguments_must_be_finite(name, wrong):
    needed = CASES[name].needed
    for key, parameter in losses.registry.signature(name).items():
        default = needed.get(key, parameter.default)
        if isinstance(default, float) and not isinstance(default, bool):
            bad: object = wrong
        elif isinstance(default, tuple):
            bad = (default[0], wrong)
        else:
            continue
        with pytest.raises(ValueError, match=rf"expected {key}\b.*got"):
            losses.create(name, **{**needed, key: bad})


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1.0])
def test_class_counts_must_be_finite(wrong):
    for counts, negatives in (([3, wrong], 2), ([3, 1], wrong)):
        with pytest.raises(ValueError, match="expected counts and negatives >= 0 and finite"):
            losses.create("class-balanced", counts=counts, negatives=negatives)
    with pytest.raises(ValueError, match="expected expected_positives"):
        losses.create("en", expected_positives=[1.0, wrong])


def test_splc_goes_inside_other_wrappers():
    for base in ("any-class", "class-balanced", "pr", "splc"):
        with pytest.raises(ValueError, match=r'without coupled entries.*base="splc"'):
            losses.create("splc", base=base)
    with pytest.raises(ValueError, match="one view"):
        losses.create("consistency", base="consistency")
    with pytest.raises(ValueError, match="PseudoLabel: it goes around AnyClass, not inside"):
        losses.create("any-class", base={"name": "pseudo-label", "tau": 0.5})


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_base_with_a_reduction_is_refused(wrapper):
    """Only the wrapper reduces; a reduction of the base would have no effect."""
    needed = CASES[wrapper].needed
    kind = losses.registry.get(wrapper).__name__
    with pytest.raises(ValueError, match=f"got 'sum'.*give the reduction to {kind}"):
        losses.create(wrapper, base={"name": "bce", "reduction": "sum"}, **needed)


def test_a_second_derivative_is_refused():
    z = torch.zeros(2, 3, requires_grad=True)
    loss = losses.create("bce")(z, torch.ones(2, 3))
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(loss, z, create_graph=True)
