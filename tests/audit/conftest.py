"""What the tests of audits share."""

from pathlib import Path

import pytest
from audited_pictures import Pictures, make_pictures


@pytest.fixture
def pictures(tmp_path: Path) -> Pictures:
    return make_pictures(tmp_path)
