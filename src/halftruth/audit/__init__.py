"""Find missing and wrong labels: ranked candidates, estimated counts, a review, a repaired file."""

from halftruth.extras import needs_extras

with needs_extras("halftruth.audit"):
    from halftruth.audit.candidates import (
        missing_labels,
        missing_mask,
        per_class,
        precision_table,
        rank_unknown,
        summary,
        wrong_labels,
    )
    from halftruth.presence.calibration import Calibration, calibrate
    from halftruth.presence.uncertainty import Estimate

__all__ = [
    "Calibration",
    "Estimate",
    "calibrate",
    "missing_labels",
    "missing_mask",
    "per_class",
    "precision_table",
    "rank_unknown",
    "summary",
    "wrong_labels",
]
