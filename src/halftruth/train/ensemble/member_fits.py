"""Fit members on the rows of all folds but one, for out-of-sample scores, and on all rows."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from halftruth.data.splits import fold_of_rows, split_rows
from halftruth.data.wide_matrix import WideMatrix
from halftruth.models.ensemble import DENSE
from halftruth.models.forest import share_to_logit
from halftruth.train.devices import count_processes, limit_threads, run_in_processes
from halftruth.train.ensemble.kept_members import KeptMembers
from halftruth.train.ensemble.members import (
    RIDGE,
    RIDGES,
    TREES,
    find_propensity,
    fit_forest,
    fit_linear_path,
    fit_neighbours,
    get_targets,
)
from halftruth.train.ensemble.mlp import MlpTask, fit_mlps
from halftruth.train.ensemble.negative_weights import (
    can_pair,
    count_as_absent,
    find_pairs,
    fit_similar,
)
from halftruth.train.ensemble.preparation import choose_dense, prepare_features
from halftruth.train.ensemble.sparse_linear import WideFit, WideRows

FOLDS = 4
LINEAR = "linear"
# With more rows, some are held out and the members are fitted once, instead of once per fold.
MANY_ROWS, HELD_OUT = 20_000, 5_000
# Multiply-adds of a fit per unit of work in `limit_threads`, which is meant for one batch.
_WORK_OF_STEP = 100
# A forest of which only the scores of held-out rows are needed: a fifth of the trees is enough.
SMALL_FOREST = "small forest"
Log = Callable[[str], None]


@dataclass
class FittedMember:
    """A member fitted to all rows, with standardised out-of-sample scores (N, K)."""

    module: nn.Module
    scores: Tensor
    # Mean and standard deviation per class of the final module's logits on rows like the training
    # rows.
    mean: Tensor
    std: Tensor
    # The time of the member with all its settings.
    seconds: float = 0.0


def draw_folds(count: int, seed: int, groups: np.ndarray | None) -> np.ndarray:
    """Return the fold of each row; −1 for rows that are always used for fitting.

    It depends on which rows are of one group, not on the names of the groups.
    """
    units = count
    if groups is not None:
        _, first, which = np.unique(groups, return_index=True, return_inverse=True)
        units, groups = len(first), first.argsort().argsort()[which.ravel()]
    if count < 2:
        return np.zeros(count)
    if count <= MANY_ROWS:
        return fold_of_rows(count, min(FOLDS, units), seed, groups)
    fold = np.full(count, -1)
    fold[split_rows(count, val=min(HELD_OUT / count, 0.2), seed=seed, groups=groups)[1]] = 0
    return fold


class MemberFits:
    """Fits members on the rows of all folds but one, and on all rows."""

    def __init__(
        self,
        x: Tensor,
        labels: Tensor,
        fold: np.ndarray,
        seed: int,
        out_of_bag: bool,
        weights: Tensor | None = None,
        soft: Tensor | None = None,
        wide: WideFit | None = None,
        biased: bool = False,
        kept: KeptMembers | None = None,
    ) -> None:
        """`biased`: whether frequent classes are named first, in rows that show one class."""
        self.wide, self.biased, self.kept = wide, biased, kept
        self.weights, self.soft = weights, soft
        self.x, self.labels, self.fold, self.seed = x, labels, fold, seed
        self.folds = [int(one) for one in np.unique(fold[fold >= 0])]
        # With one held-out part, the model fitted without it is the final one.
        self.once = len(self.folds) == 1
        self.out_of_bag = out_of_bag and not self.once
        # Where rows show one class each: how much they count as rows without another, by the fold
        # whose labels have no part in it.
        self.similar: dict[int | None, np.ndarray] = {}
        if not biased and can_pair(labels.cpu().numpy()):
            rows = self._inputs(LINEAR)
            with limit_threads(rows.numel() * labels.shape[1] / _WORK_OF_STEP, labels.device):
                self.similar = fit_similar(rows, labels, fold, weights)

    def weigh_pairs(self, held: int | None = None) -> np.ndarray | None:
        """Return how much a row that shows one class counts as one without another, or None.

        `held`: the fold whose labels have no part in it; for biased labels it hardly matters.
        """
        return find_pairs(self.labels) if self.biased else self.similar.get(held)

    def count_similar(self) -> int:
        """Return how many pairs of classes seem to occur together, in rows that show one class."""
        pairs = self.similar.get(None)
        return 0 if pairs is None else int((np.minimum(pairs, pairs.T) < 0.5).sum()) // 2

    def count_as_absent(self, held: int | None = None) -> Tensor | None:
        """Return how much each unknown label counts, (N, K); None where all of them do."""
        pairs = self.weigh_pairs(held)
        return None if pairs is None else count_as_absent(self.labels.cpu(), pairs)

    def fit(self, name: str, log: Log, scored: bool = True) -> "list[FittedMember]":
        """Return the fitted member; a linear one once per ridge.

        `scored`: whether its out-of-sample scores are needed.
        """
        started, file = time.monotonic(), name if scored else f"{name}-again"
        if self.kept is not None and (found := self.kept.load(file)) is not None:
            log(f"auto: {name} was fitted before the run stopped")
            return found
        inputs = self._inputs(name)
        x: object = inputs if isinstance(inputs, WideRows) else inputs.cpu().numpy()
        if self.wide is not None and name not in (LINEAR, DENSE) and not self.once:
            x = self.wide.matrix
        labels = self.labels.cpu().numpy()
        soft = None if self.soft is None else self.soft.cpu().numpy()
        same = x, labels, self.fold, self.seed, soft, self.biased, str(self.x.device)

        def data(held: int | None) -> tuple[Any, ...]:
            return *same, *self._weigh(name, held)

        if name == "forest" and self.out_of_bag:
            found = [self._fit_forest()]
            if self.wide is not None and scored:
                # Columns were chosen by the labels of all rows: they are held out from that, too.
                parts = [
                    (_fit_part(SMALL_FOREST, held, *data(held))[1][0], self.fold == held)
                    for held in self.folds
                ]
                found = [self._finish(found[0].module, parts, (found[0].mean, found[0].std))]
        elif name == "mlp":
            found = self._combine(name, self._fit_mlps())
        else:
            tasks = self._tasks
            results = [_fit_part(name, tasks[0], *data(tasks[0]))]
            left = (time.monotonic() - started) * (len(tasks) - 1)
            jobs = 1 if self.x.device.type != "cpu" else count_processes(left, len(tasks) - 1)
            # A generator: the weights of one fold at a time, where there are no processes.
            rest = ((name, task, *data(task)) for task in tasks[1:])
            if jobs > 1:
                results += run_in_processes(jobs, _fit_part, [*rest])
            else:
                results += [_fit_part(*task) for task in rest]
            found = self._combine(name, results)
        for one in found:
            one.seconds = time.monotonic() - started
        log(f"auto: {name} fitted in {time.monotonic() - started:.1f} s")
        if self.kept is not None:
            self.kept.save(file, name, found)
        return found

    @property
    def can_repeat(self) -> bool:
        """Whether members may be fitted again, to estimates of unknown labels.

        All rows must have out-of-sample scores, and all unknown labels be of the same kind.
        """
        unannotated = self.weights is not None and bool((self.weights <= 0).any())
        return not (self.once or unannotated or self.biased or self.soft is not None)

    def repeat(self, name: str, soft: np.ndarray, first: FittedMember, log: Log) -> FittedMember:
        """Return a member fitted to soft labels (N, K), with the scores of its first fit.

        The scores of the second are not out of sample: the label of a row has a part in the soft
        labels of similar rows.
        """
        self.soft = torch.from_numpy(soft).float().to(self.x.device)
        again = self.fit(name, log, scored=False)[0]
        self.soft = None
        return replace(again, scores=first.scores, seconds=first.seconds + again.seconds)

    @property
    def _tasks(self) -> list[int | None]:
        """The folds that a member is fitted without, and None for the fit to all rows."""
        return [*self.folds] if self.once else [*self.folds, None]

    def _fit_mlps(self) -> "list[tuple[list[nn.Module], list[Tensor]]]":
        """Fit the MLP without each fold, and to all rows, as `_fit_part` does for one of them."""
        if self.wide is None or self.once:
            return self._fit_mlps_to(self.x, self._tasks)
        found, matrix, labels = [], self.wide.matrix, self.labels.cpu().numpy()
        for held in self._tasks:
            # Columns are chosen by the labels of a part, and so many tables need much memory.
            x = _choose_columns(matrix, labels, self._find_inside(held))
            found += self._fit_mlps_to(x.to(self.x.device), [held])
        return found

    def _fit_mlps_to(
        self, x: Tensor, tasks: list[int | None]
    ) -> "list[tuple[list[nn.Module], list[Tensor]]]":
        device, inside = x.device, [self._find_inside(held) for held in tasks]
        pairs = [] if self.biased else [self.weigh_pairs(held) for held in tasks]
        known = [find_propensity(self.labels[rows]) for rows in inside] if self.biased else []
        task = MlpTask(
            x, self.labels, [torch.from_numpy(np.flatnonzero(rows)) for rows in inside],
            self.weights, self.soft, _stack(pairs, device), _stack(known, device),
        )  # fmt: skip
        mlps: list[nn.Module] = [*fit_mlps(task, self.seed)]
        return [
            ([mlp], [apply_member(mlp, x[torch.from_numpy(~rows).to(device)])])
            for mlp, rows in zip(mlps, inside, strict=True)
        ]

    def _find_inside(self, held: int | None) -> np.ndarray:
        """Return which rows a member is fitted to, as a mask."""
        return np.asarray(self.fold != (-2 if held is None else held))

    def _weigh(self, name: str, held: int | None) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return weights of labels and of pairs of classes, as a member takes them."""
        weights = None if self.weights is None else self.weights.cpu().numpy()
        if name not in (LINEAR, DENSE):
            return weights, self.weigh_pairs(held)
        # For biased labels, the losses of these members have the propensities of the classes.
        if not self.biased and (counts := self.count_as_absent(held)) is not None:
            weights = np.asarray(counts * (1.0 if weights is None else weights))
        return weights, None

    def _inputs(self, name: str) -> Tensor | WideRows:
        """Return what a member is fitted to: of many sparse columns, the linear one takes all."""
        if self.wide is None or name not in (LINEAR, DENSE):
            return self.x
        return self.wide.rows if name == LINEAR else self.x[:, : self.wide.others]

    def _fit_forest(self) -> FittedMember:
        """Return a forest with its out-of-bag scores: no fold has to be fitted."""
        threads = torch.get_num_threads()
        module, shares = fit_forest(
            self.x, self.labels, self.seed, threads,
            weights=self.weights, soft=self.soft, pairs=self.weigh_pairs(),
        )  # fmt: skip
        # A row that all trees have seen gets the mean.
        shares = np.where(np.isnan(shares), np.nanmean(shares, axis=0), shares)
        # The trees of a row have not seen its labels either: without this, rows with a rare label
        # would have lower shares of it than others. Soft labels of different size would show.
        if self.soft is None:
            shares = shares + get_targets(self.labels, None)[0].cpu().numpy() / len(shares)
        held = share_to_logit(torch.from_numpy(shares).float())
        return self._finish(module, [(held, self.fold >= 0)], self._statistics(held))

    def _combine(self, name: str, results: list[Any]) -> "list[FittedMember]":
        finals = results[-1][0]
        found = []
        for i, module in enumerate(finals):
            parts = [
                (one[1][i], self.fold == number)
                for number, one in zip(self.folds, results, strict=False)
            ]
            held = torch.cat([part for part, _ in parts])
            # A row is its own nearest neighbour, and in the leaves of its trees.
            memorises = name in ("forest", "neighbours") or self.once
            logits = held if memorises else apply_member(module, self._inputs(name))
            found.append(self._finish(module, parts, self._statistics(logits)))
        return found

    def _statistics(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        std = logits.std(dim=0)
        # A class without labels has nearly constant logits, of which only rounding errors would be
        # enlarged.
        return logits.mean(dim=0), torch.where(std > 1e-3, std, 1.0)

    def _finish(
        self,
        module: nn.Module,
        parts: list[tuple[Tensor, np.ndarray]],
        statistics: tuple[Tensor, Tensor],
    ) -> FittedMember:
        scores = torch.zeros(len(self.fold), self.labels.shape[1])
        for logits, rows in parts:
            # The level of a fold's model depends on how many labels its rows happen to have: a
            # class with many in this fold has few in the others. Standardised, folds agree.
            mean, std = self._statistics(logits)
            scores[torch.from_numpy(rows)] = (logits - mean) / std
        return FittedMember(module, scores, *statistics)


def _fit_part(
    name: str,
    held: int | None,
    x: np.ndarray | WideRows | WideMatrix,
    labels: np.ndarray,
    fold: np.ndarray,
    seed: int,
    soft: np.ndarray | None,
    biased: bool,
    device: str,
    weights: np.ndarray | None,
    pairs: np.ndarray | None,
) -> tuple[list[nn.Module], list[Tensor]]:
    """Fit a member without the rows of one fold, and return it with the logits of those rows."""
    if isinstance(x, WideMatrix):
        x = _choose_columns(x, labels, fold != (-2 if held is None else held)).numpy()
    # A process of a pool gets arrays that cannot be written to, which torch warns of.
    features = x.to(device) if isinstance(x, WideRows) else torch.tensor(x, device=device)
    given = torch.tensor(labels, device=device)
    out = torch.from_numpy(fold == (-2 if held is None else held)).to(device)
    inside, inside_labels = features[~out], given[~out]
    trust, shares = (
        None if values is None else torch.tensor(values, device=device)[~out]
        for values in (weights, soft)
    )
    with limit_threads(inside.numel() * labels.shape[1] / _WORK_OF_STEP, features.device):
        modules = _fit_member(name, inside, inside_labels, seed, trust, shares, biased, pairs)
        return modules, [apply_member(module, features[out]) for module in modules]


def _choose_columns(x: WideMatrix, labels: np.ndarray, inside: np.ndarray) -> Tensor:
    """Return the columns that are most associated with the labels of some rows, prepared."""
    chosen = choose_dense(x, labels, inside)
    return prepare_features(np.asarray(chosen), chosen.one_scale)


def _stack(tables: Sequence[np.ndarray | None], device: torch.device) -> Tensor | None:
    """Return the tables of all parts as one tensor; None where a part has none."""
    given = [table for table in tables if table is not None]
    if not tables or len(given) < len(tables):
        return None
    return torch.from_numpy(np.stack(given)).float().to(device)


def _fit_member(
    name: str,
    inside: Any,
    inside_labels: Tensor,
    seed: int,
    weights: Tensor | None,
    soft: Tensor | None,
    biased: bool,
    pairs: np.ndarray | None,
) -> list[nn.Module]:
    """Return a member fitted to some rows; the linear one once per ridge."""
    if name in (LINEAR, DENSE):
        # The more rows, the less the prior matters.
        ridges = RIDGES if len(inside) <= MANY_ROWS else (RIDGE,)
        e = find_propensity(inside_labels) if biased else None
        found = fit_linear_path(inside, inside_labels, ridges, weights, e, soft)
        return [*found.values()]
    if name in ("forest", SMALL_FOREST):
        more: dict[str, Any] = {"weights": weights, "soft": soft, "pairs": pairs}
        trees = TREES if name == "forest" else TREES // 5
        return [fit_forest(inside, inside_labels, seed, trees=trees, **more)[0]]
    return [fit_neighbours(inside, inside_labels, seed, weights, soft, pairs)]


@torch.no_grad()
def apply_member(module: Any, x: Tensor | WideRows) -> Tensor:
    """Return the logits of all rows, computed in blocks on their device, on the CPU.

    The module stays on the CPU, where members are put together.
    """
    if not len(x):
        return torch.zeros(0)
    if isinstance(x, WideRows):
        return x.apply(module)
    module.to(x.device).eval()
    logits = torch.cat([module(part).float().cpu() for part in x.split(2048)])
    module.cpu()
    return logits
