"""Settings shared by all tests."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import MagicMock

# Tests run in parallel processes: more threads would only get into each other's way. For the
# processes that tests start, and before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

import halftruth

# Processes that tests start find the same package from any folder, also if it is not installed.
_SOURCE = str(Path(halftruth.__file__).parents[1])
os.environ["PYTHONPATH"] = os.pathsep.join([_SOURCE, os.environ.get("PYTHONPATH", "")])

try:
    from hypothesis import settings
except ImportError:
    # Without hypothesis its tests are skipped, and the others of the same files run.
    def _leave(*_: object, **__: object) -> object:
        return lambda test: test

    _skip = pytest.mark.skip(reason="hypothesis is not installed")
    _stand_in = MagicMock(given=lambda *_, **__: _skip, settings=_leave, example=_leave)
    for _name in ("hypothesis", "hypothesis.strategies", "hypothesis.extra.numpy"):
        sys.modules[_name] = _stand_in
else:
    # The same examples on every run: a red CI must be repeatable on a laptop.
    settings.register_profile("ci", derandomize=True, deadline=None, max_examples=60)
    settings.load_profile("ci")

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def threads_are_restored() -> Iterator[None]:
    """With a second thread, all later tests of the process would be several times slower."""
    yield
    left = torch.get_num_threads()
    torch.set_num_threads(1)
    assert left == 1, f"this test leaves {left} threads to the tests after it"
