"""`halftruth review RUN --purpose evaluate`: verify cells of a run to know its scores.

The cells are drawn with known probabilities (`presence.verification`) and shown on the review page
in random order, without the scores of the model: whoever knows them tends to agree.
"""

from __future__ import annotations

import threading

import numpy as np
import pandas as pd

from halftruth.audit.audit_folder import (
    AuditFolder,
    describe_counts,
    describe_source,
    open_audit,
    write_candidates,
    write_folder,
)
from halftruth.audit.candidates import ScoredLabels
from halftruth.audit.review_queue import Queue
from halftruth.data import DataError
from halftruth.labels import UNKNOWN
from halftruth.presence.uncertainty import Estimate
from halftruth.presence.verification import METRICS
from halftruth.train.results.trained_run import TrainedRun
from halftruth.train.results.verified_cells import Estimates, RunScores
from halftruth.train.task import reading_options

# A click waits this long for the new estimate; later the page asks for it.
_PATIENCE = 0.15


def open_verification(
    run: TrainedRun, *, cells: int | None = None, metric: str | None = None, seed: int = 0
) -> VerificationQueue:
    """Open the verification in a run's folder, and make it if there is none.

    `cells` (200) and `metric` ("all") are those of a new plan; another plan than the one in the
    folder is refused, since its cells were drawn with other probabilities.
    """
    scores = RunScores(run)
    if scores.plan is None:
        wanted = "all" if metric is None else metric
        if wanted not in (*METRICS, "all"):
            raise DataError(f"metric: expected {', '.join(METRICS)} or all, got {metric!r}")
        count = 200 if cells is None else cells
        if count < 20:
            raise DataError(f"cells: expected at least 20, got {count}")
        scores.plan = scores.make_plan(count, wanted, seed)
        _write_folder(run, scores)
    elif (cells not in (None, len(scores.plan))) or metric not in (None, scores.plan.metric):
        raise DataError(
            f"{scores.folder}: has a plan of {len(scores.plan)} cells for {scores.plan.metric}; "
            "leave out --cells and --metric to go on, or move the folder away to start again"
        )
    return VerificationQueue(open_audit(scores.folder), scores)


def _write_folder(run: TrainedRun, scores: RunScores) -> None:
    """Write the cells of the plan as the candidates of an audit."""
    held, plan, config = run.held_out, scores.plan, run.config
    assert plan is not None
    path = scores.folder
    path.mkdir(parents=True, exist_ok=True)
    rows, columns = np.array(plan.rows), np.array(plan.columns)
    table = pd.DataFrame(
        {
            "kind": "missing",
            "row": held.rows[rows],
            "item": held.items[rows],
            "class": np.array(run.classes, dtype=object)[columns],
            # The page must not show the model's opinion; it is in scores.npz.
            "score": 0.5,
            "probability": 0.5,
        }
    )
    write_candidates(path, table)
    expected = np.where(held.labels == UNKNOWN, scores.present.middle, 0.0).sum(axis=0)
    # Wide intervals: how well these scores rank is what the answers will show.
    total, *missing = (Estimate(float(x), 0.0, 2 * float(x)) for x in (expected.sum(), *expected))
    info = {
        **describe_source(config, reading_options(config), f"run {run.folder.name}", []),
        "purpose": "evaluate",
        "selection": scores.present.selection,
        **describe_counts(total, missing, Estimate(0.0, 0.0, 0.0), [0.0] * len(expected)),
    }
    data = ScoredLabels(held.labels, scores.probabilities, run.classes, held.items, held.rows)
    write_folder(path, data, info)
    scores.write_plan(plan)


class VerificationQueue(Queue):
    """Cells in the order of their plan, without the model's opinion; estimates follow answers."""

    purpose = "evaluate"

    def __init__(self, audit: AuditFolder, scores: RunScores) -> None:
        super().__init__(audit)
        self.scores = scores
        self._estimates: tuple[int, Estimates] = (0, scores.before)
        self._ready = threading.Event()
        self._worker: threading.Thread | None = None
        self._start_worker()

    @property
    def _rank(self) -> np.ndarray:
        return np.arange(len(self.known.row))

    def entry(self, i: int, who: str = "") -> dict[str, object]:
        """One cell as the page shows it: no score, no probability."""
        return {**super().entry(i, who), "score": None, "probability": None}

    def similar(self, i: int, count: int = 4) -> dict[str, object]:
        """No similar rows: they would show what the model predicts."""
        return {"by": "", "labelled": [], "similar": []}

    def progress(self, who: str = "") -> dict[str, object]:
        """Counts of answers, and the scores as far as they are computed."""
        self._start_worker()
        self._ready.wait(_PATIENCE)
        version, estimates = self._estimates
        return {
            **super().progress(who),
            "estimates": estimates,
            "before": self.scores.before,
            "pending": version != self.decisions.version,
        }

    def estimate(self) -> tuple[Estimates, int]:
        """The scores after all answers, and the number of answers."""
        answers = self.scores.code_answers(self.decisions.verdicts)
        return self.scores.estimate(answers), int(np.count_nonzero(answers))

    def _start_worker(self) -> None:
        """Compute the scores in another thread, so that no click waits for large data."""
        with self._lock:
            if self._estimates[0] == self.decisions.version or self._worker is not None:
                return
            self._ready.clear()
            self._worker = threading.Thread(target=self._work, daemon=True)
            self._worker.start()

    def _work(self) -> None:
        while True:
            version = self.decisions.version
            found, _ = self.estimate()
            with self._lock:
                self._estimates = version, found
                if version == self.decisions.version:
                    self._worker = None
                    self._ready.set()
                    return
