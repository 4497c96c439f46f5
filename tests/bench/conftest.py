"""Data that the tests of the benchmark share."""

import sys
from pathlib import Path

import pytest
import tiny_grid

# paper_standins.py uses the writers of the miniatures.
sys.path.insert(0, str(Path(__file__).parent / "datasets"))


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    return tiny_grid.make_data(tmp_path_factory.mktemp("bench") / "data")
