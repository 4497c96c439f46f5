"""Data that the tests of the benchmark share."""

import pytest
import tiny_grid


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    return tiny_grid.make_data(tmp_path_factory.mktemp("bench") / "data")
