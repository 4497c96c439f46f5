"""The three ways in which the estimator fits: an ensemble, one model, a model of many classes."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from halftruth.data.splits import Splits, split_rows
from halftruth.labels import SparseLabels
from halftruth.models import Classifier
from halftruth.presence.decisions import Decisions
from halftruth.presence.probabilities import Probabilities
from halftruth.presence.propensity import LabelBias
from halftruth.train.auto.plan import share_of_many
from halftruth.train.auto.resolve import hold_out_rows
from halftruth.train.config import Config
from halftruth.train.devices import OneProcess
from halftruth.train.ensemble.fit_ensemble import FAST_MEMBERS, FEW_ROWS, fit_ensemble
from halftruth.train.fit_head import FittedHead, HeadData, fit_head
from halftruth.train.inputs.batches import apply_in_blocks, fit_standardization, standardize_inputs
from halftruth.train.many_classes.fit_many import fit_many_classes
from halftruth.train.many_classes.level import fit_shared_decisions
from halftruth.train.settings import FAST

# Training seeds the random state of torch; there is one per process.
_training_lock = threading.Lock()
_NO_ROWS = np.arange(0)


@dataclass(frozen=True)
class TrainingData:
    """Features (N, D), labels (N, K), and per row: group and weights (N, 1 or K), if there are."""

    X: Any
    # An array (N, K), or `SparseLabels` with many classes.
    y: Any
    groups: np.ndarray | None = None
    weights: np.ndarray | None = None

    def select(self, rows: np.ndarray) -> "TrainingData":
        """Select some rows; weights that are all equal say nothing and are left out."""
        if self.weights is None:
            return self
        y = self.y.select(rows) if isinstance(self.y, SparseLabels) else self.y[rows]
        groups = None if self.groups is None else self.groups[rows]
        weights = self.weights[rows]
        return TrainingData(self.X[rows], y, groups, weights if np.ptp(weights) else None)


@dataclass(frozen=True)
class Fitted:
    """A fitted model, and rows with logits of models that were not trained on them."""

    model: Classifier
    rows: np.ndarray = field(repr=False)
    logits: np.ndarray = field(repr=False)
    reasons: list[str] = field(default_factory=list)
    label_bias: LabelBias | None = None
    epochs: int = 1
    best_epoch: int = 1


@contextmanager
def keep_random_state() -> Iterator[None]:
    """Leave the random state of torch as it was, and let no other thread train meanwhile."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with _training_lock, torch.random.fork_rng(devices):
        yield


# ---------------------------------------------------------------------- ensemble, many classes


def fit_members(
    data: TrainingData, config: Config, members: Sequence[str] | None, log: Callable[[str], None]
) -> Fitted:
    """Fit the ensemble."""
    device = OneProcess(config.device).device
    if members is None and config.quality == FAST:
        members = FAST_MEMBERS
    with keep_random_state():
        fitted = fit_ensemble(
            data.X, data.y, seed=config.seed, groups=data.groups, members=members, device=device,
            weights=data.weights, log=log,
        )  # fmt: skip
    model = fitted.model.cpu().double()
    return Fitted(model, fitted.rows, fitted.logits, fitted.describe(), fitted.bias)


def fit_sparse_labels(
    data: TrainingData, config: Config, log: Callable[[str], None]
) -> tuple[Fitted, Probabilities, Decisions]:
    """Fit the model of many classes to all rows but a few, which give the probabilities."""
    reasons: list[str] = []

    def keep(text: str) -> None:
        reasons.append(text)
        log(text)

    share = share_of_many(len(data.y))
    train, held = split_rows(len(data.y), val=share, seed=config.seed, groups=data.groups)
    with keep_random_state():
        model = fit_many_classes(
            data.X, data.y, train, held, seed=config.seed, weights=data.weights, log=keep
        )
    parts = Splits(train, held, _NO_ROWS)
    scored, probabilities, decisions = fit_shared_decisions(
        model, data.X, data.y, parts, config, keep
    )
    return Fitted(model, scored.rows, scored.logits, reasons), probabilities, decisions


# ---------------------------------------------------------------------- one model


def fit_one_model(data: TrainingData, config: Config, val: float) -> Fitted:
    """Train one model.

    The rows with out-of-sample logits are the held-out ones (`val`). Without these, models trained
    on parts of the rows score the other rows; few rows are scored by the model itself.
    """
    rows, held = np.arange(len(data.y)), _NO_ROWS
    if val:
        rows, held = split_rows(len(rows), val=val, seed=config.seed, groups=data.groups)
    # Standardised once before training, in double precision: float32 cannot hold the digits of
    # a column such as a date in seconds.
    scale = fit_standardization(data.X[rows] if val else data.X)
    given = HeadData(
        standardize_inputs(data.X, scale), data.X.shape[1], torch.from_numpy(data.y), data.weights
    )

    def fit(train: np.ndarray) -> FittedHead:
        with keep_random_state():
            fitted = fit_head(config, given, train, held)
        fitted.model.cpu().double().requires_grad_(False)
        fitted.model.backbone[0] = scale  # type: ignore[operator]
        return fitted

    parts = [] if val or len(rows) < FEW_ROWS else hold_out_rows(rows, config.seed, data.groups)
    standard = [_standardize(_score(fit(np.setdiff1d(rows, p)).model, data.X[p]))[0] for p in parts]
    fitted = fit(rows)
    scored = held if val else rows
    logits = _score(fitted.model, data.X[scored])
    if parts:
        # Models of the parts differ in level from the final one; the order of rows is what counts.
        _, mean, std = _standardize(logits)
        scored, logits = np.concatenate(parts), np.concatenate(standard) * std + mean
    return Fitted(fitted.model, scored, logits, epochs=fitted.epochs, best_epoch=fitted.best_epoch)


def _score(model: Classifier, X: object) -> np.ndarray:
    return apply_in_blocks(model, X).numpy()


def _standardize(logits: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return logits with mean 0 and deviation 1 per class, and both numbers."""
    mean, std = logits.mean(axis=0), logits.std(axis=0)
    std = np.where(std > 1e-9, std, 1.0)
    return (logits - mean) / std, mean, std
