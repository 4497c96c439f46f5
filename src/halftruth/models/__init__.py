"""Models: timm backbones or plain features, heads, averaged weights, parameter groups."""

from halftruth.extras import needs_extras

with needs_extras("halftruth.models"):
    from halftruth.models.classifier import (
        Classifier,
        apply_frozen,
        build_feature_model,
        build_image_model,
        set_standardization,
        transfer_head,
    )
    from halftruth.models.ema import EMA
    from halftruth.models.ensemble import EnsembleHead
    from halftruth.models.heads import LabelQueryHead, VariationalHead, create_head
    from halftruth.models.parameter_groups import (
        freeze_backbone,
        freeze_batchnorm,
        parameter_groups,
        unfreeze,
    )
    from halftruth.models.timm_support import import_timm
    from halftruth.models.weights import ModelError

__all__ = [
    "EMA",
    "Classifier",
    "EnsembleHead",
    "LabelQueryHead",
    "ModelError",
    "VariationalHead",
    "apply_frozen",
    "build_feature_model",
    "build_image_model",
    "create_head",
    "freeze_backbone",
    "freeze_batchnorm",
    "import_timm",
    "parameter_groups",
    "set_standardization",
    "transfer_head",
    "unfreeze",
]
