"""The rows of an audit that look most like a given one."""

from __future__ import annotations

import numpy as np

from halftruth.audit.audit_folder import AuditFolder
from halftruth.audit.rows import Rows
from halftruth.presence.solvers import logit

# Wider features are projected to this many directions, which keeps the nearest rows near.
_DIMENSIONS = 64


class Neighbours:
    """Finds the nearest rows by cosine similarity of features, or of scores if there are none."""

    def __init__(self, audit: AuditFolder, rows: Rows) -> None:
        scored = audit.scored
        matrix = rows.feature_matrix
        if matrix is not None and scored["rows"].max(initial=-1) < len(matrix):
            self.by, values = "features", matrix[scored["rows"]]
        else:
            self.by, values = "scores", logit(scored["scores"])
        values = np.nan_to_num(np.asarray(values, dtype=np.float32))
        values = (values - values.mean(axis=0)) / (values.std(axis=0) + 1e-6)
        if values.shape[1] > _DIMENSIONS:
            random = np.random.default_rng(0)
            values = values @ random.normal(size=(values.shape[1], _DIMENSIONS)).astype(np.float32)
        self.points = values / (np.linalg.norm(values, axis=1, keepdims=True) + 1e-12)

    def find(self, place: int, count: int, among: np.ndarray) -> list[int]:
        """The places of the nearest other rows `among` (N,) some, the nearest first."""
        likeness = self.points @ self.points[place]
        places = np.flatnonzero(among & (np.arange(len(among)) != place))
        return [int(k) for k in places[np.argsort(-likeness[places], kind="stable")[:count]]]
