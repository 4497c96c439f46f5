"""Everything that makes losses fast: one pass, generated kernels, tables by row."""
