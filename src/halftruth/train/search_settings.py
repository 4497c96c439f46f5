"""The short search of `auto`: settings tried on features, on training rows held out for it."""

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
from halftruth.train.build import head_model
from halftruth.train.config import Config
from halftruth.train.inputs import Features
from halftruth.train.stage_progress import TrainingStopped
from halftruth.train.trainer import Stage

# One part of the training rows is held out; of few rows one after the other, until so many were.
PARTS, ENOUGH = 5, 500


class Score(NamedTuple):
    """What the run's criterion says of held-out rows, and their AUC."""

    value: float
    auc: float


def tried(
    config: Config,
    choice: Choice,
    features: Tensor,
    labels: Tensor,
    rows: np.ndarray,
    accelerator: Any,
    say: Callable[[str], None] = lambda text: None,
    groups: np.ndarray | None = None,
) -> tuple[Config, list[str]]:
    """The configuration with the best of the choice's rivals, and what was found, in words.

    A fifth of the training rows is held out, of few rows several times, and their labels decide: of
    the rivals ahead of the choice itself in the run's criterion (the geometric mean of mAP and AUC
    where labels are unknown) and not behind it in AUC, the one with the highest AUC. With positives
    missing, mAP prefers a model that has learnt which of them are shown, AUC does not; and of few
    positives AUC is the surer. No other row is looked at.
    `groups`: of all rows; those of one group (a patient) are held out together, or what was learnt
    by heart would look good.
    """
    budget = Budget(choice.budget)
    if not budget.allows(0) or not choice.rivals or len(rows) < 20:
        return config, []
    inside = None if groups is None else groups[rows]
    few = 0 if inside is None else len(np.unique(inside))
    # Too few groups to be divided are left alone.
    held = held_out(rows, config.seed, None if few < PARTS else inside)
    where = f"{sum(map(len, held)):,} held-out training rows"
    if 0 < few < PARTS:
        where += f" (each by itself: {few} groups are too few to hold some of them out)"
    scores: list[Score] = []
    say(f"auto: trying settings on {where} (--budget 0 tries none)")
    for rival in [{}, *choice.rivals]:
        if not budget.allows(len(scores)):
            break
        setting = dataclasses.replace(config, **rival)
        stages = (trial(setting, features, labels, rows, part, accelerator) for part in held)
        found = [_score(stage) for stage in stages]
        scores.append(Score(*(sum(values) / len(held) for values in zip(*found, strict=True))))
    first = scores[0]
    ahead = [score for score in scores if score.value > first.value and score.auc >= first.auc]
    best = max(ahead, key=lambda score: score.auc, default=first)
    rival = [{}, *choice.rivals][scores.index(best)]
    told = ", ".join(f"{key} {value}" for key, value in rival.items()) or "the settings above"
    words = f"tried {len(scores)} settings on {where}: best is {told}"
    told = ", since no score could be taken"
    if math.isfinite(best.value):
        told = f" (score {best.value:.4f})"
    return dataclasses.replace(config, **rival), [words + told]


def held_out(rows: np.ndarray, seed: int, inside: np.ndarray | None) -> list[np.ndarray]:
    """The rows that are held out, each time; `inside`: the group of each."""
    if len(rows) >= ENOUGH * PARTS:
        return [rows[split_rows(len(rows), val=1 / PARTS, seed=seed, groups=inside)[1]]]
    fold = fold_of_rows(len(rows), PARTS, seed, inside)
    times = min(math.ceil(ENOUGH * PARTS / len(rows)), PARTS)
    return [rows[fold == part] for part in range(times)]


def _score(stage: Stage) -> tuple[float, float]:
    """Criterion and AUC of a head on the rows held out, at the epoch that the run would keep."""
    try:
        with warnings.catch_warnings():
            # Of few rows some part may lack every positive; what cannot be compared is told below.
            warnings.filterwarnings("ignore", message="No class has")
            score = stage.run().kept
            stage.learner.evaluated.load_state_dict(stage.best()["model"])
            held = stage.val_rows
            at = torch.as_tensor(held, device=stage.device)
            auc = mean_roc_auc(stage.score(held), stage.labels[at])
    except TrainingStopped:
        score = auc = math.nan
    return _or_lost(score), _or_lost(auc)


def _or_lost(score: float) -> float:
    """What is no number has lost: a loss, or a score of rows without a positive."""
    return score if math.isfinite(score) else -math.inf


def trial(
    config: Config,
    features: Tensor,
    labels: Tensor,
    rows: np.ndarray,
    held: np.ndarray,
    accelerator: Any,
) -> Stage:
    """A head to be trained on the other rows."""
    train = np.setdiff1d(rows, held)
    torch.manual_seed(config.seed)
    model = head_model(config, features.shape[1], labels.shape[1])
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
