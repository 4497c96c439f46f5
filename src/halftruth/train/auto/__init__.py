"""Choose method and settings of a run from its labels, and test whether the labels are biased."""
