"""Thousands of classes: labels stay sparse, and everything is computed by blocks."""

from typing import Any

import pandas as pd

from halftruth.labels import ABSENT, UNKNOWN
from halftruth.metrics import propensities
from halftruth.models import Classifier
from halftruth.models.many_classes import build_many_classes
from halftruth.train.config import MANY_CLASSES_METHOD
from halftruth.train.inputs.batches import make_inputs
from halftruth.train.many_classes.fit_many import draw, fit_many_classes
from halftruth.train.many_classes.level import estimate_frequent, fit_shared_decisions
from halftruth.train.many_classes.measure import measure_by_blocks
from halftruth.train.memory_use import describe_memory
from halftruth.train.plans.plan import FittedModel, Plan, Work
from halftruth.train.results.output_tables import to_csv_text
from halftruth.train.results.run_result import (
    ESTIMATED,
    VERIFIED,
    Result,
    list_estimates,
    make_result,
)
from halftruth.train.run_folder import OUT_OF_SAMPLE
from halftruth.train.scored_rows import ScoredRows

# Said at the start of a run, since nothing may be left out silently.
LEFT_OUT = (
    "one threshold and one curve of probabilities for all classes; left out: report.html, scores "
    "of rare classes estimated for complete labels"
)
# More labels are not measured at the end of training, but a random part of the rows.
_MEASURED_CELLS = 300_000_000


class ManyClassesPlan(Plan):
    """A linear layer and the labels of similar rows, for more than 1,000 classes."""

    name = MANY_CLASSES_METHOD

    def fit(self, work: Work) -> FittedModel:
        task, log = work.task, work.logger.log
        log(f"{len(task.classes):,} classes: labels stay sparse; {LEFT_OUT}")
        if line := describe_memory(work.config, task):
            log(line)
        best = work.fit_at_once(self.name, lambda: fit_to_run(work))
        model = build_many_classes(task.features.shape[1], len(task.classes), best["layout"])
        model.load_state_dict(best["model"])
        model.eval().requires_grad_(False)
        return FittedModel(model, make_inputs(task.features), None, best)

    def evaluate(self, work: Work, fitted: FittedModel) -> Result:
        """Return the result; scores are added up by blocks of rows and of classes."""
        config, task, log = work.config, work.task, work.logger.log
        head: Any = fitted.model.head
        labels, features, splits = task.labels.sparse, task.features, task.splits
        held, probabilities, decisions = fit_shared_decisions(
            fitted.model, features, labels, splits, config, log
        )
        shown = labels.select(splits.train).count_per_class()
        reference: Any = labels if task.truth is None else task.truth
        complete = reference.rest == ABSENT and not (reference.codes == UNKNOWN).any()
        result = make_result(config, task, fitted.facts, probabilities, decisions, shown)
        columns: dict[str, object] = {
            "class": list(task.classes), "threshold": result.thresholds, "train_present": shown
        }  # fmt: skip
        curves = probabilities.offset, probabilities.slope
        chance = propensities(shown, max(len(splits.train), 3))
        for part, rows in (("val", splits.val), ("test", splits.test)):
            if not len(rows):
                continue
            some = draw(rows, max(_MEASURED_CELLS // len(shown), 1_000), config.seed)
            if len(some) < len(rows):
                log(f"{part}: {len(some):,} of {len(rows):,} rows are measured, drawn at random")
            metrics, table = measure_by_blocks(
                head, features, some, reference, curves, decisions, chance
            )
            columns |= {f"{part}_{name}": values for name, values in table.items()}
            result.add_scores(part, metrics, VERIFIED if complete else ESTIMATED)
        if not complete and reference.rest == UNKNOWN:
            result.estimated = list_estimates(estimate_frequent(held, curves, decisions))
            result.estimated_classes = len(held.classes)
        scored = ScoredRows.of(task.labels, held.rows, held.logits)
        result.files = {
            "classes.csv": to_csv_text(pd.DataFrame(columns)), OUT_OF_SAMPLE: scored.to_arrays()
        }  # fmt: skip
        return result


def fit_to_run(work: Work) -> tuple[Classifier, dict[str, object]]:
    """Fit the model of many classes; return it and what its checkpoint has beside."""
    task, labels = work.task, work.task.labels
    model = fit_many_classes(
        task.features, labels.sparse, task.splits.train, task.splits.val, seed=work.config.seed,
        weights=labels.weights, log=work.logger.log,
        one_scale=None if task.encoder is None else task.encoder.one_scale,
    )  # fmt: skip
    head: Any = model.head
    return model, {"layout": head.layout, "rows": len(task.splits.train)}
