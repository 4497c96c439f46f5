"""Errors reach the caller when a worker process raises them."""

import importlib.util
import inspect
import pickle
import pkgutil

import halftruth

# Made from arguments other than one message.
ARGUMENTS = {"ConfigError": (["first", "second"],), "BadImage": ("a.jpg", "truncated")}


def find_errors() -> list[type[BaseException]]:
    """All exceptions and warnings that the package defines, private ones too."""
    names = [one.name for one in pkgutil.walk_packages(halftruth.__path__, "halftruth.")]
    found = {
        value
        for name in names
        if not name.endswith("__main__")
        and (name != "halftruth.ray" or importlib.util.find_spec("ray") is not None)
        for value in vars(importlib.import_module(name)).values()
        if inspect.isclass(value)
        and issubclass(value, BaseException)
        and value.__module__.startswith("halftruth.")
    }
    return sorted(found, key=lambda one: one.__name__)


def test_every_error_of_the_package_can_be_pickled() -> None:
    # A loop: as parameters, they would be imported whenever any test is collected.
    errors = find_errors()
    assert {*ARGUMENTS, "DataError", "ModelError"} <= {kind.__name__ for kind in errors}
    for kind in errors:
        error = kind(*ARGUMENTS.get(kind.__name__, ("what happened",)))
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (kind, str(error))
        assert vars(again) == vars(error), kind
