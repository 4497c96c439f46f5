"""The papers' data sets, read from their official files and compared with published statistics.

>>> from halftruth.bench import datasets as benchmarks
>>> benchmarks.names("c*")
['chestxray14', 'coco-41', 'coco2014', 'coco2014-features', 'corel5k', 'cub']
"""

import importlib
import pkgutil

from halftruth.bench.datasets.benchmark import Benchmark, BenchmarkWarning, hide, load
from halftruth.bench.datasets.dataset import Dataset, Published, registry

# Every data set is a module in this folder; importing it registers it.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

names = registry.names


def explain(name: str) -> str:
    """Where to get a data set, and the files that its reader expects."""
    return registry.get(name).explain()


__all__ = [
    "Benchmark",
    "BenchmarkWarning",
    "Dataset",
    "Published",
    "explain",
    "hide",
    "load",
    "names",
    "registry",
]
