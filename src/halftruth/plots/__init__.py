"""Figures of losses, label files, runs, searches and benchmarks, each with its numbers.

Nothing outside this folder imports matplotlib.
"""

from halftruth.extras import needs_extras

with needs_extras("halftruth.plots"):
    import matplotlib  # noqa: F401
    import pandas  # noqa: F401
