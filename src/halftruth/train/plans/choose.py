"""`auto`: from labels and inputs to a plan with settings, both of which can also be typed."""

import dataclasses

import torch

from halftruth.models.heads import registry as heads
from halftruth.presence.propensity import shows_one
from halftruth.train.auto.frequency_bias import find_frequency_bias
from halftruth.train.auto.resolve import Budget, resolve_auto, search_settings
from halftruth.train.config import AUTO, ENSEMBLE, GIVEN, MANY_CLASSES_METHOD
from halftruth.train.ensemble.preparation import prepare_features
from halftruth.train.plans.ensemble import EnsemblePlan
from halftruth.train.plans.given_scores import GivenScoresPlan
from halftruth.train.plans.many_classes import ManyClassesPlan
from halftruth.train.plans.network import NetworkPlan, describe_cpu_time
from halftruth.train.plans.plan import Plan, Work
from halftruth.train.plans.taught import TaughtPlan
from halftruth.train.task import release_validation
from halftruth.train.teacher import make_teacher_config


def choose_plan(work: Work) -> Plan:
    """Return the plan of a run; `work.config` then has its method and settings."""
    if work.config.method == GIVEN:
        return GivenScoresPlan()
    if work.task.labels.is_sparse:
        work.config = dataclasses.replace(work.config, method=MANY_CLASSES_METHOD)
        return ManyClassesPlan()
    if line := describe_cpu_time(work):
        work.logger.log(line)
    # Images that cannot be read leave the rows before anything is chosen by them.
    _ = work.inputs
    if _names_frequent_first(work):
        work.config = dataclasses.replace(work.config, tune="head")
        if work.config.val is None:
            # An ensemble needs no rows to choose an epoch.
            work.task.splits = release_validation(work.task)
    if work.config.fits_ensemble:
        work.config = dataclasses.replace(work.config, method=ENSEMBLE)
        return EnsemblePlan()
    if work.config.method == AUTO:
        _choose_for_network(work)
    first = make_teacher_config(work.config)
    return NetworkPlan() if first is None else TaughtPlan(first)


def _names_frequent_first(work: Work) -> bool:
    """Return whether images show one class each, and the frequent ones are preferred.

    A network learns which classes are named next to which, and then finds a class only in pictures
    in which it would have been named. Frozen features do not.
    """
    config, task = work.config, work.task
    rows = task.splits.train
    if config.tune != "head-first" or not dataclasses.replace(config, tune="head").fits_ensemble:
        return False
    if task.labels.soft is not None or not shows_one(task.labels.values[rows]):
        return False
    features = work.extract_features(work.model, work.inputs)
    prepared = prepare_features(features.float().cpu().numpy()[rows])
    bias = find_frequency_bias(prepared, task.labels.values[rows], config.seed)
    if bias is None or not bias.found:
        return False
    work.logger.log(
        "auto: frequent classes are named first in these labels. A network would learn that, "
        "so the backbone stays as it is and an ensemble on its features is fitted, for which "
        "settings of training have no effect (--method em trains the network anyway)"
    )
    return True


def _choose_for_network(work: Work) -> None:
    """Replace "auto" by a loss and settings, try some on the features, and log the reasons."""
    task, labels, rows = work.task, work.task.labels.values, work.task.splits.train
    plain = task.labels.soft is None
    work.config, choice = resolve_auto(
        work.config, labels[rows], work.model.feature_dim, plain=plain
    )
    config, found = work.config, list[str]()
    on_head = heads.get(config.head).has_linear_layer and config.tune != "all"
    if on_head and Budget(choice.budget).allows(0):
        features = work.extract_features(work.model, work.inputs).float()
        work.config, found = search_settings(
            config, choice, features, torch.from_numpy(labels), rows, work.accelerator,
            log=work.logger.log, groups=task.groups,
        )  # fmt: skip
    work.logger.log("auto: " + "\n      ".join([*choice.reasons, *found]))
