"""`cases` and `loss_batches` are imported by the tests here."""

import sys
from pathlib import Path

import pytest

# A script that test_fused.py runs under Triton's interpreter; doctests would import it without.
collect_ignore = ["fused_check.py"]

sys.path.insert(0, str(Path(__file__).parent))
# Their checks are part of the tests: let pytest show both sides of a failed one.
pytest.register_assert_rewrite("cases", "loss_batches")
