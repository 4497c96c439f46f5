"""Labels: the coding of the library, checks, conversions, class names and hiding.

+1 PRESENT: annotated as present. 0 UNKNOWN: not annotated. -1 ABSENT: verified as absent.
Labels are (N, K) int8: N rows (images), K classes. Other codings are converted by name.
"""

from halftruth.labels.biased_hiding import (
    centre_weights,
    class_order_weights,
    frequency_weights,
    keep_by_weight,
    unused_class_weights,
)
from halftruth.labels.checks import check_classes, unknown_class
from halftruth.labels.class_filters import (
    class_filter,
    co_occurrence,
    correlated_classes,
    find_unannotated,
)
from halftruth.labels.codes import (
    ABSENT,
    PRESENT,
    UNKNOWN,
    as_array,
    check,
    convert,
    find_complete_rows,
    from_chexpert,
    from_multi_hot,
    from_names,
    from_zero_absent,
)
from halftruth.labels.hiding import (
    drop_positives,
    keep_known,
    single_positive,
    single_positive_published,
    subsample_negatives,
)
from halftruth.labels.hierarchy import Hierarchy
from halftruth.labels.matrix import LabelMatrix
from halftruth.labels.soft_labels import check_soft, check_weights, count_votes, harden
from halftruth.labels.sparse import MANY_CLASSES, SparseLabels

__all__ = [
    "ABSENT",
    "MANY_CLASSES",
    "PRESENT",
    "UNKNOWN",
    "Hierarchy",
    "LabelMatrix",
    "SparseLabels",
    "as_array",
    "centre_weights",
    "check",
    "check_classes",
    "check_soft",
    "check_weights",
    "class_filter",
    "class_order_weights",
    "co_occurrence",
    "convert",
    "correlated_classes",
    "count_votes",
    "drop_positives",
    "find_complete_rows",
    "find_unannotated",
    "frequency_weights",
    "from_chexpert",
    "from_multi_hot",
    "from_names",
    "from_zero_absent",
    "harden",
    "keep_by_weight",
    "keep_known",
    "single_positive",
    "single_positive_published",
    "subsample_negatives",
    "unknown_class",
    "unused_class_weights",
]
