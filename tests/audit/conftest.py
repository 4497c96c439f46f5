"""Fixtures of the audit tests."""

from pathlib import Path

import pytest
from audit_example import Example, make_example


@pytest.fixture
def example(tmp_path: Path) -> Example:
    return make_example(tmp_path)
