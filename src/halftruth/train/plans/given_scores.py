"""The scores of another model: nothing is trained, and everything else is as in any run."""

import numpy as np
import torch

from halftruth.models import Classifier
from halftruth.models.given_scores import GIVEN, build_given_scores
from halftruth.train.inputs.batches import Features
from halftruth.train.plans.plan import FittedModel, Plan, Work
from halftruth.train.scored_rows import HELD_OUT, ScoredRows


class GivenScoresPlan(Plan):
    """Take the scores as they are: the rows are ones that their model was not trained on."""

    name = GIVEN

    def fit(self, work: Work) -> FittedModel:
        best = work.fit_at_once(self.name, lambda: _take_scores(work))
        model = build_given_scores(len(work.task.classes), **best["layout"][GIVEN])
        rows = ScoredRows.from_checkpoint(best, work.task.labels)
        assert work.task.features is not None
        return FittedModel(model, Features(work.task.features), rows, best)


def _take_scores(work: Work) -> tuple[Classifier, dict[str, object]]:
    """Return the model, and what its checkpoint has beside."""
    scores, rows = work.task.features, work.task.splits.train
    assert scores is not None
    are_logits = bool(((scores < 0) | (scores > 1)).any())
    kind = "logits, since some are outside of 0..1" if are_logits else "probabilities"
    work.logger.log(f"{work.config.features[0]}: the scores are taken for {kind}")
    model = build_given_scores(len(work.task.classes), are_logits=are_logits)
    logits = model(torch.as_tensor(np.asarray(scores)[rows], dtype=torch.float32))
    held = {"rows": torch.from_numpy(rows), "logits": logits}
    return model, {"layout": {GIVEN: model.head.layout}, HELD_OUT: held}
