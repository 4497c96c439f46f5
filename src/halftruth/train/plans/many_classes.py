"""Thousands of classes: labels stay sparse, and everything is computed by blocks."""

from typing import Any

from halftruth.train.inputs.batches import make_inputs
from halftruth.train.many_classes.many_run import (
    LEFT_OUT,
    MANY,
    check_many_rule,
    describe_many_memory,
    evaluate_many,
    fit_many_to_task,
    load_many,
)
from halftruth.train.plans.plan import FittedModel, Plan, Work
from halftruth.train.results.run_result import Result


class ManyClassesPlan(Plan):
    """A linear layer and the labels of similar rows, for more than 1,000 classes."""

    name = MANY

    def fit(self, work: Work) -> FittedModel:
        task, log = work.task, work.logger.log
        check_many_rule(work.config.decide)
        log(f"{len(task.classes):,} classes: labels stay sparse; {LEFT_OUT}")
        if line := describe_many_memory(task):
            log(line)
        best = work.fit_at_once(self.name, lambda: fit_many_to_task(work.config, task, log))
        return FittedModel(load_many(best, task), make_inputs(task.features), None, best)

    def evaluate(self, work: Work, fitted: FittedModel) -> Result:
        head: Any = fitted.model.head
        return evaluate_many(work.config, work.task, head)
