"""Packages of the extras: where one is missing, the error is one sentence that says what to do."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_TRAIN = (
    "accelerate flask joblib matplotlib optuna pandas PIL pyarrow rich safetensors scipy sklearn "
    "tensorboard timm torchvision typer yaml"
)
_EXTRA = {**dict.fromkeys(_TRAIN.split(), "train"), "transformers": "text", "ray": "ray"}

# torchvision declares shape rules for these two even where its compiled library did not load.
_SCHEMAS = tuple(
    f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for name in ("nms", "qnms")
)
# A Library withdraws its operators when it is collected.
_kept: list[object] = []


@contextmanager
def needs_extras(what: str) -> Iterator[None]:
    """Import inside: an error about a package of an extra says what `what` needs.

    >>> with needs_extras("a plot"):
    ...     raise ModuleNotFoundError(name="matplotlib")
    Traceback (most recent call last):
    ...
    ModuleNotFoundError: a plot needs matplotlib: pip install "halftruth[train]"
    """
    try:
        yield
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRA:
            raise
        # An installed package without a name that is imported from it is too old.
        wanted = package if isinstance(error, ModuleNotFoundError) else f"a newer {package}"
        message = f'{what} needs {wanted}: pip install "halftruth[{_EXTRA[package]}]"'
        raise type(error)(message, name=package) from error


def import_torchvision() -> None:
    """Import torchvision; where its compiled operators are missing, they are declared."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        _forget("torchvision", "timm")
        _declare_operators()
        importlib.import_module("torchvision")


def _declare_operators() -> None:
    import torch

    if not _kept:
        library = torch.library.Library("torchvision", "DEF")
        for schema in _SCHEMAS:
            library.define(schema)
        _kept.append(library)


def _forget(*packages: str) -> None:
    """Remove partly loaded modules of a failed import, which would break a second one."""
    for name in list(sys.modules):
        if name.split(".")[0] in packages:
            del sys.modules[name]
