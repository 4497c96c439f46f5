"""Pairwise ranking: labelled classes above all others."""

from torch import Tensor

from halftruth.losses._engine.logit import Logit
from halftruth.losses.base import Loss, register
from halftruth.losses.curves import Curve


@register("pr")
class PairwiseRanking(Loss):
    """Every labelled positive should score above every other label of its row.

        L = Σ_{i: y=+1} Σ_{j: y≠+1} max(0, 1 − p_i + p_j) / (B K)

    Probabilities never differ by more than one, so the hinge is always active and the double sum
    can be separated: with n positives and m others in a row, its slope is −m p(1−p) at a positive
    and n p(1−p) elsewhere. Cole et al., CVPR 2021. UNKNOWN: ranked below the positives, as ABSENT.
    Needs: nothing; rows without a positive contribute nothing.
    """

    paper = "Cole et al. 2021"
    unknown_is = "ranked below positives"
    couples_rows = True

    # Without `eps`: there is no logarithm to guard.
    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)

    def terms(self, s: Logit, labels: Tensor, context: object, rows: slice) -> Curve:
        there = (labels > 0).to(s.z.dtype)
        other = 1 - there
        n, m = there.sum(1, keepdim=True), other.sum(1, keepdim=True)
        others = (other * s.p).sum(1, keepdim=True)
        return there * (m * (1 - s.p) + others), s.pq * (n * other - m * there)
