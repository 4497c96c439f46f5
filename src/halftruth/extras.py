"""Packages of the extras: where one is missing, the error is one sentence that says what to do."""

from collections.abc import Iterator
from contextlib import contextmanager

_TRAIN = (
    "accelerate flask joblib matplotlib optuna pandas PIL pyarrow rich safetensors scipy sklearn "
    "tensorboard timm torchvision typer yaml"
)
_EXTRA = {**dict.fromkeys(_TRAIN.split(), "train"), "transformers": "text"}


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
