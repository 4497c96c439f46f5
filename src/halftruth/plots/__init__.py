"""Figures of losses, runs, data and searches, with the numbers under them; the report of a run.

Nothing outside this folder imports matplotlib.
"""
