"""The ensemble on features: those of a table, of a text, or of the backbone of images."""

from typing import Any

import numpy as np
import torch

from halftruth.models import Classifier
from halftruth.models.ensemble import build_ensemble, put_on_backbone
from halftruth.train.config import ENSEMBLE
from halftruth.train.ensemble.fit_ensemble import FAST_MEMBERS, fit_ensemble
from halftruth.train.ensemble.kept_members import KeptMembers
from halftruth.train.inputs.batches import Features
from halftruth.train.plans.plan import FittedModel, Plan, Work
from halftruth.train.run_folder import digest_features, identify
from halftruth.train.scored_rows import HELD_OUT, ScoredRows
from halftruth.train.settings import FAST


class EnsemblePlan(Plan):
    """Fit the ensemble of `auto` at once; it has no epochs, and needs no validation rows."""

    name = ENSEMBLE

    def fit(self, work: Work) -> FittedModel:
        inputs, matrix, network = work.inputs, work.task.features, None
        if not work.config.on_features:
            network = work.model
            inputs = Features(work.extract_features(network, inputs).float())
            matrix = inputs.features.cpu().numpy()
        best = work.fit_at_once(self.name, lambda: fit_ensemble_to_run(work, matrix, network))
        model = build_ensemble(matrix.shape[1], len(work.task.classes), best["layout"])
        # On images, the checkpoint also has the backbone.
        model.load_state_dict({k: v for k, v in best["model"].items() if k.startswith("head.")})
        return FittedModel(model, inputs, ScoredRows.from_checkpoint(best, work.task.labels), best)


def fit_ensemble_to_run(
    work: Work, matrix: Any, network: Classifier | None = None
) -> tuple[Classifier, dict[str, object]]:
    """Fit the ensemble to the training rows; return the model and what its checkpoint has beside.

    `matrix`: the features of all rows. `network`: whose features of images these are; the model is
    then that of images.
    """
    task, log = work.task, work.logger.log
    log("auto: fitting the members of an ensemble (docs/auto.md)")
    rows, labels = task.splits.train, task.labels
    # All rows are not copied: they may be mapped from a file.
    own = matrix if len(rows) == len(matrix) else matrix[rows]
    # The estimates of a network are made before its run begins.
    identity = work.identity or identify(work.config, task)
    fitted = fit_ensemble(
        own, labels.values[rows],
        members=FAST_MEMBERS if work.config.quality == FAST else None,
        seed=work.config.seed, device=work.accelerator.device, log=log,
        groups=None if task.groups is None else task.groups[rows],
        one_scale=None if task.encoder is None else task.encoder.one_scale,
        weights=None if labels.weights is None else labels.weights[rows],
        soft=None if labels.soft is None else labels.soft[rows],
        kept=KeptMembers(
            work.folder, identity, identity["features"] or digest_features(matrix), work.main
        ),
    )  # fmt: skip
    log("auto: " + "\n      ".join(fitted.describe()))
    more: dict[str, object] = {
        "layout": fitted.layout,
        "members": [vars(one) for one in fitted.table],
        HELD_OUT: {
            "rows": torch.from_numpy(np.asarray(rows[fitted.rows])),
            "logits": torch.from_numpy(fitted.logits).float(),
        },
    }
    if fitted.bias is not None:
        more["label_bias"] = vars(fitted.bias)
    model = fitted.model if network is None else put_on_backbone(network, fitted.model)
    return model, more
