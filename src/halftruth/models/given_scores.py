"""The scores of another model as a model: its inputs are its outputs, one column per class."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from halftruth.models.classifier import Classifier
from halftruth.models.heads import Head
from halftruth.models.weights import ModelError

# The key of a layout.
GIVEN = "given-scores"
# Nearer to 0 and 1, a probability in float32 says nothing more.
_EPS = 1e-6


class GivenScoresHead(Head):
    """Logits of given scores: probabilities become logits, logits stay as they are."""

    only_features: ClassVar[bool] = True

    def __init__(self, num_classes: int, *, are_logits: bool) -> None:
        super().__init__(num_classes, num_classes)
        self.are_logits = are_logits

    @property
    def layout(self) -> dict[str, object]:
        """What the constructor needs."""
        return {"are_logits": self.are_logits}

    def forward(self, scores: Tensor) -> Tensor:
        if self.are_logits:
            return scores
        if bool(((scores < 0) | (scores > 1)).any()):
            raise ModelError(
                "expected probabilities in 0..1, as the scores that were calibrated, got "
                f"{float(scores.min()):g} to {float(scores.max()):g}"
            )
        return torch.logit(scores, eps=_EPS)


def build_given_scores(num_classes: int, are_logits: bool) -> Classifier:
    """Return the model of given scores.

    >>> model = build_given_scores(1, are_logits=False)
    >>> model(torch.tensor([[0.5], [0.9]])).ravel().round(decimals=1)
    tensor([0.0000, 2.2000])
    """
    head = GivenScoresHead(num_classes, are_logits=are_logits)
    return Classifier(nn.Identity(), head, feature_dim=num_classes, num_classes=num_classes)
