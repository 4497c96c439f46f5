"""Losses for wrong labels, applied per label: GCE, SCE, Taylor cross-entropy, squared error."""

from typing import Unpack

from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses.base import Loss, Options, register, require
from halftruth.losses.curves import Curve


@register("gce")
class GeneralisedCrossEntropy(Loss):
    """Generalised cross-entropy: between the log loss (q → 0) and the absolute error (q = 1).

        ℓ⁺ = (1 − p^q)/q      ℓ⁻ = ℓ° = (1 − (1−p)^q)/q

    The slope is that of cross-entropy times p^q, or (1−p)^q: a label that the model contradicts
    counts less. Zhang and Sabuncu, NeurIPS 2018, q = 0.7; paper 002 (Chen et al. 2024) takes its
    three losses from it. UNKNOWN: negative. Needs: nothing.
    """

    paper = "Zhang & Sabuncu 2018"
    unknown_is = "robust negative"

    # Without `eps`: there is no logarithm to guard.
    def __init__(self, q: float = 0.7, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.q = require(q >= 0, q, "q", ">= 0")

    def present(self, s: Logit) -> Curve:
        return curves.robust_log(s, self.q)

    def absent(self, s: Logit) -> Curve:
        return curves.mirrored(curves.robust_log, s, self.q)


@register("sce")
class SymmetricCrossEntropy(Loss):
    """Symmetric cross-entropy: cross-entropy plus its reverse, in which the label is the logarithm.

        ℓ⁺ = −α log p − β A (1−p)      ℓ⁻ = ℓ° = −α log(1−p) − β A p

    The reverse term −Σ p log y of one binary label, with log 0 replaced by A < 0, is an absolute
    error: it bounds the influence of a wrong label. Wang et al., ICCV 2019: A = −4; α and β are
    tuned per data set. UNKNOWN: negative. Needs: nothing.

    Args:
        alpha: α, the weight of cross-entropy.
        beta: β, the weight of its reverse.
        log_zero: A, the number for log 0.
    """

    paper = "Wang et al. 2019"
    unknown_is = "robust negative"

    def __init__(
        self,
        alpha: float = 0.1,
        beta: float = 1.0,
        log_zero: float = -4.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(**options)
        self.alpha = require(alpha >= 0, alpha, "alpha", ">= 0")
        self.beta = require(beta >= 0, beta, "beta", ">= 0")
        self.log_zero = require(log_zero < 0, log_zero, "log_zero", "< 0")

    def present(self, s: Logit) -> Curve:
        error = curves.scaled(curves.robust_log(s, 1.0), -self.beta * self.log_zero)
        return curves.added(curves.scaled(curves.log_loss(s), self.alpha), error)

    def absent(self, s: Logit) -> Curve:
        return curves.mirrored(self.present, s)


@register("taylor")
class TaylorCrossEntropy(Loss):
    """Taylor cross-entropy: the first terms of the series of the log loss.

        ℓ⁺ = Σ_{i=1..t} (1−p)^i / i      ℓ⁻ = ℓ° = Σ_{i=1..t} p^i / i

    One term is the absolute error, all terms are cross-entropy. The slope is that of
    cross-entropy times 1 − (1−p)^t, or 1 − p^t. Feng et al., IJCAI 2020.
    UNKNOWN: negative. Needs: nothing.

    Args:
        order: t, the number of terms.
        reduction: as in `Loss`.
    """

    paper = "Feng et al. 2020"
    unknown_is = "robust negative"

    # Without `eps`: there is no logarithm to guard.
    def __init__(self, order: int = 2, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        whole = isinstance(order, int) and order >= 1
        self.order = require(whole, order, "order", "to be an integer >= 1")

    def present(self, s: Logit) -> Curve:
        return curves.taylor_log(s, self.order)

    def absent(self, s: Logit) -> Curve:
        return curves.mirrored(curves.taylor_log, s, self.order)


@register("mse", "brier")
class SquaredError(Loss):
    """Squared error between probability and label, also known as the Brier score.

        ℓ⁺ = (1−p)²      ℓ⁻ = ℓ° = p²

    Its slope falls to 0 where the prediction contradicts the label most. Paper 003 (Zhang et al.
    2021) starts from it for `hill`; its row "MSE⁻" has cross-entropy on the positives:
    `create("unified", negative="mse")`. UNKNOWN: negative. Needs: nothing.
    """

    paper = "Zhang et al. 2021"
    unknown_is = "squared-error negative"

    # Without `eps`: there is no logarithm to guard.
    def __init__(self, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)

    def present(self, s: Logit) -> Curve:
        return curves.squared(s)

    def absent(self, s: Logit) -> Curve:
        return curves.mirrored(curves.squared, s)
