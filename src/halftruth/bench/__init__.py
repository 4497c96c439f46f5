"""Methods compared: a grid of runs into one file of results, and tables in the papers' shape."""

from halftruth.bench.grid import Grid, load_grid
from halftruth.bench.result_tables import table
from halftruth.bench.results import read_results
from halftruth.bench.runner import run_grid

__all__ = ["Grid", "load_grid", "read_results", "run_grid", "table"]
