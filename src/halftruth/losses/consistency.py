"""Consistency: of views of the same rows (consistency, lagc), of class maps over epochs (scl)."""

from typing import Unpack

import torch
from torch import Tensor

from halftruth import labels as label_codes
from halftruth.losses._engine.one_pass import compute_dtype
from halftruth.losses.base import Loss, LossLike, Options, register, registry, require
from halftruth.losses.memory import Memory
from halftruth.losses.wrapper import Wrapper, WrapperOptions

# The largest table of maps.
MOST_BYTES = 2.5e9


@register("consistency")
class Consistency(Wrapper):
    """A base loss on x, plus a penalty where augmented views of x are predicted differently.

        L = base(x) + α Σ_{i<j} ‖p(x_i) − p(x_j)‖²,   x₀ = x, x₁, x₂ its augmentations

    The squares are summed over classes like the base's entries, so under reduction "mean" both
    are divided by B·K. Paper 004, eq. 7-8; α = .7 VOC, .1 COCO, .15 NUS, .03 CUB. These fall with
    the number of classes, α K being 14, 8, 12 and 9; unless given, `weight` is 10/K. The logits
    are (V, B, K), the first view being x. UNKNOWN: as in the base. Needs: V forward passes, best
    done as one batch of V·B.

    Args:
        weight: α; None: 10/K.
        views: V, at least 2.

    >>> logits = torch.zeros(3, 2, 5)          # three views of two rows
    >>> Consistency("bce")(logits, torch.eye(2, 5, dtype=torch.int8))
    tensor(0.6931)
    """

    paper = "LASD, ICLR 2023 submission"
    unknown_is = "as the base"

    def __init__(
        self,
        base: LossLike = "lasd",
        weight: float | None = None,
        views: int = 3,
        **options: Unpack[WrapperOptions],
    ) -> None:
        super().__init__(base, **options)
        self.weight = require(weight is None or weight >= 0, weight, "weight", ">= 0 or None")
        require(self.base.views == 1, self.base.views, "a base with one view, not", "more")
        self.views = require(views >= 2, views, "views", ">= 2")

    def extra(self, logits: Tensor, labels: Tensor) -> Tensor | None:
        p = torch.sigmoid(logits.to(compute_dtype(logits)))
        # Over all pairs, Σ_{i<j} (p_i − p_j)² = V Σ_i (p_i − mean)²: one pass, not V².
        spread = (p - p.mean(dim=0)).square().sum() * self.views
        weight = 10 / max(labels.shape[1], 1) if self.weight is None else self.weight
        term = weight * spread / max(labels.numel(), 1)
        inner = self.base.extra(logits[0], labels)
        return term if inner is None else term + inner


@register("lagc")
class PseudoLabelConsistency(Loss):
    """Cross-entropy on x, and on an augmented view towards the confident predictions for x.

        L = mean of ℓ(x) + w · mean over sure entries of BCE(p(x′), t)
        t = 1 where p(x) + [y = +1] ≥ τ,   0 where p(x) + [y = +1] < 1 − τ or y = −1

    The first stage of LAGC (PLC), Xie et al., NeurIPS 2022: τ = 0.6, w = 1. Its second stage, a
    contrastive loss over label embeddings, needs another model and is not here. p(x) carries no
    gradient in the second term. The logits are (2, B, K), the first view being x.
    UNKNOWN: negative on x; as predicted on x′ where the prediction is sure.
    Needs: 2 forward passes, best done as one batch of 2·B.

    Args:
        weight: w, the weight of the second view.
        tau: τ, in [0.5, 1].
    """

    paper = "Xie et al. 2022"
    unknown_is = "negative, as predicted on a second view"
    views = 2

    def __init__(self, weight: float = 1.0, tau: float = 0.6, **options: Unpack[Options]) -> None:
        super().__init__(**options)
        self.weight = require(weight >= 0, weight, "weight", ">= 0")
        self.tau = require(0.5 <= tau <= 1, tau, "tau", "in [0.5, 1]")

    def for_single_view(self) -> Loss:
        return registry.create("bce", reduction=self.reduction)

    def extra(self, logits: Tensor, labels: Tensor) -> Tensor | None:
        z = logits.to(compute_dtype(logits))
        shown = torch.sigmoid(z[0].detach()) + (labels > 0).to(z.dtype)
        present = (shown >= self.tau) & (labels >= 0)
        sure = present | (shown < 1 - self.tau) | (labels < 0)
        costs = torch.nn.functional.softplus(torch.where(present, -z[1], z[1]))
        total = torch.where(sure, costs, 0.0).sum()
        return self.weight * total / sure.sum().clamp(min=1)


@register("scl")
class SpatialConsistency(Wrapper):
    """A base loss, plus the distance of class maps to those of earlier epochs at the same places.

        L = base + w · mean over seen cells of |σ(c) − h̄|,     h̄ ← μ h̄ + (1−μ) σ(c)  in the crop

    c are the class maps (B, K, h, w) of a crop; their mean over places is the logit. h̄ is the
    running average of the maps of an image, in the coordinates of the whole image, on
    `side` × `side` cells per class. It is cropped and flipped like the image. Verelst et al.,
    WACV 2023. None of our papers defines it, and there is no public code: distance, decay and grid
    are our reading. The maps are a second input: `loss(...) + loss.map_term(maps, index, boxes)`.
    UNKNOWN: as in the base. Needs: index, begin(), start_epoch(), a head that keeps its maps, the
    crop boxes.

    Args:
        weight: w, the weight of the term.
        decay: μ, of the running average.
        side: the cells per side of a map that is kept.
        start: the first epoch (0-based) with the term.
    """

    paper = "Verelst et al. 2023"
    unknown_is = "as the base, with stable maps"
    depends_on_epoch = True
    without_epochs = "the term of the class maps is 0"
    needs_index = True
    needs_maps = True

    def __init__(
        self,
        base: LossLike = "bce",
        weight: float = 1.0,
        decay: float = 0.8,
        side: int = 7,
        start: int = 1,
        **options: Unpack[WrapperOptions],
    ) -> None:
        super().__init__(base, **options)
        require(self.base.views == 1, self.base.views, "a base with one view, not", "more")
        self.weight = require(weight >= 0, weight, "weight", ">= 0")
        self.decay = require(0 <= decay < 1, decay, "decay", "in [0, 1)")
        self.side = require(side >= 1, side, "side", ">= 1")
        self.start = require(start >= 0, start, "start", ">= 0")
        self.needs_index = self.needs_maps = True
        self.depends_on_epoch = start > 0 or self.base.depends_on_epoch
        if start == 0:
            self.without_epochs = ""
        # One byte per cell: a probability as 1 to 255, or 0 for a cell not seen yet.
        self.memory = Memory("uint8")

    def begin(self, labels: Tensor) -> None:
        labels = label_codes.check(torch.as_tensor(labels))
        size = labels.numel() * self.side**2
        if size > MOST_BYTES:
            fits = int((MOST_BYTES / labels.numel()) ** 0.5)
            raise ValueError(
                f"scl would keep {size / 1e9:.1f} GB of maps for {len(labels):,} samples of "
                f"{labels.shape[1]} classes, expected at most {MOST_BYTES / 1e9:g}: give "
                f"side={fits} or less"
            )
        self.memory.allocate(*labels.shape, self.side, self.side)
        super().begin(labels)

    def map_term(self, maps: Tensor, index: Tensor, boxes: Tensor) -> Tensor:
        """Return the spatial term for class maps (B, K, h, w), and remember the maps.

        `boxes` (B, 4): left, top, width and height of the crop as shares of the image; a negative
        width is a flip, left then being the right edge.
        """
        if maps.dim() != 4 or boxes.shape != (len(maps), 4) or len(index) != len(maps):
            raise ValueError(
                "expected maps (B, K, h, w), an index of B and boxes (B, 4), got "
                f"{tuple(maps.shape)}, {tuple(index.shape)} and {tuple(boxes.shape)}"
            )
        p = torch.sigmoid(maps.float())
        kept = self.memory.read(index).to(maps.device)
        seen, average = (kept > 0).float(), (kept.float() - 1).clamp(min=0) / 254
        left, top, width, height = boxes.float().unbind(1)
        rows, columns = (
            make_points(top, height, self.side, p.shape[2]),
            make_points(left, width, self.side, p.shape[3]),
        )
        target, known = (resample(x, rows, columns) for x in (average, seen))
        known = known > 1 - 1e-4
        error = torch.where(known, (p - target).abs(), 0.0)
        if self.training:
            self._remember(p.detach(), index, average, seen > 0, (left, top, width, height))
        term = self.weight * error.sum() / known.sum().clamp(min=1)
        return term if self.epoch >= self.start else term * 0

    def _remember(
        self, p: Tensor, index: Tensor, average: Tensor, seen: Tensor, box: tuple[Tensor, ...]
    ) -> None:
        """Write the maps of crops back in the coordinates of their images."""
        left, top, width, height = box
        rows = make_points(-top / height, 1 / height, p.shape[2], self.side)
        columns = make_points(-left / width, 1 / width, p.shape[3], self.side)
        now = resample(p, rows, columns)
        inside = (rows.sum(2)[:, :, None] * columns.sum(2)[:, None, :] > 0.5)[:, None]
        moved = torch.where(seen, torch.lerp(now, average, self.decay), now)
        moved = torch.where(inside, moved, average)
        code = torch.where(inside | seen, (moved * 254).round() + 1, 0.0)
        self.memory.write(index, code.to(torch.uint8))


def make_points(start: Tensor, length: Tensor, cells: int, points: int) -> Tensor:
    """Interpolation weights (B, points, cells) for `points` in the span start .. start + length.

    Bilinear between the centres of cells; a point outside 0..1 has weights 0.
    """
    at = (torch.arange(points, device=start.device) + 0.5) / points
    where = start[:, None] + length[:, None] * at
    centres = (where * cells).clamp(0.5, cells - 0.5)
    taps = torch.arange(cells, device=start.device) + 0.5
    weights = (1 - (taps - centres[:, :, None]).abs()).clamp(min=0)
    return weights * ((where >= 0) & (where <= 1))[:, :, None]


def resample(maps: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Maps (B, K, H, W) interpolated along both axes."""
    return rows[:, None] @ maps @ columns[:, None].transpose(2, 3)
