"""Every argument of a method has an effect."""

from typing import Any

import pytest
import torch
from torch import Tensor

from cases import CASES
from halftruth import losses
from halftruth.losses.consistency import SpatialConsistency
from halftruth.losses.pseudo_label import PseudoLabel
from loss_batches import METHODS

ROWS, CLASSES, EPOCHS = 8, 5, 4
# Another value for arguments where it does not follow from the type.
OTHER: dict[str, Any] = {
    "base": "hill", "counts": [3, 1, 2, 4, 5], "expected_positives": 2.5, "memory_dtype": "float32",
    "negatives": 7, "normalizer": "labels", "reduction": "sum", "sides": "negative",
    "unknown": "ignore", "warmup": 1, "views": 2, "delta": 0.2, "lam_neg": 0.3, "q1": 0.4,
    "alpha": 0.4, "weight": 0.7, "rate": 0.6, "tau_neg": 0.2, "beta": 0.5, "eps": 0.01,
    "w": (1.0, 3.0), "b": (-1.0, -3.0), "mu": (0.3, 0.6), "sigma": (1.0, 0.3),
}  # fmt: skip
OTHER_OF = {
    ("any-class", "empty_rows"): "verified", ("gr", "schedule"): "code", ("smile", "mu"): 0.9,
    ("role", "memory_dtype"): "float16", ("role", "init"): 0.8, ("role", "light"): True,
    ("pseudo-label", "tau"): 0.9, ("scl", "side"): 3, ("em-apl", "theta_pos"): 0.5,
    ("unified", "positive"): "focal", ("unified", "negative"): "hill", ("unified", "k"): 0.3,
    ("unified", "corrected"): "mse", ("unified", "v"): 0.5, ("las", "lam"): 0.6,
    ("csl", "prior"): [0.5, 0.0, 0.0, 0.0, 0.0], ("csl", "top"): 0.3, ("taylor", "order"): 3,
    ("lagc", "tau"): 0.9, ("csl", "unknown"): "negative", ("swan", "propensity"): "frequency",
}  # fmt: skip
# Other arguments that must be set as well for an argument to have an effect.
REQUIRED_WITH: dict[tuple[str, str], dict[str, Any]] = {
    ("class-balanced", "counts"): {"negatives": 7},
    ("class-balanced", "negatives"): {"counts": [3, 1, 2, 4, 5]},
    ("role", "rate"): {"light": True},
    ("splc", "margin_on_corrected"): {"start": 0},
    ("em-apl", "theta_pos"): {"theta": 0.5}, ("unified", "corrected"): {"k": 0.5},
    ("csl", "prior"): {"top": 0.0}, ("csl", "alpha"): {"top": 1.0},
    ("csl", "gamma_unknown"): {"top": 1.0},
    ("csl", "prior_limit"): {"top": 0.0, "prior": [0.08, 0.0, 0.0, 0.0, 0.0]},
    ("ll-r", "peer_rounding"): {"delta": 0.05}, ("ll-ct", "peer_rounding"): {"delta": 0.05},
}  # fmt: skip
ARGUMENTS = [(name, key) for name in METHODS for key in losses.registry.signature(name)]


def another(name: str, key: str) -> Any:
    default = losses.registry.signature(name)[key].default
    if (name, key) in OTHER_OF:
        return OTHER_OF[name, key]
    if isinstance(default, bool):
        return not default
    if key in OTHER:
        return OTHER[key]
    return default + 1 if isinstance(default, int) else default * 0.6 + 0.1


def trained(name: str, **options: Any) -> list[Tensor]:
    """All results of a short training with a method: values, gradients, rates, memory."""
    random = torch.Generator().manual_seed(5)
    # With a small warm-up, so that pseudo-labels are given within the short training.
    if name == "em-apl":
        options = {"warmup": 2, **options}
    needed = {k: v for k, v in CASES[name].needed.items() if k not in ("counts", "negatives")}
    loss = losses.create(name, **{**needed, **options})
    labels = torch.randint(-1, 2, (ROWS, CLASSES), generator=random)
    labels[0], labels[1] = 0, -1
    index = torch.arange(ROWS)
    loss.begin(labels)
    if loss.teacher_on_features:
        loss.learn_from_teacher(2.5 * torch.randn(ROWS, CLASSES, generator=random), index)
    groups = loss.parameter_groups(0.1)
    step = torch.optim.SGD(groups) if groups else None
    found = []
    for epoch in range(EPOCHS):
        loss.start_epoch(epoch, EPOCHS)
        for _ in range(2):
            views = (loss.views,) if loss.views > 1 else ()
            logits = 2.5 * torch.randn(*views, ROWS, CLASSES, generator=random)
            logits.requires_grad_()
            value = loss(logits, labels, index=index)
            if isinstance(loss, SpatialConsistency):
                maps = logits[..., None, None] + torch.randn(7, 7, generator=random)
                value = value + loss.map_term(maps, index, torch.tensor([[0.1, 0, 0.8, 1]] * ROWS))
            value.backward()
            found += [value.detach(), logits.grad]
            if step is not None:
                step.step()
                step.zero_grad()
        if isinstance(loss, PseudoLabel) and epoch == 0:
            loss.relabel(2.5 * torch.randn(ROWS, CLASSES, generator=random))
        loss.end_epoch(2.5 * torch.randn(ROWS, CLASSES, generator=random))
    return [*found, *(x.detach().clone() for x in loss.state_dict().values() if x is not None)]


def differs(one: list[Tensor], two: list[Tensor]) -> bool:
    if len(one) != len(two):
        return True
    return any(
        a.dtype != b.dtype or a.shape != b.shape or not torch.equal(a, b)
        for a, b in zip(one, two, strict=True)
    )


@pytest.mark.parametrize(("name", "key"), ARGUMENTS, ids=str)
def test_every_argument_changes_something(name, key):
    required = REQUIRED_WITH.get((name, key), {})
    changed = trained(name, **required, **{key: another(name, key)})
    if key in ("counts", "negatives"):  # must be given together
        required = {}
    assert not differs(trained(name, **required), trained(name, **required))
    assert differs(trained(name, **required), changed)


@pytest.mark.parametrize(("name", "key"), [("lasd", "lam"), ("pr", "eps"), ("splc", "eps")])
def test_an_argument_of_a_related_method_is_refused(name, key):
    with pytest.raises(TypeError, match=f"'{name}' takes no argument '{key}'"):
        losses.create(name, **{key: 0.5})


def test_a_rate_without_the_light_form_is_refused():
    with pytest.raises(ValueError, match="expected rate only with light=True"):
        losses.create("role", expected_positives=2, rate=0.1)
