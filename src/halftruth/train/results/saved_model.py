"""The model of a checkpoint: built as in training, with the saved weights."""

from pathlib import Path
from typing import Any

from torch import Tensor

from halftruth.models import Classifier, build_image_model
from halftruth.models.averaged import build_averaged
from halftruth.models.ensemble import build_ensemble, put_on_backbone
from halftruth.models.given_scores import GIVEN, build_given_scores
from halftruth.models.language_model import build_text_model
from halftruth.models.many_classes import build_many_classes
from halftruth.train.build_models import build_head
from halftruth.train.config import MANY_CLASSES_METHOD, Config
from halftruth.train.inputs.feature_encoder import FeatureEncoder
from halftruth.train.run_folder import ENSEMBLE, CheckpointError


def build_saved_model(
    config: Config, saved: dict[str, Any], encoder: FeatureEncoder | None
) -> Classifier:
    """Return the model of a checkpoint, still without its weights."""
    layout, classes = saved.get("layout"), len(saved["identity"]["classes"])
    # The number of features per row; None for a run on images.
    inputs: int | None = saved["identity"]["inputs"]
    if layout is not None and GIVEN in layout:
        return build_given_scores(classes, **layout[GIVEN])
    if saved["stage"] == MANY_CLASSES_METHOD and layout and inputs is not None:
        return build_many_classes(inputs, classes, layout)
    if layout is not None and inputs is not None:
        return build_ensemble(inputs, classes, layout)
    if config.tunes_encoder and encoder is not None:
        return build_text_model(encoder.text, classes, head=config.head, pretrained=False)
    if inputs is not None:
        return build_head(config, inputs, classes)
    model = build_image_model(
        config.backbone, classes, weights="none", image_size=config.image_size, head=config.head
    )
    if layout is None:
        return model
    if saved["stage"] == ENSEMBLE:
        return put_on_backbone(model, build_ensemble(model.feature_dim, classes, layout))
    return build_averaged(model, layout)


def load_weights(model: Classifier, weights: dict[str, Tensor], path: Path) -> None:
    """Load the weights of the checkpoint `path`; weights that do not fit or are NaN are refused."""
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise CheckpointError(f"{path} and config.yaml do not belong together: {error}") from error
    state = model.state_dict()
    broken = [k for k, t in state.items() if t.is_floating_point() and not t.isfinite().all()]
    if broken:
        raise CheckpointError(
            f"{path}: weights are not finite in {', '.join(broken[:3])}; "
            "the file is damaged or training diverged: train again"
        )
