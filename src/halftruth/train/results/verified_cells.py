"""Cells of a run that people verify, and the scores that follow from their verdicts.

RUN/verification is an audit folder whose candidates are the cells of a plan (row and class, drawn
with known probabilities), in the order of the plan. plan.json has the probabilities.
"""

import hashlib
import json
from functools import cached_property
from typing import Any

import numpy as np

from halftruth.data import DataError
from halftruth.data.review_log import ReviewLog
from halftruth.data.verdicts import DECISIONS
from halftruth.labels import ABSENT, PRESENT, UNKNOWN
from halftruth.presence.decisions import Decisions
from halftruth.presence.estimated_scores import infer_range
from halftruth.presence.labelling_model import PresenceRange
from halftruth.presence.probabilities import Probabilities
from halftruth.presence.solvers import sigmoid
from halftruth.presence.verification import (
    SCORES,
    VerificationPlan,
    plan_verification,
    score_verdicts,
)
from halftruth.train.auto.label_bias import choose_propensities
from halftruth.train.results.run_result import estimate, list_estimates
from halftruth.train.results.trained_run import TrainedRun
from halftruth.train.run_folder import write_text

VERIFICATION, PLAN = "verification", "plan.json"
_CODES = {"accept": PRESENT, "reject": ABSENT}
# With fewer answers the estimate of the model alone is shown.
_LEAST_ANSWERS = 10

Estimates = dict[str, list[float]]


class RunScores:
    """Estimates the scores of a run on the rows it was not fitted on, before and after verdicts."""

    def __init__(self, run: TrainedRun, decisions: Decisions | None = None) -> None:
        held, self._run = run.held_out, run
        offset, slope = run.curves
        self.labels: np.ndarray = held.labels
        self.probabilities = sigmoid(offset + slope * held.logits)
        self.decisions = run.decisions if decisions is None else decisions
        self.folder = run.folder / VERIFICATION
        # A plan belongs to these rows, labels and scores.
        content = (held.rows, held.labels, held.logits)
        parts = [np.ascontiguousarray(part).tobytes() for part in content]
        self.digest = hashlib.sha256(b"".join(parts)).hexdigest()

    @cached_property
    def present(self) -> PresenceRange:
        """P(present) of every cell, before any verdict: by the run's own model of labelling."""
        saved = (self._run.result or {}).get("probabilities", {})
        # Runs of earlier versions did not keep the assumptions.
        if not saved.get("assumptions"):
            return infer_range(self.labels, self.probabilities)
        facts = (self._run.result or {}).get("label_bias", {})
        chosen = choose_propensities(facts, self.labels)["propensity"]
        return Probabilities.from_dict(saved).infer(
            self.labels, self._run.held_out.logits, propensity=chosen
        )

    @cached_property
    def before(self) -> Estimates:
        """The estimates without verdicts."""
        scored = self.probabilities, self.labels
        found = estimate(*scored, self.decisions, self.present if self._can_infer else None)
        return list_estimates(found)

    @property
    def _can_infer(self) -> bool:
        return bool((self.labels == UNKNOWN).any() and (self.labels == PRESENT).any())

    @cached_property
    def plan(self) -> VerificationPlan | None:
        """The plan in the folder; None if there is none."""
        path = self.folder / PLAN
        if not path.exists():
            return None
        try:
            saved = json.loads(path.read_text(encoding="utf-8"))
            plan, digest = VerificationPlan.from_dict(saved["plan"]), saved["digest"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: is not a plan of cells to verify ({error})") from None
        if digest != self.digest:
            raise DataError(
                f"{path}: was made for other rows, labels or scores than those of the run now; "
                f"move {self.folder} away to verify cells of the new run"
            )
        return plan

    def make_plan(self, cells: int, metric: str, seed: int) -> VerificationPlan:
        """Draw the cells to verify."""
        if not (self.labels == UNKNOWN).any():
            raise DataError(
                f"{self.folder.parent}: the labels of the rows that the run was not fitted on are "
                "complete, so its scores are measured and there is nothing to verify"
            )
        if not (self.labels == PRESENT).any():
            raise DataError(
                f"{self.folder.parent}: no label of the rows that the run was not fitted on is "
                "present, so no score can be estimated"
            )
        return plan_verification(
            self.probabilities, self.labels, self.decisions(self.probabilities), self.present,
            cells=cells, metric=metric, seed=seed,
        )  # fmt: skip

    def write_plan(self, plan: VerificationPlan) -> None:
        """Write the plan; a folder with this file is complete."""
        saved = {"plan": plan.to_dict(), "digest": self.digest}
        write_text(self.folder / PLAN, json.dumps(saved))

    def read_answers(self) -> np.ndarray:
        """Verdicts on the cells of the plan: +1 present, -1 absent, 0 none."""
        assert self.plan is not None
        log = ReviewLog(self.folder / DECISIONS, len(self.plan), write=False)
        return self.code_answers(log.verdicts)

    def code_answers(self, verdicts: dict[int, str]) -> np.ndarray:
        """The verdicts of a review log as +1, -1 and 0, one per cell."""
        assert self.plan is not None
        answers = np.zeros(len(self.plan), dtype=np.int8)
        for cell, verdict in dict(verdicts).items():
            answers[cell] = _CODES.get(verdict, 0)
        return answers

    def estimate(self, answers: np.ndarray | None = None) -> Estimates:
        """mAP, CF1, OF1, OP and OR of new rows, each as value, low and high."""
        if answers is None or np.count_nonzero(answers) < _LEAST_ANSWERS:
            return self.before
        assert self.plan is not None
        found = score_verdicts(
            self.plan, answers, self.probabilities, self.labels,
            self.decisions(self.probabilities), self.present,
        )  # fmt: skip
        scores: dict[str, Any] = {name: found[name].combined for name in SCORES}
        return {name: [one.value, one.low, one.high] for name, one in scores.items()}


def estimate_run(run: TrainedRun, decisions: Decisions | None = None) -> tuple[Estimates, int]:
    """Estimated scores of a run for new rows, and the number of verified cells that they use."""
    scores = RunScores(run, decisions)
    if scores.plan is None:
        return scores.before, 0
    answers = scores.read_answers()
    return scores.estimate(answers), int(np.count_nonzero(answers))
