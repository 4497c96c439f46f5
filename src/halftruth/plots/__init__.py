"""Figures of losses, label files, runs, searches and benchmarks, each with its numbers.

Nothing outside this folder imports matplotlib.
"""
