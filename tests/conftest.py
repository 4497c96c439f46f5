"""Settings shared by all tests."""

import os
from collections.abc import Iterator

# Tests run in parallel processes: more threads would only get into each other's way. For the
# processes that tests start, and before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from hypothesis import settings

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
