"""A demonstration without any files: made images, hidden labels, three trainings, one page."""

from halftruth.extras import needs_extras

with needs_extras("halftruth.demo"):
    from halftruth.demo.demo_run import run_demo
    from halftruth.demo.scenes import make_scenes

__all__ = ["make_scenes", "run_demo"]
