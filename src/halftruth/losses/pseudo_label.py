"""Two-stage pseudo-labels: train, label the training set with the trained model, train again."""

from collections.abc import Mapping
from typing import Any, Unpack

import torch
from torch import Tensor

from halftruth import labels as label_codes
from halftruth.losses.base import LossLike, register, require
from halftruth.losses.memory import Memory
from halftruth.losses.wrapper import Wrapper, WrapperOptions


@register("pseudo-label")
class PseudoLabel(Wrapper):
    """A base loss on labels that a first model, trained with the same base, has filled in.

        y ← +1 where y = 0 and p > τ,   −1 where y = 0 and p < τ₋ (if given),   else as it was

    p is the prediction of the first model on its own training set; the second model starts from
    scratch. The base sees only the new labels, so it may be any loss. Lee 2013, as compared in
    paper 003; τ is not published (Fig. 7 shows .4 to .6), so it has no default. Before labels are
    filled in, this is the base alone. `halftruth train` runs both trainings; in your own loop call
    `relabel(logits of the training set)` between them.
    UNKNOWN: as predicted by the first model, else as in the base. Needs: index, begin(), a
    first training.

    Args:
        tau: τ, above which an unknown label becomes present.
        tau_neg: τ₋, below which it becomes absent; None: never.

    >>> loss = PseudoLabel(tau=0.5)
    >>> loss.begin(torch.tensor([[1, 0, 0]]))
    >>> loss.relabel(torch.tensor([[-3.0, 2.0, -3.0]]))
    >>> loss.relabelled(torch.tensor([0]))
    tensor([[1, 1, 0]], dtype=torch.int8)
    """

    paper = "Lee 2013 (in Zhang et al. 2021)"
    unknown_is = "as a first model predicts, else as the base"
    needs_index = True
    outermost = True

    def __init__(
        self,
        tau: float,
        base: LossLike = "bce",
        tau_neg: float | None = None,
        **options: Unpack[WrapperOptions],
    ) -> None:
        super().__init__(base, **options)
        self.tau = require(0 <= tau <= 1, tau, "tau", "in [0, 1]")
        ok = tau_neg is None or 0 <= tau_neg <= tau
        self.tau_neg = require(ok, tau_neg, "tau_neg", "in [0, tau] or None")
        self.needs_index = True
        # The labels as two bits per entry, a quarter of their size as int8.
        self.positive, self.negative = Memory("bool"), Memory("bool")

    def begin(self, labels: Tensor) -> None:
        labels = label_codes.check(torch.as_tensor(labels))
        for memory in (self.positive, self.negative):
            memory.allocate(*labels.shape)
        with self.positive.whole(), self.negative.whole():
            for index in self._blocks(labels.device) if len(labels) else ():
                self.positive.write(index, labels[index] == label_codes.PRESENT)
                self.negative.write(index, labels[index] == label_codes.ABSENT)
        self.base.begin(labels)

    @classmethod
    def teacher_loss(cls, options: Mapping[str, Any]) -> tuple[str, dict[str, object]]:
        base = options.get("base", "bce")
        described = {"name": base} if isinstance(base, str) else dict(base)
        if "reduction" in options:
            described["reduction"] = options["reduction"]
        return described.pop("name"), described

    def learn_from_teacher(self, logits: Tensor, index: Tensor) -> None:
        """Fill in the labels of some samples from the logits of a trained model."""
        p, now = torch.sigmoid(logits.detach().float()), self.relabelled(index)
        unknown = now == label_codes.UNKNOWN
        self.positive.write(index, (now > 0) | (unknown & (p > self.tau)))
        if self.tau_neg is not None:
            self.negative.write(index, (now < 0) | (unknown & (p < self.tau_neg)))

    def relabel(self, scores: Tensor | None = None) -> None:
        """Fill in all labels from the logits (N, K) of the training set, and restart the base.

        Without `scores`, `learn_from_teacher` must have been called for all samples.
        """
        if scores is not None:
            for part, index in self.positive.sample_blocks(scores):
                self.learn_from_teacher(part, index)
        blocks = self._blocks(self.positive.near)
        self.base.begin(torch.cat([self.relabelled(index) for index in blocks]))

    def end_teaching(self) -> None:
        self.relabel()

    def _blocks(self, device: torch.device) -> list[Tensor]:
        samples = torch.arange(len(self.positive), device=device)
        return [samples[rows] for rows in self.positive.row_blocks()] or [samples]

    def relabelled(self, index: Tensor) -> Tensor:
        """The labels of these samples that the base is trained with."""
        present, absent = self.positive.read(index), self.negative.read(index)
        return present.to(torch.int8) - absent.to(torch.int8)

    def pseudo_labels(self, index: Tensor) -> Tensor:
        return self.relabelled(index)

    def _checked(
        self, logits: Tensor, labels: Tensor, index: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        logits, labels = super()._checked(logits, labels, index)
        assert index is not None
        given = self.relabelled(index).to(labels)
        return logits, torch.where(labels == label_codes.UNKNOWN, given, labels)
