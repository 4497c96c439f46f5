"""The linear member on a sparse matrix: all terms of a text, without a dense copy.

`WideRows` stands in for the matrix x of the dense linear member, so that both are fitted by the
same loss with the same prior (`members.fit_linear_path`).
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from halftruth.data.wide_matrix import WideMatrix
from halftruth.models.ensemble import WideLinear, multiply_sparse
from halftruth.models.heads import FullLinear
from halftruth.train.inputs.batches import fit_standardization, make_sparse_tensor


class WideRows:
    """Rows of a sparse matrix with scaled columns: `rows @ weight` is a product with gradient.

    A column is divided by the geometric mean of its own deviation and the mean of all, as the dense
    columns of a text are: divided by its own alone, a rare term would count a hundred times as much
    as a common one. The mean variance of a column is then 1, as the prior of the linear member
    expects. Nothing is centred, since the bias does that.
    """

    def __init__(self, matrix: Any, device: torch.device) -> None:
        """`matrix`: scipy CSR in float32, scaled."""
        self.matrix, self.device = matrix, device
        self.shape = tuple(matrix.shape)
        self._tensors: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return int(self.shape[0])

    def numel(self) -> int:
        """Return how many values are stored."""
        return int(self.matrix.nnz)

    def __getitem__(self, rows: Tensor) -> "WideRows":
        return WideRows(self.matrix[rows.cpu().numpy()], self.device)

    def to(self, device: str | torch.device) -> "WideRows":
        """Return the same rows, with products on a device."""
        return WideRows(self.matrix, torch.device(device))

    def __matmul__(self, weight: Tensor) -> Tensor:
        if self._tensors is None:
            pair = self.matrix, self.matrix.T.tocsr()
            own, turned = (make_sparse_tensor(one).to(self.device) for one in pair)
            self._tensors = own, turned
        product: Tensor = _Product.apply(weight, *self._tensors)
        return product

    def apply(self, layer: FullLinear) -> Tensor:
        """Return the logits of a layer that was fitted to such rows, on the CPU."""
        with torch.no_grad():
            return (self @ layer.weight.T.contiguous().to(self.device)).cpu() + layer.bias.cpu()


class _Product(torch.autograd.Function):
    """x @ weight for a constant sparse x, whose transpose makes the gradient as fast."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, x: Tensor, turned: Tensor) -> Tensor:
        ctx.turned = turned
        return multiply_sparse(x, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return multiply_sparse(ctx.turned, gradient.contiguous()), None, None


class WideFit:
    """A `WideMatrix` for fitting: its rows with scaled columns, and the way back."""

    def __init__(self, features: WideMatrix, prepared: Tensor) -> None:
        """`prepared` (N, dense columns): they begin with those of the table, if there is one."""
        self.matrix = features
        self.dim, self.columns, self.others = features.shape[1], features.columns, features.others
        std = fit_standardization(features.sparse[:, self.others :]).std.numpy()
        # A column that is constant, or 0 everywhere, has nothing to tell.
        self.scale = np.where(std > 0, 1 / np.sqrt(std * std.mean()), 0.0).astype(np.float32)
        # Together, the columns of a table have as much prior variance as those of the text.
        self.table_scale = float(np.sqrt(len(self.scale) / max(self.others, 1)))
        self.rows = self._make_rows(features, prepared)

    def _make_rows(self, features: WideMatrix, prepared: Tensor) -> WideRows:
        from scipy import sparse  # type: ignore[import-untyped]

        scaled = features.sparse[:, self.others :] @ sparse.diags(self.scale)
        blocks = [scaled]
        if self.others:
            table = self.table_scale * prepared[:, : self.others].cpu().numpy()
            blocks = [sparse.csr_matrix(table), scaled]
        return WideRows(sparse.hstack(blocks, format="csr", dtype=np.float32), prepared.device)

    def make_layer(self, layer: nn.Module) -> WideLinear:
        """Return a layer that was fitted to scaled rows as one for the features themselves."""
        assert isinstance(layer, FullLinear)
        wide = WideLinear(len(layer.weight), self.dim, self.others)
        with torch.no_grad():
            weight = layer.weight.T.clone()
            wide.others.copy_(self.table_scale * weight[: self.others])
            wide.weight[self.others :] = (
                weight[self.others :] * torch.from_numpy(self.scale)[:, None]
            )
            wide.bias.copy_(layer.bias)
        return wide.requires_grad_(False)
