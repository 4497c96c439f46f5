"""The base class of all losses: checks, precision, the three curves, reduction, hooks."""

import inspect
import math
import reprlib
import warnings
from collections.abc import Callable, Mapping
from typing import ClassVar, TypedDict, TypeVar

import torch
from torch import Tensor

from halftruth import labels as label_codes
from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses._engine.one_pass import LossTask, compute_dtype, measure, one_pass
from halftruth.losses._engine.programs import Watched
from halftruth.losses.curves import Curve
from halftruth.losses.memory import Exchange, Memory, State, take_sizes
from halftruth.registry import Described, Registry

Value = TypeVar("Value")
REDUCTIONS = ("mean", "sum", "batch", "none")


class Options(TypedDict, total=False):
    """The arguments that every loss takes, for type checkers."""

    reduction: str
    eps: float


class Loss(Described, Watched):
    """A loss over (B, K) logits and labels in {+1 present, 0 unknown, -1 absent}.

    Args (of every method, by name):
        reduction: "mean" over all B·K entries, "sum", "batch" (sum over classes, mean over rows)
            or "none" (one value per entry; per row for methods that couple the entries of a row).
        eps: the guard of some published codes inside their logarithms; for comparison only.

    A method overrides the three curves `present`, `absent` and `unknown`; or `terms` where the
    entries of a row depend on each other, `prepare` where they depend on the whole batch, and
    `extra` for a regulariser that is added to the sum over entries. A curve is a pair (value,
    slope), or the value alone: autograd then finds the slope, which takes longer.
    `halftruth.testing.check_loss` checks a method.
    """

    paper: ClassVar[str] = ""
    unknown_is: ClassVar[str] = "negative"
    needs_index: bool = False
    needs_scores: bool = False
    views: int = 1
    # Whether `map_term` compares the class maps (B, K, h, w) of the model's head.
    needs_maps: bool = False
    # The prior variance of a logit, where a linear head is trained on features; 0: no prior.
    ridge: float = 0.0
    # Whether the teacher is an ensemble on the features of the model before it is trained.
    teacher_on_features: ClassVar[bool] = False
    # Whether the cost depends on the epoch, so that a loop must call `start_epoch`; and what the
    # method does where no epoch was started.
    depends_on_epoch: bool = False
    without_epochs: str = ""
    # Whether the entries of a row depend on each other: "none" then gives one value per row.
    couples_rows: bool = False

    def __init_subclass__(cls, **arguments: object) -> None:
        super().__init_subclass__(**arguments)
        for name in ("present", "absent", "unknown", "corrected", "terms"):
            if name in vars(cls):
                setattr(cls, name, curves.with_slope(vars(cls)[name]))

    def __repr__(self) -> str:
        shown = _as_text(type(self), *self._given)
        if "base" in shown:
            shown["base"] = repr(self.base)
        if self.reduction != "mean":
            shown["reduction"] = repr(self.reduction)
        # That of a wrapper is that of its base.
        if self.eps and "base" not in shown:
            shown["eps"] = repr(self.eps)
        return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in shown.items())})"

    def __init__(self, *, reduction: str = "mean", eps: float = 0.0) -> None:
        super().__init__()
        if reduction not in REDUCTIONS:
            raise ValueError(f"expected reduction in {REDUCTIONS}, got {reduction!r}")
        self.reduction = reduction
        self.eps = require(eps >= 0, eps, "eps", ">= 0")
        self.epoch = 0
        self.epochs = 1
        self._seen_batch = False
        # The training batches so far without `start_epoch`; None once it was called.
        self._batches_before_epoch: int | None = 0

    # The curves: the cost of the logit z where the label is ...

    def present(self, s: Logit) -> Curve:
        """... PRESENT."""
        return curves.log_loss(s)

    def absent(self, s: Logit) -> Curve:
        """... ABSENT."""
        return curves.absent_log_loss(s)

    def unknown(self, s: Logit) -> Curve:
        """... UNKNOWN; the same as ABSENT unless a method overrides it."""
        return self.absent(s)

    def corrected(self, s: Logit) -> Curve:
        """... UNKNOWN, but corrected to PRESENT by the method."""
        return self.present(s)

    # The parts a method with coupled entries overrides.

    def prepare(self, logits: Tensor, labels: Tensor, index: Tensor | None) -> object:
        """Return the context for `terms` that depends on the whole batch."""
        return None

    def terms(self, s: Logit, labels: Tensor, context: object, rows: slice) -> Curve:
        """Value and slope of every entry of some whole rows of the batch."""
        curve = self.unknown(s)
        no_absent = curves.holds_no_absent(labels)
        if type(self).unknown is not Loss.unknown and not no_absent:
            curve = curves.patched(curve, curves.is_absent(labels), self.absent, s)
        return curves.patched(curve, curves.is_present(labels, no_absent), self.present, s)

    def extra(self, logits: Tensor, labels: Tensor) -> Tensor | None:
        """A term that is added to the sum over entries, in the units of the mean."""
        return None

    @property
    def has_extra(self) -> bool:
        """Whether there is such a term."""
        return type(self).extra is not Loss.extra

    def normalizer(self, labels: Tensor) -> float | Tensor:
        """The divisor of the reduction "mean"."""
        return max(labels.numel(), 1)

    # The hooks for a trainer.

    def begin(self, labels: Tensor) -> None:
        """Called once before training, with the labels (N, K) of the training set by index."""

    def place_memory(self, place: str = "auto", together: bool = False) -> None:
        """Called before `begin`: the place of the memory, "auto", "device" or "host".

        `together`: all processes of a run call every hook at the same time, so that those of one
        machine can share a table in host memory. See :class:`halftruth.losses.memory.Memory`.
        """
        for part in self.modules():
            if isinstance(part, Memory):
                part.set_place(place, together)

    def parameter_groups(self, lr: float) -> list[dict[str, object]]:
        """Parameters that the optimiser trains besides the model, with their own learning rate.

        Several processes must average their gradients, as DDP does for the model.
        """
        return []

    def start_epoch(self, epoch: int, epochs: int) -> None:
        """Called before each epoch, 0-based; schedules depend on it (`depends_on_epoch`)."""
        if not 0 <= epoch < epochs:
            raise ValueError(f"expected 0 <= epoch < epochs, got epoch {epoch} of {epochs}")
        self.epoch, self.epochs = epoch, epochs
        self._batches_before_epoch = None

    def _count_batch_before_epoch(self, logits: Tensor, stacklevel: int) -> None:
        """Warn at the second training batch without `start_epoch`: then it is a loop, not a try."""
        training = self.training and torch.is_grad_enabled()
        if torch.compiler.is_compiling() or not (training and logits.requires_grad):
            return
        assert self._batches_before_epoch is not None
        self._batches_before_epoch += 1
        if self._batches_before_epoch == 2:
            parts = [part for part in self.modules() if isinstance(part, Loss)]
            now = {part.without_epochs for part in parts if part.depends_on_epoch} - {""}
            warnings.warn(
                f"{type(self).__name__} depends on the epoch, and start_epoch() was not called: "
                f"every batch is one of epoch 0 of 1{', so ' if now else ''}"
                f"{' and '.join(sorted(now))}. {self._how_to_start_epochs()}",
                stacklevel=stacklevel,
            )

    def _how_to_start_epochs(self) -> str:
        ends = any(isinstance(part, Loss) and part.ends_epochs for part in self.modules())
        then = ", and loss.end_epoch() after it" if ends else ""
        return f"Call loss.start_epoch(epoch, epochs) before each epoch, counted from 0{then}"

    @property
    def ends_epochs(self) -> bool:
        """Whether the method itself does something in `end_epoch`."""
        return type(self).end_epoch is not Loss.end_epoch

    def _require_epoch(self) -> None:
        """For an `end_epoch` that depends on which epoch has ended."""
        if self._batches_before_epoch is not None:
            raise ValueError(
                f"{type(self).__name__}.end_epoch() cannot know which epoch has ended, since "
                f"start_epoch() was not called. {self._how_to_start_epochs()}"
            )

    def observe(self, logits: Tensor, index: Tensor) -> None:
        """Called after an epoch where `needs_scores`, with the logits of some samples.

        It replaces `end_epoch(scores)`: no table of all logits is needed.
        """

    def merge(self, exchange: Exchange | None = None) -> None:
        """Called after each epoch, and before saving: give all processes the same memory.

        See :meth:`halftruth.losses.memory.Memory.merge`; it has no effect with one process.
        """
        for part in self.modules():
            if isinstance(part, Memory):
                part.merge(exchange)

    def end_epoch(self, scores: Tensor | None = None) -> None:
        """Called after each epoch and `merge`.

        `scores`, if `needs_scores` at that time: the logits (N, K) of the training set by index,
        in any floating-point type, from an evaluation pass.
        """

    def pseudo_labels(self, index: Tensor) -> Tensor | None:
        """The labels that the method has given to unknown ones of these samples: +1, -1, 0 (none).

        None for a method without such labels. Used for statistics against complete labels.
        """
        return None

    @property
    def observes_batches(self) -> bool:
        """Whether a method that `needs_scores` takes them batch by batch, by `observe`."""
        return type(self).observe is not Loss.observe

    @property
    def pseudo_label_threshold(self) -> float:
        """The probability above which an unknown label counts as present; 0.5 unless given."""
        return float(getattr(self, "tau", 0.5))

    @property
    def innermost(self) -> "Loss":
        """The loss inside all wrappers."""
        return self

    def for_single_view(self) -> "Loss":
        """The loss to train with where inputs have no augmented views, as features have none."""
        return self

    def go_to(self, share: float) -> None:
        """Set the place in the method's schedule, 0..1, also beyond the last epoch's start."""

    def presence_of_unknown(self, p: Tensor) -> Tensor | None:
        """The probability that an unknown label is present, which the method derives from p."""
        return None

    def map_term(self, maps: Tensor, index: Tensor, boxes: Tensor) -> Tensor:
        """Where `needs_maps`: a term for the class maps (B, K, h, w) of a batch, to be added.

        `boxes` (B, 4) holds left, top, width and height of each crop as shares of the image.
        """
        raise NotImplementedError(f"{type(self).__name__} has no term for class maps")

    def carried_state(self) -> dict[str, Tensor]:
        """Tensors that the next training stage continues from, kept with the best weights."""
        return {}

    def load_carried_state(self, state: dict[str, Tensor]) -> None:
        """After `begin`: continue from the `carried_state` of the stage before."""

    @classmethod
    def teacher_loss(cls, options: Mapping[str, object]) -> tuple[str, dict[str, object]] | None:
        """Name and options of the loss of a first training, where the method needs a teacher.

        `options`: the arguments of the method itself. The trained teacher's logits then go to
        `learn_from_teacher` before the second training starts.
        """
        return None

    def learn_from_teacher(self, logits: Tensor, index: Tensor) -> None:
        """After `begin`: the teacher's logits of some training samples."""

    def end_teaching(self) -> None:
        """After `learn_from_teacher` has received all samples, and after `merge`."""

    def get_extra_state(self) -> Tensor:
        """The place in the schedule, as a tensor, which every weight format can store."""
        return torch.tensor([self.epoch, self.epochs])

    def set_extra_state(self, state: Tensor) -> None:
        self.start_epoch(*(int(value) for value in state))

    def _load_from_state_dict(self, state_dict: State, prefix: str, *rest: object) -> None:
        take_sizes(self, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def forward(self, logits: Tensor, labels: Tensor, index: Tensor | None = None) -> Tensor:
        """The loss, as `loss(logits, labels)`; its gradient is the one that the method states.

        Args:
            logits: (B, K), before the sigmoid, of any floating-point type; (V, B, K) for a method
                of V `views`.
            labels: (B, K), +1 present, 0 unknown, -1 absent, of any type.
            index: (B,), the row of each sample in the labels given to `begin`, where `needs_index`.

        The value is float32, or float64 for such logits.

        >>> from halftruth import losses
        >>> logits, labels = torch.zeros(2, 3), torch.tensor([[1, 0, 0], [0, -1, 0]])
        >>> losses.create("hill")(logits, labels)
        tensor(0.3253)
        """
        if self.depends_on_epoch and self._batches_before_epoch is not None:
            # Past torch's module call, to the line that called the loss.
            self._count_batch_before_epoch(logits, stacklevel=5)
        logits, labels = self._checked(logits, labels, index)
        if self.has_extra:
            # The gradients of both parts are added in full precision, and the sum is rounded once,
            # to the dtype of the given logits.
            logits = logits.to(compute_dtype(logits))
        return self._outside_autocast(self._value, logits, labels, index)  # type: ignore[no-any-return]

    def value_and_grad(
        self, logits: Tensor, labels: Tensor, index: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The loss and its gradient with respect to the logits, both without a graph.

            value, gradient = loss.value_and_grad(logits, labels)
            logits.backward(gradient)

        is `loss(logits, labels).backward()` without autograd's part in the loss, which at small
        batches takes longer than the loss itself. Gradients of the loss's own parameters are
        added to their `.grad`, as in `backward`.
        """
        if self.reduction == "none":
            raise ValueError(
                'expected a reduction to one value ("mean", "sum" or "batch"), since only that '
                'has one gradient, got "none"'
            )
        if self.views > 1 or self.has_extra or any(True for _ in self.parameters()):
            leaf = logits.detach().requires_grad_()
            with torch.enable_grad():
                value = self(leaf, labels, index)
            value.backward()
            assert leaf.grad is not None
            return value.detach(), leaf.grad
        if self.depends_on_epoch and self._batches_before_epoch is not None:
            self._count_batch_before_epoch(logits, stacklevel=3)
        logits, labels = self._checked(logits.detach(), labels, index)
        return self._outside_autocast(self._measured, logits, labels, index)  # type: ignore[no-any-return]

    def _measured(
        self, logits: Tensor, labels: Tensor, index: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        context = self.prepare(logits, labels, index)
        scale, divisor = self._scale(labels)
        value, slopes = measure(logits, LossTask(self, labels, context, "all", scale), True)
        assert slopes is not None
        if divisor is not None:
            value, slopes = value / divisor.to(value.dtype), slopes.div_(divisor)
        return value, slopes if slopes.dtype == logits.dtype else slopes.to(logits.dtype)

    def _outside_autocast(
        self, call: Callable[..., Value], logits: Tensor, *rest: Tensor | None
    ) -> Value:
        device = logits.device.type
        # The switch itself takes a while.
        if not torch.is_autocast_enabled(device):
            return call(logits, *rest)
        with torch.autocast(device, enabled=False):
            return call(logits, *rest)

    def _value(self, logits: Tensor, labels: Tensor, index: Tensor | None) -> Tensor:
        first = logits if self.views == 1 else logits[0]
        context = self.prepare(first.detach(), labels, index)
        unit = "all" if self.reduction != "none" else "row" if self.couples_rows else "entry"
        scale, divisor = self._scale(labels)
        value = one_pass(self, first, labels, context, unit, scale)
        extra = self.extra(logits, labels)
        if divisor is not None:
            value = value / divisor.to(value.dtype)
        if extra is None:
            return value
        units = {"none": labels.shape[1] if unit == "row" else 1, "mean": 1}
        return value + extra * units.get(self.reduction, max(labels.numel(), 1) * scale)

    def _scale(self, labels: Tensor) -> tuple[float, Tensor | None]:
        """The factor of the sum, and its divisor if that is a tensor on the device."""
        if self.reduction == "mean":
            divisor = self.normalizer(labels)
            return (1.0, divisor) if isinstance(divisor, Tensor) else (1 / divisor, None)
        return 1 / max(labels.shape[0], 1) if self.reduction == "batch" else 1.0, None

    def _checked(
        self, logits: Tensor, labels: Tensor, index: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
            raise RuntimeError(
                "halftruth losses do not work inside torch.func (grad, vmap, vjp, ...): expected "
                "loss(logits, labels).backward() or torch.autograd.grad; loss.value_and_grad("
                "logits, labels) gives value and gradient without autograd"
            )
        if not isinstance(logits, Tensor) or not logits.is_floating_point():
            kind = logits.dtype if isinstance(logits, Tensor) else type(logits).__name__
            raise TypeError(f"expected a tensor of floating-point logits, got {kind}")
        if isinstance(labels, Tensor) and (labels.is_meta or labels.layout != torch.strided):
            raise TypeError(
                f"expected a dense tensor of labels, got {labels.layout} on {labels.device}"
            )
        if not isinstance(labels, Tensor) or labels.device != logits.device:
            labels = torch.as_tensor(labels, device=logits.device)
        wanted = (2,) if self.views == 1 else (3,)
        if logits.dim() not in wanted:
            shape = "(B, K)" if self.views == 1 else f"({self.views}, B, K), one slice per view,"
            raise ValueError(f"expected logits of shape {shape} got {tuple(logits.shape)}")
        if self.views > 1 and logits.shape[0] != self.views:
            raise ValueError(f"expected {self.views} views of the batch, got {logits.shape[0]}")
        if logits.shape[-2:] != labels.shape:
            raise ValueError(
                f"expected labels of the logits' shape {tuple(logits.shape[-2:])}, "
                f"got {tuple(labels.shape)}"
            )
        if self.needs_index and index is None:
            raise ValueError(
                f"{type(self).__name__} keeps a table of training samples and needs the index: "
                "loss(logits, labels, index=index), where index holds the row of each sample in "
                "the labels given to begin()"
            )
        if self.needs_index and getattr(index, "shape", None) != labels.shape[:1]:
            raise ValueError(
                f"expected an index tensor of {labels.shape[0]} entries, the sample number of "
                f"each row of the batch, got {tuple(getattr(index, 'shape', ())) or index!r}"
            )
        if torch.compiler.is_compiling():
            return logits, labels
        # On an accelerator, reading values waits for the queue: only the first batch is checked.
        if labels.is_cpu or not self._seen_batch:
            if not _is_int8_codes(labels):
                labels = label_codes.check(labels)
            if not self._seen_batch:
                self._warn_of_probabilities(logits)
                self._seen_batch = True
        return logits, labels

    @staticmethod
    def _warn_of_probabilities(logits: Tensor) -> None:
        if logits.numel() < 2:
            return
        low, high = torch.aminmax(logits.detach())
        if low >= 0 and high <= 1 and low < high:
            warnings.warn(
                f"all inputs lie in [{low:.3g}, {high:.3g}]: they look like probabilities. Give "
                "the logits, before the sigmoid; halftruth applies it itself",
                stacklevel=6,  # past torch's module call, to the line that called the loss
            )


def _is_int8_codes(labels: Tensor) -> bool:
    """The usual case of `labels.check`, in half its time, which counts in small batches."""
    if labels.dtype != torch.int8 or not labels.is_cpu or not labels.numel():
        return False
    codes = labels.numpy()
    return bool(codes.min() >= -1 and codes.max() <= 1)


def _as_text(cls: type, given: tuple[object, ...], named: Mapping[str, object]) -> dict[str, str]:
    """The arguments of a class as text, defaults included; those shared by all losses left out."""
    bound = inspect.signature(cls).bind(*given, **named)
    bound.apply_defaults()
    found = dict(bound.arguments)
    for name, parameter in bound.signature.parameters.items():
        if parameter.kind == parameter.VAR_KEYWORD:
            found |= found.pop(name)
    shared = ("reduction", "eps")
    return {name: _text(value) for name, value in found.items() if name not in shared}


def _text(value: object) -> str:
    """The repr of a value; of a table its shape, of a long list its first entries."""
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"<{type(value).__name__} of shape {tuple(shape)}>"
    return reprlib.repr(value) if isinstance(value, list) else repr(value)


# What `registry.create` takes.
LossLike = str | Mapping[str, object] | Loss
_PLAN = "it is a choice of `halftruth train` and HalftruthClassifier, which fit a whole model"
registry: Registry[Loss] = Registry(
    "loss", Loss, dict.fromkeys(("auto", "ensemble", "many-classes"), _PLAN)
)
register = registry.register


def require(ok: bool, value: Value, name: str, expected: str) -> Value:
    """Return `value` if `ok` and finite, else raise an error that names the argument."""
    if not ok or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"expected {name} {expected}, got {value!r}")
    return value
