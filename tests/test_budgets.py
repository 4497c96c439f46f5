"""What the whole may weigh: `[tool.halftruth.budget]` in pyproject.toml.

A number there rises only by a commit of its own, which says what capability it buys.
"""

import ast
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from halftruth.train.settings import SETTINGS

ROOT = Path(__file__).parents[1]
BUDGET = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["halftruth"][
    "budget"
]


def measure() -> dict[str, int]:
    """Lines of each package and of all, modules, public names, settings, words of the docs."""
    found: Counter[str] = Counter(settings=len(SETTINGS))
    for path in (ROOT / "src" / "halftruth").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        parts = path.relative_to(ROOT / "src" / "halftruth").parts
        found[f"lines of {parts[0] if len(parts) > 1 else 'modules outside of packages'}"] += (
            text.count("\n")
        )
        found["lines"] += text.count("\n")
        found["modules"] += 1
        kinds = (ast.ClassDef, ast.FunctionDef)
        names = [node.name for node in ast.parse(text).body if isinstance(node, kinds)]
        found["public names"] += sum(not name.startswith("_") for name in names)
    for path in (ROOT / "benchmarks").glob("*.py"):
        found["lines of benchmarks"] += path.read_text(encoding="utf-8").count("\n")
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("bench*/**/*.md")):
        kind = "results" if path.name == "results.md" or "benchmarks" in path.parts else "docs"
        found[f"words of {kind}"] += len(path.read_text(encoding="utf-8").split())
    return dict(found)


def test_every_budget_holds():
    weight = measure()
    over = {name: f"{weight[name]:,} of {BUDGET.get(name, 0):,}" for name in weight}
    over = {name: text for name, text in over.items() if weight[name] > BUDGET.get(name, 0)}
    assert not over, f"over budget: {over}; take something away, or raise the number with a reason"


@pytest.mark.parametrize("name", sorted(BUDGET))
def test_no_budget_is_looser_than_needed(name):
    """What was taken away does not come back unseen."""
    assert measure().get(name, 0) >= 0.97 * BUDGET[name], "lower this number in pyproject.toml"
