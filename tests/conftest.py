"""Settings shared by all tests."""

import torch
from hypothesis import settings

# The same examples on every run: a red CI must be repeatable on a laptop.
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("ci")

# Tests run in parallel processes: more threads would only get into each other's way.
torch.set_num_threads(1)
