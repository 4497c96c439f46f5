"""`halftruth plan`: which labels to ask people for next, and what the answers will bring.

A plan is an audit folder whose candidates are the proposed labels, so that it can be reviewed,
exported, imported and trained on like any audit.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from halftruth.audit.audit_folder import (
    CLASSES,
    AuditFolder,
    describe_counts,
    write_candidates,
    write_folder,
)
from halftruth.audit.audit_state import AuditState, read_audit_state
from halftruth.audit.forecast import METRICS, Forecast, measure_rate
from halftruth.audit.rows import find_features
from halftruth.data import DataError
from halftruth.data.verdicts import DECISIONS, VERDICTS, place_verdicts, read_verdicts
from halftruth.labels import PRESENT, UNKNOWN, LabelMatrix
from halftruth.presence.calibration import calibrate
from halftruth.presence.solvers import find_shift, logit, sigmoid
from halftruth.presence.uncertainty import Z90, Estimate
from halftruth.seeds import check_seed
from halftruth.train.auto.label_bias import choose_propensities

# What a plan is for, and the power of the number of labels of a class by which the value of a label
# falls (None: labels are drawn at random). Errors fall with about the square root of that number:
# 1/2 is best for F1, in which frequent classes count more.
GOALS = {"gain": 0.5, "find": 0.0, "evaluate": None}
UNITS = ("labels", "rows")


@dataclass(frozen=True)
class Outcome:
    """What some answers are expected to bring: present labels, and points of mAP and OF1."""

    labels: int
    rows: int
    present: Estimate
    gains: dict[str, Estimate]

    def describe(self) -> str:
        gains = ", ".join(
            f"{name} {gain.value:+.1f} ({gain.low:+.1f} to {gain.high:+.1f})"
            for name, gain in self.gains.items()
        )
        share = self.present.value / max(self.labels, 1)
        return (
            f"{self.labels:,} answers in {self.rows:,} rows: {self.present} present "
            f"({share:.0%}); {gains}"
        )


@dataclass(frozen=True)
class LabelPlan:
    """The proposed labels, the forecast, and that of other ways to spend the answers."""

    path: Path
    forecast: Outcome
    alternatives: dict[str, Outcome]
    scores: dict[str, str]
    # Whether the learning curve was measured on these rows.
    measured: bool

    def describe(self) -> str:
        """The forecast, its alternatives, and which of them brings most."""
        source = (
            "measured on these rows with fewer labels"
            if self.measured
            else "that of other data sets, since the audit has no features: a rough guess"
        )
        now = ", ".join(f"{name} {value}" for name, value in self.scores.items())
        ways = {"this plan": self.forecast, **self.alternatives}
        points = {name: one.gains["mAP"].value for name, one in ways.items()}
        best = max(points, key=points.__getitem__)
        least = points[best] - 0.25 * abs(points[best])
        close = [name for name, value in points.items() if value > least and name != best]
        return "\n".join(
            [
                f"estimated scores now: {now}",
                f"this plan: {self.forecast.describe()}",
                "(gains in points, for a model trained again with the answers; learning curve: "
                f"{source})",
                "other ways to spend as many answers:",
                *(f"  {name}: {one.describe()}" for name, one in self.alternatives.items()),
                f"most mAP: {best}" + (f"; about the same: {', '.join(close)}" if close else ""),
            ]
        )


def plan_labels(
    audit: AuditFolder,
    out: str | Path,
    *,
    budget: int,
    unit: str = "labels",
    goal: str = "gain",
    seed: int = 0,
) -> LabelPlan:
    """Propose unknown labels to verify, and write them as an audit folder with plan.csv.

    `budget` counts labels, or rows of which all unknown labels are asked (`unit="rows"`). `goal`:

    - "gain": most expected gain in mAP and F1: P(present), divided by the square root of the
      number of labels that the class has, expected ones included;
    - "find": the most probable missing labels;
    - "evaluate": drawn at random, the only choice from which metrics can be estimated without bias.
    """
    out, random = Path(out), np.random.default_rng(check_seed(seed))
    if budget < 1:
        raise DataError(f"budget: expected at least 1, got {budget}")
    if unit not in UNITS or goal not in GOALS:
        raise DataError(
            f"expected a unit in {', '.join(UNITS)} and a goal in {', '.join(GOALS)}, got "
            f"{unit!r}, {goal!r}"
        )
    if out.exists() and any(out.iterdir()):
        raise DataError(f"{out}: is not empty; choose another folder for the plan (--out)")
    current = read_audit_state(audit)
    labels, present = _update_labels(audit, current)
    cells = np.argwhere(labels == UNKNOWN)
    p, count = present[tuple(cells.T)], (labels == PRESENT).sum(axis=0).astype(float)

    def choose(unit: str, goal: str, budget: int) -> np.ndarray:
        return _choose(unit, GOALS[goal], budget, cells, p, count, random)

    chosen = choose(unit, goal, budget)
    others = {
        "single labels": choose("labels", "gain", len(chosen)),
        "whole rows": choose("rows", "gain", len(cells))[: len(chosen)],
        "labels at random": choose("labels", "evaluate", len(chosen)),
        "rows at random": choose("rows", "evaluate", len(cells))[: len(chosen)],
    }
    if goal == "gain":
        del others["single labels" if unit == "labels" else "whole rows"]
    features = find_features(audit)
    rate = None if features is None else measure_rate(features, labels, seed=seed)
    forecast = Forecast(labels, audit.scored.scores, present, rate, seed=seed)
    total = current.missing_left.total
    # The count of an audit may exceed the sum of its probabilities: some labels do not show in the
    # scores.
    raised = raise_to(p, total.value)
    plan = LabelPlan(
        out,
        _expect(cells[chosen], raised[chosen], total, forecast),
        {
            name: _expect(cells[some], raised[some], total, forecast)
            for name, some in others.items()
        },
        {name: score.percent() for name, score in forecast.scores.items()},
        forecast.measured,
    )
    _write(audit, current, plan, cells[chosen], p[chosen], {"unit": unit, "goal": goal})
    return plan


def _update_labels(audit: AuditFolder, current: AuditState) -> tuple[np.ndarray, np.ndarray]:
    """(N, K) labels, in which verdicts are +1 and -1, and P(present) after all verdicts."""
    scored, known = audit.scored, current.candidates
    verified = np.zeros(scored.labels.shape, dtype=np.int8)
    if (audit.path / DECISIONS).exists() or (audit.path / VERDICTS).exists():
        matrix = LabelMatrix(scored.labels, audit.classes, scored.items)
        verdicts = read_verdicts(audit.path)
        verdicts = verdicts[verdicts["item"].isin({*map(str, scored.items)})]
        verified[place_verdicts(matrix, verdicts, audit.path)] = verdicts["verdict"]
    bias: dict[str, Any] = choose_propensities(audit.info.get("label_bias", {}), scored.labels)
    present = calibrate(
        scored.labels,
        scored.scores,
        verified=verified,
        selection=audit.info["selection"],
        unlabelled_rows=audit.info.get("unlabelled_rows", "auto"),
        **bias,
    ).present
    place = np.full(int(scored.rows.max()) + 1, -1)
    place[scored.rows] = np.arange(len(scored.rows))
    undecided = known.missing & (current.codes == 0)
    at = place[known.row[undecided]], known.column[undecided]
    present[at] = current.probability[undecided]
    return np.where(verified == 0, scored.labels, verified).astype(np.int8), present


def _choose(
    unit: str,
    power: float | None,
    budget: int,
    cells: np.ndarray,
    p: np.ndarray,
    count: np.ndarray,
    random: np.random.Generator,
) -> np.ndarray:
    """The numbers of the most useful labels, or of all labels of the most useful rows."""
    if unit == "labels":
        if power is None:
            return random.permutation(len(p))[:budget]
        return np.argsort(-discount(p, cells[:, 1], count, power), kind="stable")[:budget]
    rows, inverse = np.unique(cells[:, 0], return_inverse=True)
    value = random.random(len(rows))
    if power is not None:
        value = np.bincount(inverse, p / (count[cells[:, 1]] + 1) ** power).astype(float)
    rank = np.empty(len(rows), dtype=np.intp)
    rank[np.argsort(-value, kind="stable")] = np.arange(len(rows))
    taken = np.flatnonzero(rank[inverse] < budget)
    return taken[np.lexsort((-p[taken], rank[inverse][taken]))]


def discount(
    p: np.ndarray, column: np.ndarray, count: np.ndarray, power: float = 0.5
) -> np.ndarray:
    """The value of each label after all more probable ones of its class have been asked.

    P(present) is divided by the number of labels of its class, expected ones included, to a power.
    Within a class it falls with `p`, so that sorting by the result is the same as choosing the best
    label again and again.

    >>> discount(np.array([0.9, 0.8, 0.5]), np.array([0, 0, 1]), np.zeros(2)).round(2).tolist()
    [0.9, 0.58, 0.5]
    """
    ranked = pd.Series(p).sort_values(ascending=False, kind="stable")
    before = (ranked.groupby(column[ranked.index]).cumsum() - ranked).sort_index().to_numpy()
    return np.asarray(p / (count[column] + 1 + before) ** power)


def raise_to(p: np.ndarray, total: float) -> np.ndarray:
    """Move the logits of probabilities up until they add up to `total`, if it is higher.

    >>> raise_to(np.array([0.5, 0.5]), 1.6).round(2).tolist()
    [0.8, 0.8]
    """
    if not p.sum() < total < len(p):
        return p
    return sigmoid(logit(p) + find_shift(logit(p)[None], total))


def _expect(cells: np.ndarray, p: np.ndarray, total: Estimate, forecast: Forecast) -> Outcome:
    """The expected present labels among some answers, and the gain that they bring.

    `total`: the estimated number of all missing labels.
    """
    expected, known = float(p.sum()), max(total.value, 1e-9)
    # Besides the model, chance: the number of present labels varies around its expectation.
    chance = Z90 * float(np.sqrt((p * (1 - p)).sum()))
    low = expected * min(max(total.low / known, 0.0), 1.0) - chance
    high = expected * max(total.high / known, 1.0) + chance
    count = Estimate(expected, max(low, 0.0), min(high, float(len(p))))
    found = np.bincount(cells[:, 1], p, minlength=len(forecast.shown))
    gains = {name: forecast.gain(name, found, count) for name in METRICS}
    return Outcome(len(p), len(np.unique(cells[:, 0])), count, gains)


def _write(
    audit: AuditFolder,
    current: AuditState,
    plan: LabelPlan,
    cells: np.ndarray,
    p: np.ndarray,
    choice: dict[str, str],
) -> None:
    plan.path.mkdir(parents=True, exist_ok=True)
    scored, (places, columns) = audit.scored, cells.T
    table = pd.DataFrame(
        {
            "kind": "missing",
            "row": scored.rows[places],
            "item": scored.items[places].astype(str),
            "class": np.array(audit.classes, dtype=object)[columns],
            "score": scored.scores[places, columns].astype(float),
            "probability": np.clip(p, 1e-6, 1.0),
        }
    )
    write_candidates(plan.path, table)
    shown = table.assign(row=table["row"] + 1, rank=np.arange(1, len(table) + 1))
    names = ["rank", "row", "item", "class", "probability"]
    shown[names].to_csv(plan.path / "plan.csv", index=False)
    shutil.copy(audit.path / CLASSES, plan.path / CLASSES)
    left, nothing = current.missing_left, Estimate(0.0, 0.0, 0.0)
    counts = describe_counts(left.total, left.per_class, nothing, [0.0] * len(audit.classes))
    known = {key: value for key, value in asdict(plan).items() if key != "path"}
    write_folder(plan.path, scored, {**audit.info, **counts, "plan": {**choice, **known}})
