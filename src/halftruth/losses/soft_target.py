"""The curve of a label that is a probability."""

from torch import Tensor

from halftruth.losses._engine.logit import Logit
from halftruth.losses.curves import Curve


def toward(s: Logit, target: Tensor) -> Curve:
    """-t log p - (1-t) log(1-p), slope p - t; the target t is a constant to the gradient."""
    rest = 1 - target
    value = -(target * s.log_p + rest * s.log_q)
    if s.eps:
        return value, -(target * s.slope_log_p + rest * s.slope_log_q)
    return value, s.p - target
