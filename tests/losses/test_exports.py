"""Every method is exported by name, shows its arguments, and refuses what it cannot do."""

import importlib
import pkgutil

import pytest
import torch

from halftruth import losses
from loss_batches import every_method, fresh, mixed


def test_every_method_is_exported():
    """A method whose line in losses/__init__.py is missing would not be registered."""
    before = set(losses.names())
    for module in pkgutil.iter_modules(losses.__path__):
        importlib.import_module(f"halftruth.losses.{module.name}")
    classes = {losses.registry.get(name).__name__ for name in losses.names()}
    assert set(losses.names()) == before, "add a line to losses/__init__.py"
    assert classes <= set(losses.__all__)
    assert all(hasattr(losses, name) for name in losses.__all__)


def test_repr_shows_the_arguments():
    assert repr(losses.Hill()) == "Hill(lam=1.5, margin=1.0, gamma=2.0)"
    assert repr(losses.BCE(reduction="sum", eps=0.01)) == (
        "BCE(unknown='negative', reduction='sum', eps=0.01)"
    )
    wrapped = losses.create("any-class", base={"name": "mse"}, lam=0.2)
    assert repr(wrapped) == (
        "AnyClass(base=SquaredError(), alpha=1.0, lam=0.2, empty_rows='all', normalizer='mean')"
    )
    table = losses.LabelValues(losses.BCE(), soft=torch.zeros(4, 3))
    assert "soft=<Tensor of shape (4, 3)>" in repr(table)


@every_method()
def test_every_argument_is_in_the_repr(name):
    loss = fresh(name, mixed()[1])
    text = repr(loss)
    assert text.startswith(f"{type(loss).__name__}(")
    known = set(losses.registry.signature(name)) - {"reduction", "eps", "shift"}
    assert all(f"{key}=" in text for key in known)


def test_functional_transforms_are_refused_with_a_sentence():
    logits, labels = mixed()
    with pytest.raises(RuntimeError, match=r"do not work inside torch.func.*value_and_grad"):
        torch.func.grad(lambda z: losses.Hill()(z, labels))(logits)
