"""`MultiLabelScores`: the metrics of this package as one torchmetrics metric.

    from halftruth.metrics.torchmetric import MultiLabelScores

    metric = MultiLabelScores()
    metric.update(probabilities, labels)      # (B, K) each; 1 present, 0 unknown, -1 absent
    metric.compute()["mAP"]

torchmetrics is imported when the class is used first: the core needs torch and numpy only.
"""

import importlib.util
from functools import cache
from typing import Any

import torch
from torch import Tensor

from halftruth.extras import import_torchvision
from halftruth.labels import check
from halftruth.metrics.evaluate import evaluate


def __getattr__(name: str) -> type:
    if name == "MultiLabelScores":
        return _make_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _make_class() -> type:
    if importlib.util.find_spec("torchvision") is not None:
        # torchmetrics imports it, too, and fails where its compiled operators are missing.
        import_torchvision()
    try:
        from torchmetrics import Metric
    except ImportError as error:
        raise ImportError("MultiLabelScores needs: pip install torchmetrics") from error

    class MultiLabelScores(Metric):
        """All scores of `halftruth.metrics.evaluate`, over batches and processes.

        `options` are the arguments of `evaluate`; other arguments are those of a torchmetrics
        metric. `compute` returns a dictionary of numbers.
        """

        full_state_update = False
        is_differentiable = False
        higher_is_better = True
        preds: list[Tensor]
        target: list[Tensor]

        def __init__(self, options: dict[str, Any] | None = None, **arguments: object) -> None:
            super().__init__(**arguments)
            self.options = dict(options or {})
            self.add_state("preds", default=[], dist_reduce_fx="cat")
            self.add_state("target", default=[], dist_reduce_fx="cat")

        def update(self, preds: Tensor, target: Tensor) -> None:
            if preds.ndim != 2 or preds.shape != target.shape:
                raise ValueError(
                    "expected (batch, classes) probabilities and labels, got shapes "
                    f"{tuple(preds.shape)} and {tuple(target.shape)}"
                )
            self.preds.append(preds.detach().float())
            self.target.append(check(target))

        def compute(self) -> dict[str, Tensor]:
            found = evaluate(_join(self.preds), _join(self.target), **self.options)
            return {name: torch.tensor(value) for name, value in found.items()}

    return MultiLabelScores


def _join(parts: list[Tensor] | Tensor) -> Tensor:
    """Return a state as one tensor; after a reduction over processes it is one already."""
    return parts if isinstance(parts, Tensor) else torch.cat(list(parts))
