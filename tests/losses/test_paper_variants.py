"""Settings for the ablations of the papers: trained numbers of gr, other labels of APL."""

import pytest
import torch

from halftruth import losses
from loss_batches import mixed


def test_trained_numbers_of_gr_have_the_gradient_of_the_loss():
    """Paper 002, Table 3, last row: w, b, mu and sigma learn by gradient descent."""
    logits, labels = mixed(rows=9)
    loss = losses.create("gr", trainable=True, w=(2.0, 2.0), q3=0.7)
    loss(logits, labels).backward()
    for place in range(4):
        ends = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                loss.trained[place] += step
                ends.append(loss(logits, labels).item())
                loss.trained[place] -= step
        slope = (ends[0] - ends[1]) / 2e-6
        assert loss.trained.grad[place].item() == pytest.approx(slope, rel=1e-6, abs=1e-10)


def test_only_a_trainable_gr_has_parameters():
    assert losses.create("gr").parameter_groups(0.1) == []
    # A loss without an extra term is one pass over the logits.
    assert [losses.create("gr", trainable=one).has_extra for one in (False, True)] == [False, True]
    (group,) = losses.create("gr", trainable=True).parameter_groups(0.1)
    assert group["lr"] == 0.1
    assert group["params"][0].tolist() == [0.0, -2.0, 0.5, 2.0]


def apl_after_one_labelling(**settings: object) -> tuple[losses.Loss, torch.Tensor]:
    labels = torch.zeros(20, 2)
    labels[0] = 1
    loss = losses.create("em-apl", warmup=1, **settings)
    loss.begin(labels)
    loss.start_epoch(0, 2)
    scores = torch.linspace(-3, 3, 20).unsqueeze(1).repeat(1, 2)
    loss.end_epoch(scores)
    return loss, loss.pseudo_labels(torch.arange(20))


def test_positive_pseudo_labels_are_the_highest_predictions():
    """Paper 001, Table 6: a share of 10 %; here 19 unknown labels, one epoch gives them all."""
    _, none = apl_after_one_labelling(theta=0.5)
    assert none[:, 0].tolist() == [0] + [-1] * 9 + [0] * 10
    _, both = apl_after_one_labelling(theta=0.5, theta_pos=0.11)
    assert both[:, 0].tolist() == [0] + [-1] * 9 + [0] * 8 + [1] * 2


@pytest.mark.parametrize(("hard", "target"), [(False, torch.sigmoid(torch.tensor(3.0))), (True, 1)])
def test_a_positive_pseudo_label_is_trained_towards_its_target(hard, target):
    loss, _ = apl_after_one_labelling(theta=0.5, theta_pos=0.11, hard=hard, beta=0.5)
    loss.start_epoch(1, 2)
    z = torch.zeros(1, 2, requires_grad=True)
    loss(z, torch.zeros(1, 2), index=torch.tensor([19])).backward()
    # The slope of beta · BCE(p, t) is beta (p - t), divided by two entries; half precision.
    assert z.grad[0, 0].item() == pytest.approx(0.5 * (0.5 - float(target)) / 2, abs=1e-3)


def test_thresholds_per_class_must_fit_the_classes():
    loss = losses.create("splc", tau=[0.5, 0.6])
    with pytest.raises(ValueError, match="one tau for each of the 5 classes, got 2"):
        loss(*mixed())


def test_a_prior_per_class_must_fit_the_classes():
    with pytest.raises(ValueError, match="prior for each of the 5 classes, got 1"):
        losses.create("csl", prior=[0.5])(*mixed())


def test_the_weight_of_consistency_follows_the_number_of_classes():
    """Paper 004, Table 4: alpha K is 14, 8, 12 and 9; the default is 10/K."""
    logits, labels = mixed(views=3)
    given = losses.create("consistency", weight=2.0)(logits, labels)
    torch.testing.assert_close(losses.create("consistency")(logits, labels), given)


@pytest.mark.parametrize("part", ["swan", "em-apl", "ll-r", "any-class", "consistency"])
def test_unified_refuses_parts_that_depend_on_more_than_one_label(part):
    with pytest.raises(ValueError, match="depends on one label only as `negative`"):
        losses.create("unified", negative=part)


def test_unified_refuses_parts_with_their_own_reduction_or_guard():
    for extra in ({"reduction": "sum"}, {"eps": 1e-5}):
        with pytest.raises(ValueError, match="give them to unified"):
            losses.create("unified", positive={"name": "bce", **extra})


def test_a_schedule_of_unified_reaches_large_batches():
    """Large batches are computed by a compiled program, which must follow the schedule."""
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(160, 160, generator=draw)
    labels = torch.randint(-1, 2, (160, 160), generator=draw)
    loss = losses.create("unified", k={"w": [0, 10], "b": [-2, -8]}, v=[1.0, 0.5])
    for share in (0.0, 0.5, 1.0):
        loss.go_to(share)
        exact = loss(logits.double(), labels)
        torch.testing.assert_close(loss(logits, labels).double(), exact, rtol=1e-5, atol=0)


def test_a_sure_view_teaches_the_other_view_only():
    loss = losses.create("lagc", tau=0.9, weight=1.0)
    logits = torch.tensor([[[3.0, 0.0, -3.0]], [[0.0, 0.0, 0.0]]], requires_grad=True)
    loss(logits, torch.tensor([[0, 0, 0]])).backward()
    # Sure are the first (present) and the third (absent); the mean is over these two.
    assert logits.grad[1].tolist() == [[-0.25, 0.0, 0.25]]
    plain = torch.tensor([[3.0, 0.0, -3.0]], requires_grad=True)
    losses.create("bce")(plain, torch.tensor([[0, 0, 0]])).backward()
    torch.testing.assert_close(logits.grad[0], plain.grad)
