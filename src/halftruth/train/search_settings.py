"""The short search of `auto`: settings compared on features of held-out training rows."""

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from halftruth import losses
from halftruth.data.splits import fold_of_rows, split_rows
from halftruth.metrics import mean_roc_auc
from halftruth.models import set_standardization
from halftruth.train.auto import Budget, Choice
from halftruth.train.config import Config
from halftruth.train.inputs import Features
from halftruth.train.stages import build_head
from halftruth.train.trainer import Stage, TrainingStopped

# One fifth of the training rows is held out; where that is less than ENOUGH rows, several fifths
# in turn.
PARTS, ENOUGH = 5, 500


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
    accelerator: Any,
    log: Callable[[str], None] = lambda text: None,
    groups: np.ndarray | None = None,
) -> tuple[Config, list[str]]:
    """Return the configuration with the best of the choice's rivals, and what was found, in words.

    A fifth of the training rows is held out, of few rows several times, and their labels decide.
    A rival must be better than the choice itself in the run's criterion (the geometric mean of mAP
    and AUC where labels are unknown) and not worse in AUC; of several the one with the highest AUC
    is taken. With positives missing, mAP prefers a model that has memorised which of them are
    labelled, AUC does not; and with few positives AUC is the more stable. No other rows are used.
    `groups`, of all rows: rows of one group (a patient) are held out together, or memorising would
    look good.
    """
    budget = Budget(choice.budget)
    if not budget.allows(0) or not choice.rivals or len(rows) < 20:
        return config, []
    inside = None if groups is None else groups[rows]
    few = 0 if inside is None else len(np.unique(inside))
    # Too few groups cannot be divided.
    held = held_out(rows, config.seed, None if few < PARTS else inside)
    where = f"{sum(map(len, held)):,} held-out training rows"
    if 0 < few < PARTS:
        where += f" (not whole groups: {few} are too few to hold some of them out)"
    scores: list[Score] = []
    log(f"auto: trying settings on {where} (--budget 0 tries none)")
    for rival in [{}, *choice.rivals]:
        if not budget.allows(len(scores)):
            break
        setting = dataclasses.replace(config, **rival)
        stages = (make_trial(setting, features, labels, rows, part, accelerator) for part in held)
        found = [_score(stage) for stage in stages]
        scores.append(Score(*(sum(values) / len(held) for values in zip(*found, strict=True))))
    first = scores[0]
    better = [score for score in scores if score.value > first.value and score.auc >= first.auc]
    best = max(better, key=lambda score: score.auc, default=first)
    rival = [{}, *choice.rivals][scores.index(best)]
    shown = ", ".join(f"{key} {value}" for key, value in rival.items()) or "the settings above"
    note = f" (score {best.value:.4f})" if math.isfinite(best.value) else ", since none has a score"
    words = f"tried {len(scores)} settings on {where}: best is {shown}{note}"
    return dataclasses.replace(config, **rival), [words]


def held_out(rows: np.ndarray, seed: int, inside: np.ndarray | None) -> list[np.ndarray]:
    """Return the rows that are held out, one array per time; `inside`: the group of each row."""
    if len(rows) >= ENOUGH * PARTS:
        return [rows[split_rows(len(rows), val=1 / PARTS, seed=seed, groups=inside)[1]]]
    fold = fold_of_rows(len(rows), PARTS, seed, inside)
    times = min(math.ceil(ENOUGH * PARTS / len(rows)), PARTS)
    return [rows[fold == part] for part in range(times)]


def _score(stage: Stage) -> tuple[float, float]:
    """Return criterion and AUC on the held-out rows, at the epoch that the run would keep."""
    try:
        with warnings.catch_warnings():
            # A small part may have no positive; such a score ranks last.
            warnings.filterwarnings("ignore", message="No class has")
            score = stage.run().kept
            stage.learner.evaluated.load_state_dict(stage.best()["model"])
            held = stage.val_rows
            at = torch.as_tensor(held, device=stage.device)
            auc = mean_roc_auc(stage.score(held), stage.labels[at])
    except TrainingStopped:
        score = auc = math.nan
    return _or_last(score), _or_last(auc)


def _or_last(score: float) -> float:
    """A score that is not finite ranks last."""
    return score if math.isfinite(score) else -math.inf


def make_trial(
    config: Config,
    features: Tensor,
    labels: Tensor,
    rows: np.ndarray,
    held: np.ndarray,
    accelerator: Any,
) -> Stage:
    """Return a stage that trains a head on the rows that are not held out."""
    train = np.setdiff1d(rows, held)
    torch.manual_seed(config.seed)
    model = build_head(config, features.shape[1], labels.shape[1])
    set_standardization(model, features[torch.from_numpy(train)])
    return Stage(
        name="trial",
        model=model,
        inputs=Features(features),
        loss=losses.create(config.method, **config.options),
        labels=labels,
        train_rows=train,
        val_rows=held,
        config=config,
        accelerator=accelerator,
        epochs=config.epochs if config.features else config.head_epochs,
        lr=config.head_lr,
        head_lr=config.head_lr,
    )
