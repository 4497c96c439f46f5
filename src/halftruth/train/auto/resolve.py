"""What `auto` trains where a network is trained: method and settings by the labels, with reasons.

A few alternatives are tried on the features before training. On features, `auto` is the ensemble.

docs/explained/auto.md has the reasons behind every number here.
"""

import dataclasses
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from halftruth.data.splits import fold_of_rows, split_rows
from halftruth.labels import ABSENT, PRESENT, UNKNOWN
from halftruth.metrics import mean_roc_auc
from halftruth.models import set_standardization
from halftruth.train.build_models import build_head
from halftruth.train.config import Config, ConfigError
from halftruth.train.devices import Accelerator, OneProcess, count_processes, run_in_processes
from halftruth.train.fit_head import HeadData, make_head_trainer
from halftruth.train.inputs.batches import Features
from halftruth.train.settings import parse_budget
from halftruth.train.trainer import Trainer, TrainingStopped

# The share of rows without any class from which the any-class term helps.
MANY_EMPTY = 0.2
RIDGE = 2.0
# Noisy features need a stronger prior than 2, many exact features a weaker one.
PRIORS = (0.5, 8.0, 0.125)
MORE_PRIORS = (32.0, 0.03)
# One fifth of the training rows is held out; if that is too few, several fifths, one after another.
PARTS, ENOUGH_ROWS = 5, 500
# The numbers of rows for which a network gets a teacher: fewer say little, and with more the
# ensemble holds out only some rows, so that most would have no estimate.
FEWEST_TAUGHT, MOST_TAUGHT = 200, 20_000


@dataclass(frozen=True)
class Choice:
    """The chosen settings, the reasons, the alternatives, and how much to try (`budget`)."""

    settings: dict[str, Any]
    reasons: list[str] = field(default_factory=list)
    alternatives: list[dict[str, Any]] = field(default_factory=list)
    budget: str | int = 0


def choose_settings(labels: np.ndarray, dim: int, *, teacher: bool = True) -> Choice:
    """Choose method and settings of a network by the labels (N, K) of the training rows.

    `dim`: the number of its features. `teacher`: its features before training may be used for
    estimates of its labels.

    >>> choose_settings(np.eye(4, dtype=np.int8), 100).settings["method"]
    'em'
    """
    positives = (labels == PRESENT).sum(axis=1)
    unknown = float((labels == UNKNOWN).mean())
    if unknown == 0:
        method, reasons = _choose_for_complete_labels(float((positives == 0).mean()))
    else:
        mean = positives.mean()
        reasons = [f"{unknown:.1%} of the labels are unknown, with {mean:.2f} positives per row"]
        if verified := int((labels == ABSENT).sum()):
            reasons.append(f"{verified:,} labels are verified as absent and keep their full weight")
        teacher = teacher and FEWEST_TAUGHT <= len(labels) <= MOST_TAUGHT
        method, reason = _choose_for_missing_labels(teacher)
        reasons.append(reason)
    alternatives: list[dict[str, object]] = [{"ridge": v} for v in (*PRIORS, *MORE_PRIORS)]
    recipe, reason = _choose_recipe(len(labels), dim)
    return Choice({**method, **recipe}, [*reasons, reason], alternatives, 1 + len(PRIORS))


def _choose_for_complete_labels(empty: float) -> tuple[dict[str, object], list[str]]:
    """Return cross-entropy, with the any-class term if many rows have no class, and the reason."""
    if empty < MANY_EMPTY:
        reason = "all labels are known, so no label has to be corrected: binary cross-entropy (bce)"
        return {"method": "bce", "options": {}}, [reason]
    reason = (
        f"all labels are known and {empty:.0%} of the rows have no class at all: binary "
        "cross-entropy, and a term for whether a row has any class (any-class)"
    )
    return {"method": "any-class", "options": {"base": "bce"}}, [reason]


def _choose_for_missing_labels(teacher: bool) -> tuple[dict[str, object], str]:
    """Return a method and the reason: a network memorises which labels are missing."""
    reason = (
        "an unknown label counts neither as present nor as absent, the model is only kept "
        "undecided about it. This is best where the whole network is trained, since it would "
        "otherwise memorise which labels are missing"
    )
    if not teacher:
        return {"method": "em", "options": {}}, f"method em: {reason}"
    return {"method": "em-teacher", "options": {}}, (
        f"method em-teacher: {reason}. With a small weight, it also leans towards the probability "
        "that an ensemble on the features before training gives it"
    )


def _choose_recipe(rows: int, dim: int) -> tuple[dict[str, object], str]:
    """Choose learning rate, prior and epochs by the sizes alone."""
    rate = float(f"{0.04 / math.sqrt(dim):.2g}")
    recipe = {"ridge": RIDGE, "head_lr": rate, "head_epochs": 20, "epochs": 6, "select": "averaged"}
    return recipe, (
        f"a head on {dim} standardised features: its weights are kept small (ridge {RIDGE:g}; the "
        f"more rows, the less: {rows:,} here), learning rate {rate:g} (0.04/√{dim}); then the "
        "whole network at a low learning rate, with random crops, fixed batch-norm statistics and "
        "averaged weights; the last epoch is used, averaged with the weights from before it "
        "if that scores better on the validation rows"
    )


def resolve_auto(
    config: Config, labels: np.ndarray, dim: int, plain: bool = True
) -> tuple[Config, Choice]:
    """Return the configuration with "auto" replaced by the choice for these labels, and the choice.

    Settings that differ from the defaults were set by the user and stay. The budget moves to the
    choice, since a named method tries nothing. `plain`: labels are present, absent or unknown, not
    probabilities.
    """
    choice = choose_settings(labels, dim, teacher=plain and config.tune == "head-first")
    usual = {f.name: f.default for f in dataclasses.fields(Config) if f.default is not MISSING}
    if config.patience is not None:
        # Early stopping needs the choice of an epoch.
        choice.settings.pop("select", None)
    budget = choice.budget if config.budget is None else config.budget
    kept = {
        name: value
        for name, value in choice.settings.items()
        if name in ("method", "options") or getattr(config, name) == usual[name]
    }
    set_by_user = {name for name, value in usual.items() if getattr(config, name) != value}
    alternatives = [one for one in choice.alternatives if not one.keys() & set_by_user]
    reasons = choice.reasons
    if stays := sorted(set(choice.settings) - set(kept)):
        reasons = [*reasons, f"set by you: {', '.join(stays)}"]
    choice = dataclasses.replace(choice, reasons=reasons, alternatives=alternatives, budget=budget)
    return dataclasses.replace(config, **kept, budget=None), choice


class Budget:
    """How many settings may be tried ("12", "12 trials") or for how long ("10 minutes").

    >>> Budget("3 trials").allows(3)
    False
    """

    def __init__(self, text: str | int) -> None:
        self.started = time.monotonic()
        if (found := parse_budget(text)) is None:
            raise ConfigError([f"budget: expected trials or a time (12, 10 minutes), got {text!r}"])
        self.trials, self.seconds = found

    def allows(self, done: int) -> bool:
        """Return whether another trial may start after `done` trials."""
        return done < self.trials and time.monotonic() - self.started < self.seconds


# ---------------------------------------------------------------------- the search


class Score(NamedTuple):
    """The value of the run's criterion on held-out rows, and their AUC."""

    value: float
    auc: float


def search_settings(
    config: Config,
    choice: Choice,
    features: Tensor,
    labels: Tensor,
    rows: np.ndarray,
    accelerator: Accelerator,
    log: Callable[[str], None] = lambda text: None,
    groups: np.ndarray | None = None,
) -> tuple[Config, list[str]]:
    """Return the configuration with the best of the alternatives, and a message about the search.

    Settings are compared on a held-out fifth of the training rows (with few rows, on several
    fifths). An alternative is taken if it is better than the choice in the run's criterion (the
    geometric mean of mAP and AUC where labels are unknown) and not worse in AUC; if there are
    several, the one with the highest AUC. With missing positives, mAP prefers a model that has
    memorised which positives are labelled, AUC does not; with few positives, AUC is more stable.
    `groups` has one entry per row: rows of one group (a patient) are held out together, since
    otherwise memorising would be rewarded.
    """
    budget = Budget(choice.budget)
    if not budget.allows(0) or not choice.alternatives or len(rows) < 20:
        return config, []
    inside = None if groups is None else groups[rows]
    few = 0 if inside is None else len(np.unique(inside))
    held = hold_out_rows(rows, config.seed, None if few < PARTS else inside)
    where = f"{sum(map(len, held)):,} held-out training rows"
    if 0 < few < PARTS:
        where += f" (not whole groups: {few} are too few to hold some of them out)"
    scores: list[Score] = []
    log(f"auto: trying settings on {where} (--budget 0 tries none)")
    settings = [dataclasses.replace(config, **change) for change in [{}, *choice.alternatives]]
    settings = settings[: int(min(budget.trials, len(settings)))]
    data = features, labels, rows, held
    jobs, started = 1, time.monotonic()
    while len(scores) < len(settings) and budget.allows(len(scores)):
        # A limit of time is checked after each round.
        ahead = jobs if jobs == 1 or budget.seconds < math.inf else len(settings)
        batch = settings[len(scores) : len(scores) + ahead]
        if jobs == 1:
            scores.append(_score_setting(batch[0], *data, accelerator))
        else:
            scores += run_in_processes(jobs, _score_setting, [(one, *data) for one in batch])
        if len(scores) == 1:
            left = (len(settings) - 1) * (time.monotonic() - started)
            alone = accelerator.num_processes == 1 and accelerator.mixed_precision == "no"
            if alone and accelerator.device.type == "cpu":
                jobs = count_processes(left, len(settings) - 1)
    first = scores[0]
    better = [score for score in scores if score.value > first.value and score.auc >= first.auc]
    best = max(better, key=lambda score: score.auc, default=first)
    alternative = [{}, *choice.alternatives][scores.index(best)]
    shown = ", ".join(f"{k} {v}" for k, v in alternative.items()) or "the settings above"
    note = f" (score {best.value:.4f})" if math.isfinite(best.value) else ", since none has a score"
    message = f"tried {len(scores)} settings on {where}: best is {shown}{note}"
    return dataclasses.replace(config, **alternative), [message]


def _score_setting(
    config: Config,
    features: Tensor,
    labels: Tensor,
    rows: np.ndarray,
    held: list[np.ndarray],
    accelerator: object = None,
) -> Score:
    """Return the mean scores of a configuration over the held-out parts."""
    process = OneProcess() if accelerator is None else accelerator
    stages = (make_trial(config, features, labels, rows, part, process) for part in held)
    found = [_score_trial(stage) for stage in stages]
    return Score(*(sum(values) / len(held) for values in zip(*found, strict=True)))


def hold_out_rows(rows: np.ndarray, seed: int, inside: np.ndarray | None) -> list[np.ndarray]:
    """Return the rows to hold out, one array per trial; `inside`: the group of each row."""
    if len(rows) >= ENOUGH_ROWS * PARTS:
        return [rows[split_rows(len(rows), val=1 / PARTS, seed=seed, groups=inside)[1]]]
    parts = PARTS if inside is None else min(PARTS, len(np.unique(inside)))
    fold = fold_of_rows(len(rows), parts, seed, inside)
    times = min(math.ceil(ENOUGH_ROWS * PARTS / len(rows)), parts)
    return [rows[fold == part] for part in range(times)]


def _score_trial(stage: Trainer) -> tuple[float, float]:
    """Return criterion and AUC on the held-out rows, for the epoch that the run would keep."""
    try:
        with warnings.catch_warnings():
            # A small part may have no positive; its score then ranks last.
            warnings.filterwarnings("ignore", message="No class has")
            score = stage.run().kept
            stage.learner.evaluated.load_state_dict(stage.best()["model"])
            held = stage.val_rows
            at = torch.as_tensor(held, device=stage.device)
            auc = mean_roc_auc(stage.score(held), stage.labels[at])
    except TrainingStopped:
        score = auc = math.nan
    return _replace_nonfinite(score), _replace_nonfinite(auc)


def _replace_nonfinite(score: float) -> float:
    """Return the score, or minus infinity if it is not finite: it then ranks last."""
    return score if math.isfinite(score) else -math.inf


def make_trial(
    config: Config,
    features: Tensor,
    labels: Tensor,
    rows: np.ndarray,
    held: np.ndarray,
    accelerator: object,
) -> Trainer:
    """Return a stage that trains a head on the rows that are not held out."""
    train = np.setdiff1d(rows, held)
    torch.manual_seed(config.seed)
    model = build_head(config, features.shape[1], labels.shape[1])
    set_standardization(model, features[torch.from_numpy(train)])
    epochs = config.epochs if config.on_features else config.head_epochs
    data = HeadData(Features(features), features.shape[1], labels)
    return make_head_trainer(config, model, data, train, held, accelerator, epochs=epochs)
