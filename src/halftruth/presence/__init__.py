"""The model of labelling: how likely each class is present, estimated from incomplete labels.

    fit_probabilities    calibrated P(present | x), prevalences and labels per row, with intervals
    decide, fit_decisions    which classes to predict, by a rule such as "f1" or "precision=0.9"
    expect               precision, recall and predicted labels of decisions on new rows
    estimate_scores      precision, recall, F1 and mAP that complete labels would give
    plan_verification, score_verdicts    verify a few labels to know these scores better
    calibrate            probabilities of missing and of wrong labels, and how many there are
    measure_ranking      whether scores rank the shown labels: without it nothing is estimated
    find_preference      whether some classes are shown in preference to others

The solvers are in `solvers`, everything that makes an interval wider in `uncertainty`.
"""

import importlib
from typing import Any

# The public names of each module, imported on first use.
_MODULES = {
    "calibration": ("Calibration", "calibrate"),
    "decisions": (
        "Decisions", "Expected", "Rule", "decide", "expect", "fit_decisions", "parse_rule",
    ),
    "estimated_scores": (
        "EstimatedScores", "estimate_scores", "infer_range", "score_as_if_complete",
        "score_verified",
    ),
    "labelling_model": ("PresenceRange",),
    "probabilities": ("Probabilities", "fit_probabilities"),
    "ranking": ("NoRankingError", "Ranking", "measure_ranking", "question_order"),
    "propensity": ("LabelBias", "Preference", "choose_rows_to_complete", "find_preference"),
    "review_update": ("ReviewPosterior",),
    "uncertainty": ("Estimate",),
    "verification": ("VerificationPlan", "plan_verification", "score_verdicts"),
}  # fmt: skip
_NAMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"halftruth.presence.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'halftruth.presence' has no attribute {name!r}")
