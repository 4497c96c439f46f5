"""Which rows a plan holds out for validation."""

from halftruth.labels import MANY_CLASSES, LabelMatrix
from halftruth.train.config import AUTO, MANY_CLASSES_METHOD, Config

# The share of validation rows of a model that is trained by epochs. More rows than `_HELD_OUT` cost
# labels and time: 82,081 rows of COCO features, em, have 57.3 test mAP with a fifth for validation
# and 57.6 with 5,000 rows.
USUAL_VAL, _HELD_OUT = 0.2, 5_000
# The shares of a model of many classes, which finds its probabilities on these rows.
_LEAST_SHARE, _MOST_SHARE = 0.02, 0.1


def fits_many(config: Config, labels: LabelMatrix) -> bool:
    """Return whether the model of many classes is fitted instead of the ensemble."""
    if config.method == AUTO and config.on_features and config.fits_ensemble:
        return len(labels.classes) > MANY_CLASSES and labels.soft is None
    return config.method == MANY_CLASSES_METHOD


def choose_val(config: Config, labels: LabelMatrix) -> float:
    """Return the share of rows that is held out where no split column names validation rows."""
    if config.val is not None:
        return config.val
    # Its validation rows choose the epoch, and give probabilities and decisions; an ensemble has
    # those of its own folds.
    if not config.fits_at_once:
        return min(USUAL_VAL, _HELD_OUT / max(len(labels), 1))
    return share_of_many(len(labels)) if fits_many(config, labels) else 0.0


def share_of_many(rows: int) -> float:
    """Return the share of rows that a model of many classes is not fitted to."""
    return min(max(_HELD_OUT / max(rows, 1), _LEAST_SHARE), _MOST_SHARE)
