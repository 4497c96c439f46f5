"""Fit the ensemble of `auto` on features: members, their weights, out-of-sample scores."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from halftruth.data.wide_matrix import Matrix, WideMatrix
from halftruth.labels import find_unannotated
from halftruth.models import Classifier
from halftruth.models.ensemble import (
    COLUMNS,
    DENSE,
    LINKS,
    MEMBERS,
    build_ensemble,
    get_layout,
)
from halftruth.models.heads import FullLinear
from halftruth.presence.propensity import LabelBias
from halftruth.train.auto.frequency_bias import find_frequency_bias
from halftruth.train.ensemble.kept_members import KeptMembers
from halftruth.train.ensemble.label_dependence import fit_links, hold_out_links
from halftruth.train.ensemble.member_fits import (
    FittedMember,
    Log,
    MemberFits,
    apply_member,
    draw_folds,
)
from halftruth.train.ensemble.member_weights import (
    find_weights,
    fit_curve,
    mix_with_scores,
    score_members,
)
from halftruth.train.ensemble.members import RIDGE, RIDGES, fit_linear_path
from halftruth.train.ensemble.preparation import choose_dense, fit_preparation
from halftruth.train.ensemble.self_training import impute_unknown_labels
from halftruth.train.ensemble.sparse_linear import WideFit
from halftruth.train.inputs.batches import apply_in_blocks, to_dense

if TYPE_CHECKING:
    from halftruth.train.ensemble.sparse_linear import WideRows

# With fewer rows, members cannot be compared: the linear member is used alone.
FEW_ROWS = 20
# With fewer rows, an MLP is worse than the other members, and the slowest by far.
MLP_ROWS = 1_000
# A member with a smaller share of the weights is left out.
LEAST_WEIGHT = 0.015
# The members of `--quality fast`: on 8,000 comments of GoEmotions 71 s instead of 96 on two cores,
# test mAP 39.4 instead of 39.7; without the forest birds loses 5 to 6 points.
FAST_MEMBERS = ("linear", "forest", "neighbours")
# The members that are fitted again to estimates of unknown labels.
REFITTED = ("forest", "neighbours")


@dataclass(frozen=True)
class MemberScore:
    """A line of the table of members: its score on out-of-sample rows and its weight."""

    name: str
    score: float
    weight: float
    # The time of everything that was fitted for this member: all settings, all folds.
    seconds: float
    # The score of each setting that was fitted; the best is used.
    settings: dict[str, float] = field(default_factory=dict)

    @property
    def setting(self) -> str:
        """The settings in words, best first."""
        best, *others = sorted(self.settings, key=lambda name: -self.settings[name])
        tried = ", ".join(f"{name}: {100 * self.settings[name]:.2f}" for name in others)
        return f"{best} ({tried})" if tried else best


@dataclass(frozen=True)
class FittedEnsemble:
    """The model, the logits of rows it was not fitted on, and a table of its members."""

    model: Classifier
    # Rows with out-of-sample logits, and those logits, on the scale of the model.
    rows: np.ndarray
    logits: np.ndarray
    table: list[MemberScore]
    # The score of the weighted members on the out-of-sample rows, without links. Their weights
    # were found on these rows.
    score: float = math.nan
    # Whether frequent classes are named first; None where labels cannot tell.
    bias: LabelBias | None = None

    @property
    def layout(self) -> dict[str, object]:
        """The sizes of the members, from which `build_ensemble` makes the model again."""
        head: Any = self.model.head
        return dict(head.layout)

    def describe(self) -> list[str]:
        """Return the table of members as lines of text."""
        lines = [f"{'member':<12}{'score':>8}{'margin':>8}{'weight':>8}{'seconds':>9}  setting"]
        for one in self.table:
            margin = 100 * (one.score - self.score)
            line = f"{one.name:<12}{100 * one.score:8.2f}{margin:+8.2f}{one.weight:8.0%}"
            lines.append(f"{line}{one.seconds:9.1f}  {one.setting}".rstrip())
        seconds = sum(one.seconds for one in self.table)
        lines.append(f"{'all':<12}{100 * self.score:8.2f}{'':16}{seconds:9.1f}")
        return lines if self.bias is None else [*lines, self.bias.describe()]


def fit_ensemble(
    features: Matrix,
    labels: np.ndarray,
    *,
    seed: int = 0,
    groups: np.ndarray | None = None,
    members: Sequence[str] | None = None,
    device: str | torch.device = "cpu",
    one_scale: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    soft: np.ndarray | None = None,
    log: Log = lambda text: None,
    kept: KeptMembers | None = None,
) -> FittedEnsemble:
    """Fit an ensemble to features (N, D) and incomplete labels (N, K).

    Each member scores rows that it was not fitted on. On these scores the ridge prior of the
    linear member and the weights of the members are chosen, by the observed labels alone.
    `members`: the names of the members to fit; all that suit the number of rows by default.
    `one_scale`: columns that keep their scales relative to each other, such as TF-IDF.
    `weights`: how much labels count, (N, 1) or (N, K); forests and neighbours use the mean per row.
    An unknown label of weight 0 does not count at all; so do those of `find_unannotated`.
    `soft` (N, K): the probability that a class is present, NaN where it is unknown.
    `features` may be sparse, with many columns: the linear member is then fitted to all of them,
    and the others to those that are most associated with a label.
    `kept`: the files of members that were fitted before, and of those that will be.
    """
    if (unannotated := find_unannotated(labels)) is not None:
        weights = ~unannotated * np.float32(1 if weights is None else weights)
        log(f"auto: {unannotated.sum():,} labels do not count: some sources do not know the class")
    count = len(labels)
    fold = draw_folds(count, seed, groups)
    matrix = WideMatrix.from_sparse(features)
    if matrix is None:
        # The same digits from a file, in memory, dense and sparse.
        features = np.asarray(to_dense(features), np.float32)
    else:
        # With many rows, the model is not fitted to those that are held out.
        matrix = choose_dense(matrix, labels, fold < 0 if (fold < 0).any() else fold >= 0)
        one_scale, features = matrix.one_scale, np.asarray(matrix)
    prepare = fit_preparation(features, one_scale)
    x = apply_in_blocks(nn.Sequential(*prepare), features).float().to(device)
    wide = None if matrix is None else WideFit(matrix, x.device)
    given = torch.from_numpy(np.ascontiguousarray(labels)).to(device)
    trust, shares = None, None if soft is None else torch.from_numpy(soft).float().to(device)
    if weights is not None:
        # A mean of 1 where labels count, so that weights do not change the strength of the prior.
        trust = torch.from_numpy(weights / weights[weights > 0].mean()).float().to(device)
    if count < FEW_ROWS:
        return _fit_linear_alone(prepare, x, given, fold, trust, shares, wide)
    # Columns that were chosen by the labels would hide a bias.
    bias, counts = find_frequency_bias(x if wide is None else wide.rows, labels, seed), None
    biased = bias is not None and bias.found
    fits = MemberFits(x, given, fold, seed, groups is None, trust, shares, wide, biased, kept)
    if similar := fits.count_similar():
        pairs = "pair" if similar == 1 else "pairs"
        log(
            f"auto: {similar:,} {pairs} of classes may occur together: a row that shows one of "
            "them counts less as a row without the other"
        )
    if biased:
        # By the shown labels alone, a member that has learnt the bias would score best.
        counts = fits.count_as_absent()
    if trust is not None and bool((trust <= 0).any()):
        counted = (trust > 0).float().expand(given.shape).cpu()
        counts = counted if counts is None else counts * counted
    if members is None:
        # An MLP learns which classes are named next to which; the others hardly do.
        members = [name for name in MEMBERS if name != "mlp" or (count >= MLP_ROWS and not biased)]
    if wide is not None and wide.others and "linear" in members:
        members = [*members, DENSE]
    fitted = {}
    for number, name in enumerate(members, 1):
        log(f"auto: fitting member {number} of {len(members)}, {name}")
        fitted[name] = fits.fit(name, log)
    return replace(_combine_members(prepare, fitted, fits, counts, log), bias=bias)


def _combine_members(
    prepare: list[nn.Module],
    fitted: dict[str, list[FittedMember]],
    fits: MemberFits,
    counts: Tensor | None = None,
    log: Log = lambda text: None,
) -> FittedEnsemble:
    """Choose one of the alternatives of each member, find weights, and return the ensemble.

    `counts` (N, K): how much an unknown label counts as absent, where labels are biased.
    """
    labels, fold = fits.labels.cpu(), fits.fold
    rows = np.flatnonzero(fold >= 0)
    known = labels[torch.from_numpy(rows)]
    counts = None if counts is None else counts[torch.from_numpy(rows)]
    scores = {
        name: [score_members(one.scores[rows], known, counts) for one in some]
        for name, some in fitted.items()
    }
    best = {name: int(np.argmax(values)) for name, values in scores.items()}
    chosen = {name: fitted[name][i] for name, i in best.items()}
    standard = torch.stack([one.scores[rows] for one in chosen.values()])
    absent = counts
    if not fits.biased and (similar := fits.count_as_absent()) is not None:
        similar = similar[torch.from_numpy(rows)]
        absent = similar if counts is None else counts * similar
    share = find_weights(standard, known, absent)
    kept = share.mean(dim=1) >= LEAST_WEIGHT
    value = torch.tensor([scores[name][i] for name, i in best.items()])
    share = mix_with_scores(share, value, kept, known)
    total = torch.einsum("mk,mnk->nk", share, standard)
    slope, offset = fit_curve(total, known, counts)
    logits = offset + slope * total
    links = None
    if not fits.biased:
        # Where labels are biased, classes would be linked by what is named next to what.
        links = fit_links(slope * total, logits, known, counts)
        logits = hold_out_links(slope * total, logits, known, fold[rows], counts)
    names = [name for name, keep in zip(best, kept.tolist(), strict=True) if keep]
    if (
        fits.can_repeat
        and (soft := impute_unknown_labels(known.numpy(), logits.numpy())) is not None
    ):
        for name in names:
            if name in REFITTED:
                chosen[name] = fits.repeat(name, soft, chosen[name], log)
    table = [
        MemberScore(
            name, scores[name][i], float(share[m].mean()), chosen[name].seconds,
            dict(zip(name_settings(name, len(scores[name])), scores[name], strict=True)),
        )
        for m, (name, i) in enumerate(best.items())
    ]  # fmt: skip
    model = _assemble(
        prepare, {name: chosen[name] for name in names}, share[kept] * slope, offset, links,
        fits.wide,
    )  # fmt: skip
    score = score_members(total, known, counts)
    return FittedEnsemble(model, rows, logits.double().numpy(), table, score)


def name_settings(name: str, count: int) -> list[str]:
    """Return the settings of a member that are compared, in words.

    >>> name_settings("linear", 1)
    ['ridge 2']
    """
    if name in ("linear", DENSE):
        return [f"ridge {value:g}" for value in (RIDGES if count > 1 else (RIDGE,))]
    return [""] * count


# ---------------------------------------------------------------------- the model


def _assemble(
    prepare: list[nn.Module],
    members: dict[str, FittedMember],
    weight: Tensor,
    bias: Tensor,
    links: Tensor | None = None,
    wide: WideFit | None = None,
) -> Classifier:
    """Return the model of these members and their weights (M, K)."""
    modules = {name: one.module for name, one in members.items()}
    dim, layout = len(prepare[0].mean), {}  # type: ignore[arg-type]
    if wide is not None:
        dim, layout = wide.dim, {COLUMNS: {"count": len(wide.columns)}}
        if "linear" in modules:
            modules["linear"] = wide.make_layer(modules["linear"])
        if DENSE in modules:
            layer: Any = modules[DENSE]
            padded = FullLinear(len(wide.columns), len(bias)).requires_grad_(False)
            padded.weight.zero_()[:, : layer.in_features] = layer.weight
            padded.bias.copy_(layer.bias)
            modules[DENSE] = padded
    if links is not None:
        layout[LINKS] = {}
    model = build_ensemble(dim, len(bias), layout | get_layout(modules))
    head: Any = model.head
    if wide is not None:
        head.columns.copy_(torch.from_numpy(wide.columns))
    if links is not None:
        head.links.copy_(links)
    head.prepare = nn.Sequential(*prepare).float()
    for name, module in modules.items():
        head.parts[name].load_state_dict(module.state_dict())
    for i, one in enumerate(members.values()):
        head.mean[i], head.std[i] = one.mean, one.std
    head.weight.copy_(weight)
    head.bias.copy_(bias)
    return model.eval().requires_grad_(False)


def _fit_linear_alone(
    prepare: list[nn.Module],
    x: Tensor,
    labels: Tensor,
    fold: np.ndarray,
    weights: Tensor | None,
    soft: Tensor | None,
    wide: WideFit | None = None,
) -> FittedEnsemble:
    """Return the linear member alone, and logits of layers that were fitted without a fold."""
    dense = wide is not None and wide.others > 0
    inputs: Tensor | WideRows = x if wide is None or dense else wide.rows
    name = DENSE if dense else "linear"

    def fit(rows: Tensor) -> nn.Module:
        some = (None if values is None else values[rows] for values in (weights, soft))
        trust, shares = some
        return fit_linear_path(inputs[rows], labels[rows], (RIDGE,), trust, soft=shares)[RIDGE]

    parts = [torch.from_numpy(fold == one).to(x.device) for one in np.unique(fold)]
    layer = fit(torch.ones(len(x), dtype=torch.bool, device=x.device))
    logits = apply_member(layer, inputs)
    for held in parts if len(parts) > 1 else ():
        logits[held.cpu()] = apply_member(fit(~held), inputs[held])
    ones = torch.ones(labels.shape[1])
    fitted = FittedMember(layer, logits, 0 * ones, ones)
    model = _assemble(prepare, {name: fitted}, ones[None], 0 * ones, wide=wide)
    table = [MemberScore("linear", math.nan, 1.0, 0.0, {name_settings("linear", 1)[0]: math.nan})]
    return FittedEnsemble(model, np.arange(len(x)), logits.double().numpy(), table)
