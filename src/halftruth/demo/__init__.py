"""A demonstration that needs nothing: made pictures, hidden labels, four trainings, a page."""

from halftruth.demo.run_demo import run_demo
from halftruth.demo.scenes import make_scenes

__all__ = ["make_scenes", "run_demo"]
