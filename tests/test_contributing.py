"""CONTRIBUTING.md is true: its steps, followed in a copy, give pieces that pass every check."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# The name of a file, a remark on where to write, and the block to write there.
BLOCK = re.compile(r"^`([\w/.-]+)`(?: \(([\w ]+)\))?\n\n```(\w+)\n(.*?)^```$", re.M | re.S)
USE = """
import sys
import numpy as np
import halftruth
from halftruth.metrics.rank_metrics import median_average_precision
from halftruth.train.config import Config

open("x.labels", "w").write("a.jpg cat dog\\nb.jpg dog\\n")
labels = halftruth.data.read_labels("x.labels")
assert labels.classes == ("cat", "dog") and labels.values.tolist() == [[1, 1], [0, 1]]
assert median_average_precision([[0.9, 0.1], [0.2, 0.8]], [[1, 0], [0, 1]]) == 1.0
assert any("mixup" in text for text in Config(mixup=-1.0).problems())
np.save("x.npy", np.random.default_rng(0).normal(size=(60, 6)))
rows = "".join(f"r{i},{i % 2},{i % 3 == 0:d}\\n" for i in range(60))
open("labels.csv", "w").write("item,a,b\\n" + rows)
for method, head in (("half-negative", "bottleneck"), ("last-prediction", "linear")):
    halftruth.fit(
        "labels.csv", features="x.npy", method=method, head=head, mixup=0.5, epochs=2,
        out=method, quiet=True,
    )
    assert "mixup: 0.5" in open(f"{method}/config.yaml").read()
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """A copy of the repository in which every block of CONTRIBUTING.md was written."""
    folder = tmp_path_factory.mktemp("contributing") / "halftruth"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("src", "tests", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    blocks = BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert len(blocks) >= 8
    for name, remark, kind, text in blocks:
        path = folder / name
        if kind == "diff":
            path.write_text(_with_added_lines(path.read_text(), text))
        elif remark == "at the end":
            path.write_text(path.read_text() + "\n\n" + text)
        else:
            assert not path.exists(), f"{name} exists already"
            path.write_text(text)
    cards = folder / "docs" / "methods"
    card = (cards / "half-negative.md").read_text(encoding="utf-8")
    (cards / "last-prediction.md").write_text(card.replace("half-negative", "last-prediction"))
    table = cards / "README.md"
    row = "| [{0}]({0}.md) | – | none | {1} | – | – |\n"
    rows = {"half-negative": "negative of half weight"}
    rows["last-prediction"] = "negative, weighted by the last prediction"
    lines = table.read_text(encoding="utf-8").splitlines(keepends=True)
    for method, unknown in rows.items():
        before = next(i for i, line in enumerate(lines) if line[:3] == "| [" and line[3:] > method)
        lines.insert(before, row.format(method, unknown))
    table.write_text("".join(lines), encoding="utf-8")
    return folder


def _with_added_lines(text: str, diff: str) -> str:
    """Insert each line with a plus after the line that stands above it in the block."""
    above = None
    for line in diff.splitlines():
        if line[0] == "+":
            assert above is not None
            assert text.count(above) == 1, f"expected once: {above!r}"
            text = text.replace(above, f"{above}{line[1:]}\n")
            above = f"{above}{line[1:]}\n"
        else:
            above = f"{line[1:]}\n"
    return text


def _python(copy: Path, *words: str) -> tuple[int, str]:
    """Run Python in the copy, with the copy's package; exit code and output."""
    environment = {"PYTHONPATH": str(copy / "src"), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words], cwd=copy, env=environment, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def _pytest(copy: Path, *words: str) -> tuple[int, str]:
    return _python(
        copy,
        *["-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", "-o", "addopts="],
        *words,
    )


def test_new_pieces_pass_the_checks_of_all_pieces(copy):
    names = "half-negative or last-prediction or bottleneck"
    tests = ["tests/losses", "tests/models/test_heads.py", "tests/test_docs.py"]
    code, out = _pytest(copy, *tests, "-k", names)
    assert code == 0, out[-4000:]
    passed = re.search(r"(\d+) passed", out)
    assert passed is not None
    assert int(passed[1]) >= 60


def test_new_pieces_work_in_a_run(copy):
    code, out = _python(copy, "-c", USE)
    assert code == 0, out[-4000:]


def test_a_missing_case_is_one_failure_with_one_sentence(copy, tmp_path):
    folder = tmp_path / "halftruth"
    shutil.copytree(copy, folder)
    (folder / "tests/losses/cases/half_negative.py").unlink()
    _, out = _pytest(folder, "tests/losses", "-k", "half-negative or case")
    assert "half-negative has no case: add tests/losses/cases/half_negative.py" in out
    assert re.search(r"\b1 failed\b", out), out[-4000:]
    assert "KeyError" not in out
