"""Compare methods: grids of runs, one file of results, tables next to the published numbers."""

import functools
import importlib
import importlib.resources
from typing import Any

from halftruth.extras import needs_extras

# The module of each public name; loaded on first use, so that recipes are found quickly.
_NAMES = {
    "Grid": "grid",
    "find_recipe": "papers",
    "load_grid": "grid",
    "read_results": "results",
    "run_grid": "runner",
    "table": "result_tables",
}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        with needs_extras(f"halftruth.bench.{name}"):
            return getattr(importlib.import_module(f"halftruth.bench.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'halftruth.bench' has no attribute {name!r}")


@functools.cache
def read_bench_yaml(name: str) -> Any:
    """Read a file of this package; who changes what it holds, copies it."""
    with needs_extras("halftruth.bench"):
        import yaml
    file = importlib.resources.files("halftruth.bench") / name
    return yaml.safe_load(file.read_text(encoding="utf-8"))
