"""Compare methods: grids of runs, one file of results, tables next to the published numbers."""

from halftruth.bench.grid import Grid, load_grid
from halftruth.bench.papers import find_recipe
from halftruth.bench.result_tables import table
from halftruth.bench.results import read_results
from halftruth.bench.runner import run_grid

__all__ = ["Grid", "find_recipe", "load_grid", "read_results", "run_grid", "table"]
