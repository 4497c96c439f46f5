"""The model of many classes in Python: features and sparse labels in, sparse predictions out."""

from typing import Any

import numpy as np
import torch

from halftruth.data.splits import split_rows
from halftruth.labels import SparseLabels
from halftruth.presence.decisions import Decisions
from halftruth.train.auto.plan import share_of_many
from halftruth.train.many_classes.fit_many import FittedMany, Log, fit_many_classes
from halftruth.train.many_classes.many_run import (
    ManyScores,
    choose_classes,
    decide_many,
    measure_average_precision,
    pool_probabilities,
)
from halftruth.train.many_classes.missing_labels import score_blocks, set_labels_per_row


class ManyClassModel:
    """The fitted model with its decisions; nothing has a dense matrix of all rows and classes."""

    def __init__(self, fitted: FittedMany, decisions: Decisions) -> None:
        self.fitted, self.decisions = fitted, decisions

    @classmethod
    def fit(
        cls,
        features: Any,
        labels: SparseLabels,
        *,
        rule: str = "f1",
        labels_per_row: float | None = None,
        weights: np.ndarray | None = None,
        groups: np.ndarray | None = None,
        seed: int = 0,
        log: Log = lambda text: None,
    ) -> "ManyClassModel":
        """Fit the model to all rows but a few, on which probabilities and decisions are fitted."""
        share = share_of_many(len(labels))
        train, held = split_rows(len(labels), val=share, seed=seed, groups=groups)
        fitted = fit_many_classes(
            features, labels, train, held, seed=seed, weights=weights, log=log
        )
        set_labels_per_row(fitted.head, features, labels, held, labels_per_row, log)
        pooled = pool_probabilities(fitted.head, features, held)
        return cls(fitted, decide_many(pooled, labels.select(train).count_per_class(), rule))

    def predict_proba(self, features: Any) -> np.ndarray:
        """Return the dense probabilities; refused without enough memory."""
        names = [""] * features.shape[0]
        return ManyScores(names, features, self.fitted.head).probabilities

    def predict(self, features: Any) -> Any:
        """Return the predicted labels as a scipy CSR matrix of 0 and 1."""
        from scipy.sparse import csr_matrix

        rows, columns, shape = [], [], (features.shape[0], self.fitted.head.num_classes)
        for some, p in score_blocks(self.fitted.head, features, np.arange(shape[0])):
            row, column = torch.nonzero(choose_classes(p, self.decisions), as_tuple=True)
            rows.append(some[row.numpy()])
            columns.append(column.numpy())
        found = np.concatenate(rows), np.concatenate(columns)
        return csr_matrix((np.ones(len(found[0]), dtype=np.int8), found), shape)

    def score(self, features: Any, labels: SparseLabels) -> float:
        """Return the mean average precision, by blocks of classes."""
        rows = np.arange(len(labels))
        ap = measure_average_precision(self.fitted.head, features, rows, labels)
        return float(np.nanmean(ap)) if np.isfinite(ap).any() else float("nan")
