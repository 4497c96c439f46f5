"""What a configuration trains, the ensemble of auto or one model, and which rows it holds out."""

from typing import Any

from halftruth.labels import MANY_CLASSES
from halftruth.train.config import AUTO, Config
from halftruth.train.settings import DEFAULTS_ON_FEATURES

# Settings of a training by steps: with one of them, auto trains one model, not the ensemble.
_OF_ONE_MODEL = (
    "batch_size", "budget", "clip", "dropout", "ema", "epochs", "head", "head_lr", "hidden", "l1",
    "lr", "optimizer", "patience", "ridge", "schedule", "select", "warmup", "weight_decay",
)  # fmt: skip
# The share of validation rows of a model that is trained by epochs.
USUAL_VAL = 0.2
# The rows on which a model of many classes finds its probabilities: so many, within these shares.
_HELD_OUT, _LEAST_SHARE, _MOST_SHARE = 5_000, 0.02, 0.1


def uses_ensemble(config: Config, defaults: dict[str, Any] | None = None) -> bool:
    """Return whether auto fits the ensemble: on features, with no setting of a single model.

    `defaults`: those of the caller, where they differ from the defaults on features.
    """
    usual = vars(Config(**{**DEFAULTS_ON_FEATURES, "features": "x"})) | (defaults or {})
    same = all(getattr(config, name) == usual[name] for name in _OF_ONE_MODEL)
    on_matrix = config.on_features and not config.tunes_encoder
    return config.method == AUTO and on_matrix and same


def uses_ensemble_on_images(config: Config) -> bool:
    """Return whether auto fits the ensemble to frozen features of images (`tune` head)."""
    usual = vars(Config(images=["x"]))
    same = all(getattr(config, name) == usual[name] for name in (*_OF_ONE_MODEL, "head_epochs"))
    alone = bool(config.images) and not config.on_features
    return config.method == AUTO and alone and config.tune == "head" and same


def needs_validation(config: Config) -> bool:
    """Return whether a model is trained by epochs: its validation rows choose one of them.

    They also give its probabilities and decisions. An ensemble has those of its own folds.
    """
    return not (uses_ensemble(config) or uses_ensemble_on_images(config))


def fits_many(config: Config, labels: Any) -> bool:
    """Return whether auto fits the model of many classes instead of the ensemble."""
    return uses_ensemble(config) and len(labels.classes) > MANY_CLASSES and labels.soft is None


def choose_val(config: Config, labels: Any) -> float:
    """Return the share of rows that is held out where no split column names validation rows."""
    if config.val is not None:
        return config.val
    if needs_validation(config):
        return USUAL_VAL
    return share_of_many(len(labels)) if fits_many(config, labels) else 0.0


def share_of_many(rows: int) -> float:
    """Return the share of rows that a model of many classes is not fitted to."""
    return min(max(_HELD_OUT / max(rows, 1), _LEAST_SHARE), _MOST_SHARE)
