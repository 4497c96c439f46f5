"""Implementation of the losses: tracing, generated kernels (Triton, C), table storage."""
