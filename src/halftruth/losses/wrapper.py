"""The base class of losses that wrap another loss."""

from typing import ClassVar, TypedDict

from torch import Tensor

from halftruth.losses._engine.logit import Logit
from halftruth.losses.base import Loss, LossLike, registry
from halftruth.losses.curves import Curve


class WrapperOptions(TypedDict, total=False):
    """The argument that every wrapper takes, for type checkers."""

    reduction: str


class Wrapper(Loss):
    """A loss around another: by default it has the curves, memory and hooks of `base`.

    Args:
        base: a loss, its name, or a mapping with its name and arguments.
        reduction: as in `Loss`; the base has none of its own.

    >>> Wrapper({"name": "hill", "lam": 2.0}).base
    Hill(lam=2.0, margin=1.0, gamma=2.0)
    """

    base: Loss
    # Whether it changes the labels for its base, so that no other wrapper may be around it.
    outermost: ClassVar[bool] = False

    def __init__(self, base: LossLike, *, reduction: str = "mean") -> None:
        built = registry.create(base)
        if built.reduction != "mean":
            raise ValueError(
                f"expected a base without its own reduction, got {built.reduction!r}: only the "
                f"wrapper reduces, give the reduction to {type(self).__name__}"
            )
        if isinstance(built, Wrapper) and built.outermost:
            raise ValueError(
                f"expected a base that does not change labels, got {type(built).__name__}: it "
                f"goes around {type(self).__name__}, not inside"
            )
        super().__init__(reduction=reduction, eps=built.eps)
        self.base = built
        self.needs_index, self.needs_scores = built.needs_index, built.needs_scores
        self.views, self.couples_rows = built.views, built.couples_rows
        self.depends_on_epoch = built.depends_on_epoch
        self.needs_maps = built.needs_maps
        self.ridge = built.ridge

    def present(self, s: Logit) -> Curve:
        return self.base.present(s)

    def absent(self, s: Logit) -> Curve:
        return self.base.absent(s)

    def unknown(self, s: Logit) -> Curve:
        return self.base.unknown(s)

    def corrected(self, s: Logit) -> Curve:
        return self.base.corrected(s)

    def prepare(self, logits: Tensor, labels: Tensor, index: Tensor | None) -> object:
        return self.base.prepare(logits, labels, index)

    def terms(self, s: Logit, labels: Tensor, context: object, rows: slice) -> Curve:
        return self.base.terms(s, labels, context, rows)

    def extra(self, logits: Tensor, labels: Tensor) -> Tensor | None:
        return self.base.extra(logits, labels)

    @property
    def has_extra(self) -> bool:
        return type(self).extra is not Wrapper.extra or self.base.has_extra

    def normalizer(self, labels: Tensor) -> float | Tensor:
        return self.base.normalizer(labels)

    def begin(self, labels: Tensor) -> None:
        self.base.begin(labels)

    def start_epoch(self, epoch: int, epochs: int) -> None:
        super().start_epoch(epoch, epochs)
        self.base.start_epoch(epoch, epochs)
        self.needs_scores = self.base.needs_scores

    @property
    def ends_epochs(self) -> bool:
        return self.base.ends_epochs

    def parameter_groups(self, lr: float) -> list[dict[str, object]]:
        return self.base.parameter_groups(lr)

    def observe(self, logits: Tensor, index: Tensor) -> None:
        self.base.observe(logits, index)

    @property
    def observes_batches(self) -> bool:
        return type(self).observe is not Wrapper.observe or self.base.observes_batches

    @property
    def pseudo_label_threshold(self) -> float:
        tau = getattr(self, "tau", None)
        return self.base.pseudo_label_threshold if tau is None else float(tau)

    @property
    def innermost(self) -> Loss:
        return self.base.innermost

    def for_single_view(self) -> Loss:
        return self.base.for_single_view() if self.views > 1 else self

    def go_to(self, share: float) -> None:
        self.base.go_to(share)

    def presence_of_unknown(self, p: Tensor) -> Tensor | None:
        return self.base.presence_of_unknown(p)

    def map_term(self, maps: Tensor, index: Tensor, boxes: Tensor) -> Tensor:
        return self.base.map_term(maps, index, boxes)

    def carried_state(self) -> dict[str, Tensor]:
        return self.base.carried_state()

    def load_carried_state(self, state: dict[str, Tensor]) -> None:
        self.base.load_carried_state(state)

    def learn_from_teacher(self, logits: Tensor, index: Tensor) -> None:
        self.base.learn_from_teacher(logits, index)

    def end_teaching(self) -> None:
        self.base.end_teaching()

    def end_epoch(self, scores: Tensor | None = None) -> None:
        self.base.end_epoch(scores)

    def pseudo_labels(self, index: Tensor) -> Tensor | None:
        return self.base.pseudo_labels(index)
