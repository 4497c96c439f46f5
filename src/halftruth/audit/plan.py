"""`halftruth plan`: which labels to ask people for next, and what the answers will bring.

A plan is an audit folder whose candidates are the proposed labels, so that it can be reviewed,
exported, imported and trained on like any audit.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from halftruth.audit.audit_folder import CANDIDATES, CLASSES, INFO, SCORES, AuditFolder
from halftruth.audit.current import read_current
from halftruth.audit.forecast import METRICS, Forecast, Gain, find_features, measure_rate
from halftruth.audit.neighbours import Neighbours
from halftruth.audit.rows import Rows
from halftruth.data import DataError
from halftruth.data.verdicts import DECISIONS, VERDICTS, place_verdicts, read_verdicts
from halftruth.labels import PRESENT, UNKNOWN, LabelMatrix
from halftruth.presence.calibration import calibrate
from halftruth.presence.solvers import find_shift, logit, sigmoid
from halftruth.presence.uncertainty import Z90, Estimate
from halftruth.seeds import check_seed
from halftruth.train.auto.label_bias import choose_propensities
from halftruth.train.run_folder import write_text

GOALS = ("gain", "find", "rare", "diverse", "learn", "evaluate")
UNITS = ("labels", "rows")
# The value of a label falls with the number of labels of its class, to this power. Errors fall with
# about the square root of that number: 1/2 is best for F1, in which frequent classes count more.
_POWERS = {"gain": 0.5, "diverse": 0.5, "rare": 1.0, "find": 0.0, "learn": 0.0}
# Rows per group of similar rows.
_GROUP_ROWS = 20


@dataclass(frozen=True)
class Outcome:
    """What some answers are expected to bring: present labels, and points of mAP and OF1."""

    labels: int
    rows: int
    present: Estimate
    gains: dict[str, Gain]

    def describe(self) -> str:
        gains = ", ".join(f"{name} {gain}" for name, gain in self.gains.items())
        share = self.present.value / max(self.labels, 1)
        return (
            f"{self.labels:,} answers in {self.rows:,} rows: {self.present} present "
            f"({share:.0%}); {gains}"
        )


@dataclass(frozen=True)
class Plan:
    """The proposed labels, the forecast, and that of other ways to spend the answers."""

    path: Path
    outcome: Outcome
    alternatives: dict[str, Outcome]
    scores: dict[str, str]
    # Whether the learning curve was measured on these rows.
    measured: bool

    @property
    def labels(self) -> int:
        return self.outcome.labels

    @property
    def rows(self) -> int:
        return self.outcome.rows

    @property
    def present(self) -> Estimate:
        return self.outcome.present

    def describe(self) -> str:
        """The forecast and its alternatives, as text."""
        source = (
            "measured on these rows with fewer labels"
            if self.measured
            else "that of other data sets, since the audit has no features: a rough guess"
        )
        now = ", ".join(f"{name} {value}" for name, value in self.scores.items())
        lines = [
            f"estimated scores now: {now}",
            f"this plan: {self.outcome.describe()}",
            f"(gains in points, for a model trained again with the answers; learning curve: "
            f"{source})",
            "other ways to spend answers:",
            *(f"  {name}: {one.describe()}" for name, one in self.alternatives.items()),
            self._advice(),
        ]
        return "\n".join(lines)

    def _advice(self) -> str:
        """Which of the compared ways brings most, and whether the intervals tell them apart."""
        every = {"this plan": self.outcome, **self.alternatives}
        best = max(every, key=lambda name: every[name].gains["mAP"].value)
        gain = every[best].gains["mAP"]
        close = [
            name for name, one in every.items()
            if name != best and one.gains["mAP"].value > gain.value - 0.25 * abs(gain.value)
        ]  # fmt: skip
        about = f"; about the same: {', '.join(close)}" if close else ""
        return f"most mAP: {best}{about}"


def plan_labels(
    audit: AuditFolder,
    out: str | Path,
    *,
    budget: int,
    unit: str = "labels",
    goal: str = "gain",
    versus: int | None = None,
    seed: int = 0,
) -> Plan:
    """Propose unknown labels to verify, and write them as an audit folder with plan.csv.

    `budget` counts labels, or rows of which all unknown labels are asked (`unit="rows"`). `goal`:

    - "gain": most expected gain in mAP and F1: P(present), divided by the square root of the
      number of labels that the class has, expected ones included;
    - "find": the most probable missing labels;
    - "rare": P(present) divided by the number of labels of the class;
    - "diverse": as "gain", and few of the same class from similar rows;
    - "learn": the most uncertain labels;
    - "evaluate": drawn at random, the only choice from which metrics can be estimated without bias.

    `versus`: also forecast this many of the other unit ("500 rows or 5,000 single labels?").
    """
    out, seed = Path(out), check_seed(seed)
    _check(audit, out, budget, unit, goal, versus)
    cells, present, labels = _unknown_labels(audit)
    p = present[tuple(cells.T)]
    choice = _Choice(audit, cells, p, labels, np.random.default_rng(seed))
    features = find_features(audit)
    rate = None if features is None else measure_rate(features, labels, seed=seed)
    forecast = Forecast(labels, audit.scored["scores"], present, rate, seed=seed)
    expect = _Expectation(audit, cells, p, forecast)
    chosen = choice.take(unit, goal, budget)
    outcome = expect(chosen)
    others: dict[str, np.ndarray] = {
        "single labels": choice.take("labels", "gain", len(chosen)),
        "whole rows": choice.take("rows", "gain", len(cells))[: len(chosen)],
        "labels at random": choice.take("labels", "evaluate", len(chosen)),
        "rows at random": choice.take("rows", "evaluate", len(cells))[: len(chosen)],
    }
    if goal == "gain":
        del others["single labels" if unit == "labels" else "whole rows"]
    if versus is not None:
        other = UNITS[1 - UNITS.index(unit)]
        name = "single labels" if other == "labels" else "rows with all labels"
        others = {f"{versus:,} {name}": choice.take(other, goal, versus), **others}
    plan = Plan(
        out,
        outcome,
        {name: expect(some) for name, some in others.items()},
        {name: score.percent() for name, score in forecast.scores.items()},
        forecast.measured,
    )
    _write(audit, plan, cells[chosen], p[chosen], unit, goal)
    return plan


def _check(
    audit: AuditFolder, out: Path, budget: int, unit: str, goal: str, versus: int | None
) -> None:
    if budget < 1 or (versus is not None and versus < 1):
        raise DataError(f"budget, versus: expected at least 1, got {budget}, {versus}")
    if unit not in UNITS or goal not in GOALS:
        raise DataError(
            f"expected a unit in {', '.join(UNITS)} and a goal in {', '.join(GOALS)}, got "
            f"{unit!r}, {goal!r}"
        )
    if out.exists() and any(out.iterdir()):
        raise DataError(f"{out}: is not empty; choose another folder for the plan (--out)")


def _unknown_labels(audit: AuditFolder) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(M, 2) places of all unknown labels that nobody has reviewed; P(present) and labels (N, K).

    Verdicts are labels: +1 and -1.
    """
    scored, current = audit.scored, read_current(audit)
    known = current.candidates
    place = np.full(int(scored["rows"].max()) + 1, -1)
    place[scored["rows"]] = np.arange(len(scored["rows"]))
    verified = np.zeros(scored["labels"].shape, dtype=np.int8)
    if (audit.path / DECISIONS).exists() or (audit.path / VERDICTS).exists():
        matrix = LabelMatrix(scored["labels"], audit.classes, scored["items"])
        verdicts = read_verdicts(audit.path)
        verdicts = verdicts[verdicts["item"].isin({*map(str, scored["items"])})]
        verified[place_verdicts(matrix, verdicts, audit.path)] = verdicts["verdict"]
    bias: dict[str, Any] = choose_propensities(audit.info.get("label_bias", {}), scored["labels"])
    fitted = calibrate(
        scored["labels"], scored["scores"], verified=verified,
        selection=audit.info["selection"], **bias,
    )  # fmt: skip
    p = fitted.present
    open_ones = known.missing & (current.codes == 0)
    at = place[known.row[open_ones]], known.column[open_ones]
    p[at] = current.probability[open_ones]
    labels = np.where(verified == 0, scored["labels"], verified).astype(np.int8)
    return np.argwhere(labels == UNKNOWN), p, labels


class _Choice:
    """Chooses unknown labels, or rows, by a goal; the most useful ones first."""

    def __init__(
        self,
        audit: AuditFolder,
        cells: np.ndarray,
        p: np.ndarray,
        labels: np.ndarray,
        random: np.random.Generator,
    ) -> None:
        self._audit, self._row, self._column, self._p = audit, *cells.T, p
        self._count = (labels == PRESENT).sum(axis=0).astype(float)
        self._random = random

    def take(self, unit: str, goal: str, budget: int) -> np.ndarray:
        """The numbers of the chosen labels."""
        if unit == "rows":
            return self._take_rows(goal, budget)
        if goal == "evaluate":
            return self._random.permutation(len(self._p))[:budget]
        return np.argsort(-self._value_labels(goal), kind="stable")[:budget]

    def _value_labels(self, goal: str) -> np.ndarray:
        value = 1 - np.abs(2 * self._p - 1) if goal == "learn" else self._p
        if goal == "diverse":
            groups = self._group_rows()
            value = value / (1 + rank_within(value, self._column * len(groups) + groups[self._row]))
        return discount(value, self._p, self._column, self._count, _POWERS[goal])

    def _take_rows(self, goal: str, budget: int) -> np.ndarray:
        """All unknown labels of the rows with the highest sum of values, or of random ones."""
        rows, inverse = np.unique(self._row, return_inverse=True)
        value = self._random.random(len(rows))
        if goal != "evaluate":
            single = 1 - np.abs(2 * self._p - 1) if goal == "learn" else self._p
            single = single / (self._count[self._column] + 1) ** _POWERS[goal]
            value = np.bincount(inverse, single).astype(float)
            if goal == "diverse":
                value = value / (1 + rank_within(value, self._group_rows()[rows]))
        rank = np.empty(len(rows), dtype=np.intp)
        rank[np.argsort(-value, kind="stable")] = np.arange(len(rows))
        taken = np.flatnonzero(rank[inverse] < budget)
        return taken[np.lexsort((-self._p[taken], rank[inverse][taken]))]

    def _group_rows(self) -> np.ndarray:
        """(N,) the group of similar rows that each row belongs to."""
        from sklearn.cluster import MiniBatchKMeans

        points = Neighbours(self._audit, Rows(self._audit)).points
        kmeans = MiniBatchKMeans(max(len(points) // _GROUP_ROWS, 1), random_state=0, n_init=1)
        return np.asarray(kmeans.fit_predict(points))


def discount(
    value: np.ndarray, p: np.ndarray, column: np.ndarray, count: np.ndarray, power: float = 0.5
) -> np.ndarray:
    """The value of each label after all better ones of its class have been asked.

    It is divided by the number of labels of its class, expected ones (`p`) included, to a power.
    Within a class it falls with the given value, so that sorting by the result is the same as
    choosing the best label again and again.

    >>> p = np.array([0.9, 0.8, 0.5])
    >>> discount(p, p, np.array([0, 0, 1]), np.zeros(2)).round(2).tolist()
    [0.9, 0.58, 0.5]
    """
    return np.asarray(value / (count[column] + 1 + sum_before(p, value, column)) ** power)


def rank_within(value: np.ndarray, group: np.ndarray) -> np.ndarray:
    """How many of the same group have a higher value.

    >>> rank_within(np.array([0.1, 0.5, 0.9]), np.array([0, 1, 0])).tolist()
    [1.0, 0.0, 0.0]
    """
    return sum_before(np.ones(len(value)), value, group)


def sum_before(amount: np.ndarray, value: np.ndarray, group: np.ndarray) -> np.ndarray:
    """The sum of `amount` over those of the same group with a higher value."""
    order = np.lexsort((-value, group))
    total = np.cumsum(amount[order]) - amount[order]
    first = np.flatnonzero(np.diff(group[order], prepend=group[order][:1] - 1))
    size = np.diff(first, append=len(order))
    found = np.empty(len(value))
    found[order] = total - np.repeat(total[first], size)
    return found


def raise_to(p: np.ndarray, total: float) -> np.ndarray:
    """Move the logits of probabilities up until they add up to `total`, if it is higher.

    >>> raise_to(np.array([0.5, 0.5]), 1.6).round(2).tolist()
    [0.8, 0.8]
    """
    if not p.sum() < total < len(p):
        return p
    return sigmoid(logit(p) + find_shift(logit(p)[None], total))


class _Expectation:
    """Expected present labels among some answers, and the gain that they bring."""

    def __init__(
        self, audit: AuditFolder, cells: np.ndarray, p: np.ndarray, forecast: Forecast
    ) -> None:
        total = read_current(audit).missing_left.total
        # The count of an audit may exceed the sum of its probabilities: some labels do not show in
        # the scores.
        self._p, self._cells, self._forecast = raise_to(p, total.value), cells, forecast
        self._low, self._high = (
            np.clip(end / max(total.value, 1e-9), *bounds)
            for end, bounds in ((total.low, (0, 1)), (total.high, (1, np.inf)))
        )

    def __call__(self, chosen: np.ndarray) -> Outcome:
        p, (rows, columns) = self._p[chosen], self._cells[chosen].T
        expected = float(p.sum())
        # Besides the model, chance: the number of present labels varies around its expectation.
        chance = Z90 * float(np.sqrt((p * (1 - p)).sum()))
        low = max(expected * self._low - chance, 0.0)
        high = min(expected * self._high + chance, float(len(p)))
        count = Estimate(expected, low, high)
        found = np.bincount(columns, p, minlength=len(self._forecast.shown))
        gains = {name: self._forecast.gain(name, found, count) for name in METRICS}
        return Outcome(len(p), len(np.unique(rows)), count, gains)


def _write(
    audit: AuditFolder, plan: Plan, cells: np.ndarray, p: np.ndarray, unit: str, goal: str
) -> None:
    plan.path.mkdir(parents=True, exist_ok=True)
    scored = audit.scored
    table = pd.DataFrame(
        {
            "id": np.arange(len(cells)),
            "kind": "missing",
            "row": scored["rows"][cells[:, 0]],
            "item": scored["items"][cells[:, 0]].astype(str),
            "class": np.array(audit.classes, dtype=object)[cells[:, 1]],
            "score": scored["scores"][cells[:, 0], cells[:, 1]].astype(float),
            "probability": np.clip(p, 1e-6, 1.0),
        }
    )
    table.to_parquet(plan.path / CANDIDATES, index=False)
    shown = table.assign(row=table["row"] + 1, rank=np.arange(1, len(table) + 1))
    columns = ["rank", "row", "item", "class", "probability"]
    shown[columns].to_csv(plan.path / "plan.csv", index=False)
    for name in (SCORES, CLASSES):
        shutil.copy(audit.path / name, plan.path / name)
    current = read_current(audit)
    left = current.missing_left
    info: dict[str, Any] = {
        **audit.info,
        "missing": {"estimate": left.total.value, "low": left.total.low, "high": left.total.high},
        "missing_by_class": [count.value for count in left.per_class],
        "missing_intervals": [[count.low, count.high] for count in left.per_class],
        "wrong": 0.0,
        "wrong_by_class": [0.0] * len(audit.classes),
        "plan": {
            "unit": unit,
            "goal": goal,
            "scores": plan.scores,
            "measured": plan.measured,
            "forecast": asdict(plan.outcome),
            "alternatives": {name: asdict(one) for name, one in plan.alternatives.items()},
        },
    }
    write_text(plan.path / INFO, json.dumps(info, indent=1))
