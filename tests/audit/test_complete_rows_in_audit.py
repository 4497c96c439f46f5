"""An audit with rows that are labelled completely: nothing is missing in them."""

import pytest

from halftruth.audit.make_audit import make_audit
from halftruth.data import DataError


@pytest.fixture
def complete(example, tmp_path):
    path = tmp_path / "complete.txt"
    path.write_text("".join(f"p{row}.png\n" for row in range(20)))
    return path


def test_complete_rows_have_no_missing_labels(example, complete, tmp_path):
    plain = make_audit(example.probs, example.labels, out=tmp_path / "plain")
    audit = make_audit(
        example.probs, example.labels, out=tmp_path / "audit", complete_rows=complete
    )
    before, after = (one.candidates.query("kind == 'missing'") for one in (plain, audit))
    assert (before["row"] < 20).any()
    assert not (after["row"] < 20).any()
    assert (after["row"] >= 20).any()


def test_a_file_for_other_labels_is_refused(example, tmp_path):
    path = tmp_path / "complete.txt"
    path.write_text("q1.png\n")
    with pytest.raises(DataError, match="1 of its 1 lines are not items of the label file"):
        make_audit(example.probs, example.labels, out=tmp_path / "audit", complete_rows=path)
