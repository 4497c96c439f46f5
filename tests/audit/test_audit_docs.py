"""The example in docs/audit.md runs, and its list of keys is complete."""

import re
from pathlib import Path

import pytest

import halftruth.audit

DOCS = Path(__file__).parents[2] / "docs"


def test_the_example_runs(capsys: pytest.CaptureFixture) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "audit.md").read_text(), re.DOTALL)
    names: dict = {}
    exec(code, names)
    estimate, truth = map(float, capsys.readouterr().out.split())
    assert estimate == pytest.approx(truth, rel=0.3)
    assert names["mask"].any()


def test_every_key_of_the_page_is_explained() -> None:
    page = (Path(halftruth.audit.__file__).parent / "review.html").read_text()
    tables = re.findall(r"const (?:actions|moves) = \{(.*?)\};", page, re.DOTALL)
    keys = {
        "".join(key) for key in re.findall(r'\b([a-zA-Z0]): |\b(u)\b,|"([+-])": ', " ".join(tables))
    }
    text = (DOCS / "audit.md").read_text()
    assert len(keys) == 14
    assert all(f"`{key}`" in text for key in keys)
