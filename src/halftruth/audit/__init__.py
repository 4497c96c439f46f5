"""Find what labels miss: ranked candidates, how many there are, a review, a repaired file."""

from halftruth.audit.candidates import (
    missing_labels,
    missing_mask,
    per_class,
    precision_cuts,
    ranked,
    summary,
    wrong_labels,
)
from halftruth.presence.calibration import Calibration, Count, calibrate

__all__ = [
    "Calibration",
    "Count",
    "calibrate",
    "missing_labels",
    "missing_mask",
    "per_class",
    "precision_cuts",
    "ranked",
    "summary",
    "wrong_labels",
]
