"""The model of labelling: how likely each class is present, estimated from incomplete labels.

    fit_probabilities    calibrated P(present | x), prevalences and labels per row, with intervals
    decide, fit_decisions    which classes to predict, by a rule such as "f1" or "precision=0.9"
    estimate_scores      precision, recall, F1 and mAP that complete labels would give
    plan_verification, score_verdicts    verify a few labels to know these scores better
    calibrate            probabilities of missing and of wrong labels, and how many there are
    find_preference      whether some classes are shown in preference to others

The solvers are in `solvers`, everything that makes an interval wider in `uncertainty`.
"""

import importlib
from typing import Any

# The module of each public name; imported on first use.
_NAMES = {
    "Calibration": "calibration",
    "Decisions": "decisions",
    "Estimate": "uncertainty",
    "EstimatedScores": "estimated_scores",
    "LabelBias": "propensity",
    "Preference": "propensity",
    "PresenceRange": "labelling_model",
    "Probabilities": "probabilities",
    "Rule": "decisions",
    "VerdictModel": "remaining",
    "VerificationPlan": "verification",
    "calibrate": "calibration",
    "choose_rows_to_complete": "propensity",
    "decide": "decisions",
    "estimate_scores": "estimated_scores",
    "find_preference": "propensity",
    "fit_decisions": "decisions",
    "fit_probabilities": "probabilities",
    "infer_range": "estimated_scores",
    "parse_rule": "decisions",
    "plan_verification": "verification",
    "score_as_if_complete": "estimated_scores",
    "score_verdicts": "verification",
    "score_verified": "estimated_scores",
}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"halftruth.presence.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'halftruth.presence' has no attribute {name!r}")
