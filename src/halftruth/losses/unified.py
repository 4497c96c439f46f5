"""The general loss of paper 002: pseudo-labels k(p), weights v(p) and three exchangeable losses."""

from collections.abc import Callable, Mapping, Sequence
from typing import Unpack

import torch
from torch import Tensor, nn

from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses.base import Loss, LossLike, Options, register, registry, require
from halftruth.losses.curves import Curve
from halftruth.losses.schedule import check_span, value_at

# The forms of k(p) and v(p), by the keys of their mapping.
K_FORMS = ({"above"}, {"w", "b"})
V_FORMS = ({"above", "low", "high"}, {"mu", "sigma"})
Given = float | Sequence[float] | Mapping[str, float | Sequence[float]]
CURVES = ("present", "absent", "unknown", "corrected")


@register("unified")
class Unified(Loss):
    """An unknown label is present with probability k(p) and counts with weight v(p); any losses.

        ℓ⁺ = L₁(p)      ℓ⁻ = L₃(p)      ℓ° = v(p) [k(p) L₂(p) + (1 − k(p)) L₃(p)]

    L₁ is the present curve of the loss `positive`, L₂ that of `corrected` (by default the same
    loss), L₃ the absent curve of `negative`. A loss is a name, or a mapping with its arguments
    and, to take another of its curves, `curve` ("present", "absent", "unknown", "corrected").
    `k` is a number, {"above": τ} for [p > τ], or {"w": w, "b": b} for σ(w p + b). `v` is a number,
    {"above": τ, "low": a, "high": c}, or {"mu": μ, "sigma": σ} for exp(−(p − μ)²/(2σ²)). Every
    number may be a pair (start, end) that changes linearly with t/T, t being the 0-based epoch.
    k and v carry no gradient.
    Paper 002 (Chen et al., IJCAI 2024), eq. 4-5; the card writes each row of its Table 1 and each
    ablation of paper 003, Table VI, as settings of this loss. UNKNOWN: soft pseudo-label, weighted.
    Needs: nothing; start_epoch() where a number is a pair.

    Args:
        positive, negative, corrected: the losses L₁, L₃ and L₂, by name or mapping.
        k: the probability that an unknown label is present, in one of its forms.
        v: the weight of an unknown label, in one of its forms.

    >>> loss = Unified(positive="focal", negative="hill", k={"above": 0.6})
    >>> loss(torch.zeros(1, 2), torch.tensor([[1, 0]]))
    tensor(0.2116)
    """

    paper = "Chen et al. 2024"
    unknown_is = "soft pseudo-label, as set"
    without_epochs = "every number stays at its start value"

    def __init__(
        self,
        positive: LossLike = "bce",
        negative: LossLike = "bce",
        corrected: LossLike | None = None,
        k: Given = 0.0,
        v: Given = 1.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(**options)
        corrected = positive if corrected is None else corrected
        given = {"positive": positive, "negative": negative, "corrected": corrected}
        self.parts = nn.ModuleDict()
        self.curve_of: dict[str, str] = {}
        for name, what in given.items():
            self.parts[name], self.curve_of[name] = _part(name, what)
        self.spans = {**_forms("k", k, K_FORMS), **_forms("v", v, V_FORMS)}
        k_number, v_number = self.spans.get("k"), self.spans.get("v")
        if k_number is not None:
            require(all(0 <= x <= 1 for x in k_number), k, "k", "in [0, 1], or one of its mappings")
        if v_number is not None:
            require(min(v_number) >= 0, v, "v", ">= 0, or one of its mappings")
        if "v.sigma" in self.spans:
            require(min(self.spans["v.sigma"]) > 0, v, "sigma of v", "> 0")
        self.depends_on_epoch = any(start != end for start, end in self.spans.values()) or any(
            part.depends_on_epoch for part in self.parts.values()
        )
        self.numbers: dict[str, float] = {}
        self.go_to(0.0)

    def go_to(self, share: float) -> None:
        # A plain attribute: the program of a loss is kept until one of these changes.
        self.place = float(share)
        self.numbers = {name: value_at(span, share) for name, span in self.spans.items()}
        for part in self.parts.values():
            part.go_to(share)  # type: ignore[operator]

    def start_epoch(self, epoch: int, epochs: int) -> None:
        super().start_epoch(epoch, epochs)
        for part in self.parts.values():
            part.start_epoch(epoch, epochs)  # type: ignore[operator]
        self.go_to(epoch / epochs)

    def _curve(self, part: str) -> Callable[[Logit], Curve]:
        found: Callable[[Logit], Curve] = getattr(self.parts[part], self.curve_of[part])
        return found

    def present(self, s: Logit) -> Curve:
        return self._curve("positive")(s)

    def corrected(self, s: Logit) -> Curve:
        return self._curve("corrected")(s)

    def absent(self, s: Logit) -> Curve:
        return self._curve("negative")(s)

    def unknown(self, s: Logit) -> Curve:
        curve, at = self.absent(s), self.numbers
        if "k.above" in at:
            curve = curves.patched(curve, curves.above(s.p, at["k.above"]), self.corrected, s)
        elif self.spans.get("k") != (0.0, 0.0):
            curve = curves.mixed(self.presence_of_unknown(s.p), self.corrected(s), curve)
        if "v.mu" in at:
            off = (s.p - at["v.mu"]).square_()
            return curves.scaled(curve, off.mul_(-0.5 / at["v.sigma"] ** 2).exp_())
        if "v.above" in at:
            high = curves.above(s.p, at["v.above"]).to(s.z.dtype)
            return curves.scaled(curve, high * (at["v.high"] - at["v.low"]) + at["v.low"])
        return curve if self.spans["v"] == (1.0, 1.0) else curves.scaled(curve, at["v"])

    def presence_of_unknown(self, p: Tensor) -> Tensor:
        at = self.numbers
        if "k.above" in at:
            return (p > at["k.above"]).to(p.dtype)
        if "k.w" in at:
            return torch.sigmoid(p * at["k.w"] + at["k.b"])
        return torch.zeros_like(p) + at["k"]


def _part(name: str, what: LossLike) -> tuple[Loss, str]:
    """Build one of the three losses, and find the name of its curve."""
    curve = "absent" if name == "negative" else "present"
    if isinstance(what, Mapping):
        curve = str(what.get("curve", curve))
        what = {key: value for key, value in what.items() if key != "curve"}
        require(curve in CURVES, curve, f"the curve of {name}", f"in {CURVES}")
    part = registry.create(what)
    own = type(part)
    if part.couples_rows or part.needs_index or part.views > 1 or own.terms is not Loss.terms:
        raise ValueError(
            f"expected a loss whose cost depends on one label only as `{name}`, got "
            f"{own.__name__}: for example bce, focal, focal-margin, asl, gce, mse, hill or em"
        )
    if part.eps or part.reduction != "mean":
        raise ValueError(
            f"expected `{name}` without its own reduction or eps, got {part.reduction!r} and "
            f"{part.eps:g}: give them to unified"
        )
    return part, curve


def _forms(name: str, given: Given, forms: tuple[set[str], ...]) -> dict[str, tuple[float, float]]:
    """The numbers of k or v by name, each as (start, end)."""
    if not isinstance(given, Mapping):
        return {name: check_span(given, name)}
    if set(given) not in forms:
        known = " or ".join("{" + ", ".join(sorted(form)) + "}" for form in forms)
        raise ValueError(f"expected {name} as a number or as a mapping with {known}, got {given}")
    return {f"{name}.{key}": check_span(x, f"{key} of {name}") for key, x in given.items()}
