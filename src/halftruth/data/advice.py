"""Which method to try first on a label matrix, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from halftruth.labels import LabelMatrix


@dataclass(frozen=True)
class Advice:
    """A method to try first, what it would choose here, and why; others to compare it with."""

    method: str
    chosen: str
    options: dict[str, Any] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    reason: str = ""

    def text(self) -> str:
        """The advice as one line."""
        options = "".join(f" --set {key}={value}" for key, value in self.options.items())
        compare = f"; to compare: {', '.join(self.also)}" if self.also else ""
        return (
            f"try first: {self.method}, the default, which would choose {self.chosen}{options} "
            f"({self.reason}){compare}"
        )


def suggest_method(labels: LabelMatrix, dim: int | None = None) -> Advice:
    """`auto`, and what it would choose for these labels: on `dim` features, or else on images.

    >>> import numpy as np
    >>> one_each = LabelMatrix(np.eye(3, dtype=np.int8), ("a", "b", "c"), None, None)
    >>> suggest_method(one_each).chosen, suggest_method(one_each, dim=16).chosen
    ('em', 'swan')
    """
    # The rules are those of training; that needs more modules than reading labels does.
    from halftruth.train.auto import choose
    from halftruth.train.config import AUTO

    choice = choose(labels.values, dim or 1, features=dim is not None)
    # The last reason is about rates and steps, which hang on the features.
    reasons = choice.reasons if dim is not None else choice.reasons[:-1]
    chosen = choice.settings["method"]
    return Advice(
        AUTO,
        chosen,
        dict(choice.settings["options"]),
        () if chosen == "bce" else ("bce",),
        "; ".join(reasons),
    )
