"""The ensemble of named members that `auto` fits on features."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halftruth.models.classifier import Classifier, Standardize
from halftruth.models.forest import Forest
from halftruth.models.heads import FullLinear, Head
from halftruth.models.neighbours import Neighbours

MEMBERS = ("linear", "mlp", "forest", "neighbours")
MLP_WIDTH = 512
# A linear model of the dense columns next to sparse ones: fitted together, they would drown these.
DENSE = "dense"
# The key of a layout for the columns that dense members see; all others are names of members.
COLUMNS = "columns"
# The key of a layout that says that classes are linked.
LINKS = "links"


class SignedLog(nn.Module):
    """sign(x) log(1 + |x|): keeps small values and shortens the tails of a distribution."""

    def forward(self, x: Tensor) -> Tensor:
        # Missing values (NaN) take the mean of their column, which is 0 here.
        x = torch.nan_to_num(x, nan=0.0)
        return x.sign() * x.abs().log1p()


def make_preparation(dim: int) -> nn.Sequential:
    """Return the steps from raw features to those of the members, without their statistics."""
    return nn.Sequential(Standardize(dim), SignedLog(), Standardize(dim))


class EnsembleHead(Head):
    """A weighted sum of the standardised logits of its members, per class.

        z_k = s_k + b_k + Σ_j c_jk s_j,   s_k = Σ_m w_mk (z_mk − μ_mk) / σ_mk

    μ and σ are over the training rows. `links`, if any, are the c_jk: what the scores of other
    classes say about class k.

    `halftruth.train.ensemble` finds the weights on out-of-sample scores. `prepare` standardises the
    features, takes the signed logarithm and standardises again. `columns`: of many sparse features,
    those that members see which need dense ones; the linear member sees all.
    """

    only_features: ClassVar[bool] = True
    mean: Tensor
    std: Tensor
    weight: Tensor
    bias: Tensor
    columns: Tensor | None
    links: Tensor | None

    def __init__(
        self,
        dim: int,
        num_classes: int,
        parts: Mapping[str, nn.Module],
        columns: int | None = None,
        links: bool = False,
    ) -> None:
        super().__init__(dim, num_classes)
        self.register_buffer("links", torch.zeros(num_classes, num_classes) if links else None)
        self.prepare = make_preparation(dim if columns is None else columns)
        chosen = None if columns is None else torch.zeros(columns, dtype=torch.int64)
        self.register_buffer("columns", chosen)
        self.parts = nn.ModuleDict(dict(parts))
        for name, value in (("mean", 0.0), ("std", 1.0), ("weight", 1 / max(len(parts), 1))):
            self.register_buffer(name, torch.full((len(parts), num_classes), value))
        self.register_buffer("bias", torch.zeros(num_classes))

    def forward(self, features: Tensor) -> Tensor:
        # Members are fitted to float32: in double precision, a tree would see other digits.
        features = features.float().to(self.bias.dtype)
        dense = features if self.columns is None else take_columns(features, self.columns)
        prepared = self.prepare(dense)
        total = torch.zeros_like(self.bias)
        for number, part in enumerate(self.parts.values()):
            z = part(features if isinstance(part, WideLinear) else prepared)
            z = (z - self.mean[number]) / self.std[number]
            total = total + self.weight[number] * z
        return self.bias + (total if self.links is None else total + total @ self.links)

    @property
    def layout(self) -> dict[str, dict[str, object]]:
        """The sizes of all members, from which `build_ensemble` makes the model again."""
        sizes = get_layout(self.parts)  # type: ignore[arg-type]
        if self.links is not None:
            sizes = {LINKS: {}, **sizes}
        return sizes if self.columns is None else {COLUMNS: {"count": len(self.columns)}, **sizes}


class WideLinear(nn.Module):
    """A linear layer on all columns of a sparse matrix."""

    def __init__(self, num_classes: int, wide: int) -> None:
        super().__init__()
        self.layout = {"wide": wide}
        self.weight = nn.Parameter(torch.zeros(wide, num_classes))
        self.bias = nn.Parameter(torch.zeros(num_classes))

    def forward(self, x: Tensor) -> Tensor:
        return multiply_sparse(x, self.weight) + self.bias


def multiply_sparse(x: Tensor, weight: Tensor) -> Tensor:
    """Return x @ weight, also for a sparse CSR matrix; missing values (NaN) count as 0.

    >>> x = torch.tensor([[0.0, 2.0], [0.0, 0.0]])
    >>> multiply_sparse(x, torch.tensor([[1.0], [3.0]])).flatten()
    tensor([6., 0.])
    """
    if x.layout != torch.sparse_csr:
        return torch.nan_to_num(x) @ weight
    # Not x @ weight, which exists only where torch was built with MKL or cuSPARSE.
    return F.embedding_bag(
        x.col_indices(), weight, x.crow_indices(), mode="sum", include_last_offset=True,
        per_sample_weights=torch.nan_to_num(x.values()),
    )  # fmt: skip


def take_columns(x: Tensor, columns: Tensor) -> Tensor:
    """Return x[:, columns] as a dense matrix, also of a sparse CSR matrix."""
    if x.layout != torch.sparse_csr:
        return x[:, columns]
    place = torch.full((x.shape[1],), -1, device=x.device)
    place[columns] = torch.arange(len(columns), device=x.device)
    rows = torch.arange(len(x), device=x.device).repeat_interleave(x.crow_indices().diff())
    at = place[x.col_indices()]
    kept = at >= 0
    dense = x.values().new_zeros(len(x), len(columns))
    # A matrix of scipy may have several values in one place, which count together.
    return dense.index_put_((rows[kept], at[kept]), x.values()[kept], accumulate=True)


def get_layout(parts: Mapping[str, nn.Module]) -> dict[str, dict[str, Any]]:
    """Return the sizes of all members, from which `build_ensemble` makes them again."""
    return {name: getattr(part, "layout", {}) for name, part in parts.items()}


def build_ensemble(
    dim: int,
    num_classes: int,
    layout: Mapping[str, Mapping[str, Any]],
) -> Classifier:
    """Return an ensemble on D features, with members of these sizes.

    >>> model = build_ensemble(4, 3, {"linear": {}, "mlp": {}})
    >>> model(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """
    sizes = {name: dict(values) for name, values in layout.items()}
    columns = sizes.pop(COLUMNS, {}).get("count")
    links = sizes.pop(LINKS, None) is not None
    width = dim if columns is None else columns
    parts = {name: _make_member(name, width, num_classes, sizes[name]) for name in sizes}
    return Classifier(
        nn.Identity(),
        EnsembleHead(dim, num_classes, parts, columns, links),
        feature_dim=dim,
        num_classes=num_classes,
    )


def put_on_backbone(network: Classifier, ensemble: Classifier) -> Classifier:
    """Return an ensemble on the features of a network's backbone; it shares their modules."""
    return Classifier(
        network.backbone, ensemble.head, feature_dim=network.feature_dim,
        num_classes=network.num_classes, image_size=network.image_size, mean=network.mean,
        std=network.std,
    )  # fmt: skip


def build_member(
    name: str, num_classes: int, sizes: dict[str, object], state: Mapping[str, Tensor]
) -> nn.Module:
    """Return a member with its weights, of which the first table has a column per feature."""
    dim = next(value.shape[1] for value in state.values() if value.ndim == 2)
    member = _make_member(name, dim, num_classes, sizes)
    member.load_state_dict(dict(state))
    return member


def _make_member(name: str, dim: int, num_classes: int, sizes: dict[str, Any]) -> nn.Module:
    if name in ("linear", DENSE):
        return WideLinear(num_classes, **sizes) if sizes else FullLinear(dim, num_classes)
    if name == "mlp":
        return build_mlp(dim, num_classes)
    if name == "forest":
        return Forest(num_classes, **sizes)
    return Neighbours(dim, num_classes, **sizes)


def build_mlp(dim: int, num_classes: int) -> nn.Sequential:
    """Return an untrained MLP with one hidden layer."""
    return nn.Sequential(
        FullLinear(dim, MLP_WIDTH), nn.ReLU(), nn.Dropout(0.8), FullLinear(MLP_WIDTH, num_classes)
    )
