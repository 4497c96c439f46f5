"""Implementation of the losses: tracing, generated kernels (Triton), table storage."""
