"""`halftruth plan`: which labels to ask people for next, and how many will turn out present.

A plan is an audit folder whose candidates are the proposed labels, so that it can be reviewed,
exported, imported and trained on like any audit.
"""

from __future__ import annotations

import heapq
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from halftruth.audit.audit_folder import CANDIDATES, CLASSES, INFO, SCORES, AuditFolder
from halftruth.audit.current import read_current
from halftruth.data import DataError
from halftruth.data.verdicts import DECISIONS, VERDICTS, place_verdicts, read_verdicts
from halftruth.labels import UNKNOWN, LabelMatrix
from halftruth.presence.calibration import Count, calibrate
from halftruth.train.run_folder import write_text

GOALS = ("find", "rare", "learn", "evaluate")
UNITS = ("labels", "rows")


@dataclass(frozen=True)
class Plan:
    """The proposed labels, and the forecast: how many of them are present."""

    path: Path
    labels: int
    rows: int
    present: Count
    # The same number of answers, spent in other ways: expected present labels.
    alternatives: dict[str, float]

    def describe(self) -> str:
        share = self.present.estimate / max(self.labels, 1)
        others = "\n".join(
            f"  {name}: {expected:,.0f} present" for name, expected in self.alternatives.items()
        )
        return (
            f"{self.labels:,} labels in {self.rows:,} rows; expected present: {self.present}, "
            f"{share:.0%} of the answers\nthe same number of answers spent in other ways:\n{others}"
        )


def plan_labels(
    audit: AuditFolder,
    out: str | Path,
    *,
    budget: int,
    unit: str = "labels",
    goal: str = "find",
    seed: int = 0,
) -> Plan:
    """Propose unknown labels to verify, and write them as an audit folder with plan.csv.

    `budget` counts labels, or rows of which all unknown labels are asked (`unit="rows"`). `goal`:
    "find" takes the most probable missing labels, "rare" divides them by the number of labels that
    their class has already, "learn" takes the most uncertain ones, and "evaluate" draws at random,
    which is the only choice from which metrics can be estimated without bias.
    """
    out = Path(out)
    _check(audit, out, budget, unit, goal)
    cells, p = _unknown_labels(audit)
    random = np.random.default_rng(seed)
    chosen = _choose(audit, cells, p, budget, unit, goal, random)
    total = read_current(audit).missing_left.total
    # The count of an audit may exceed the sum of its probabilities, which are cautious.
    scale = total.low / max(total.estimate, 1e-9), total.high / max(float(p.sum()), 1e-9)
    expected = float(p[chosen].sum())
    # Besides the model, chance: the number of present labels varies around its expectation.
    chance = 1.96 * float(np.sqrt((p[chosen] * (1 - p[chosen])).sum()))
    present = Count(
        expected,
        max(expected * min(scale[0], 1.0) - chance, 0.0),
        min(expected * max(scale[1], 1.0) + chance, float(len(chosen))),
    )
    alternatives = {
        f"{name} by {other}": float(
            p[_choose(audit, cells, p, len(chosen), "labels", other, random)].sum()
            if name == "labels"
            else p[_whole_rows(cells, p, len(chosen), other, random)].sum()
        )
        for name in UNITS
        for other in ("find", "evaluate")
        if (name, other) != (unit, goal)
    }
    rows = len(np.unique(cells[chosen, 0]))
    plan = Plan(out, len(chosen), rows, present, alternatives)
    _write(audit, plan, cells[chosen], p[chosen])
    return plan


def _check(audit: AuditFolder, out: Path, budget: int, unit: str, goal: str) -> None:
    if budget < 1:
        raise DataError(f"budget: expected at least 1, got {budget}")
    if unit not in UNITS or goal not in GOALS:
        raise DataError(
            f"expected a unit in {', '.join(UNITS)} and a goal in {', '.join(GOALS)}, got "
            f"{unit!r}, {goal!r}"
        )
    if unit == "rows" and goal in ("rare", "learn"):
        raise DataError(f"goal {goal}: chooses single labels, not rows; use find or evaluate")
    if out.exists() and any(out.iterdir()):
        raise DataError(f"{out}: is not empty; choose another folder for the plan (--out)")


def _unknown_labels(audit: AuditFolder) -> tuple[np.ndarray, np.ndarray]:
    """(M, 2) places of all unknown labels that nobody has reviewed, and P(present)."""
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
    fitted = calibrate(
        scored["labels"], scored["scores"], verified=verified, draws=2,
        selection=audit.info["selection"],
    )  # fmt: skip
    p = fitted.present
    open_ones = known.missing & (current.codes == 0)
    at = place[known.row[open_ones]], known.column[open_ones]
    p[at] = current.probability[open_ones]
    free = (scored["labels"] == UNKNOWN) & (verified == 0)
    return np.argwhere(free), p[free]


def _choose(
    audit: AuditFolder,
    cells: np.ndarray,
    p: np.ndarray,
    budget: int,
    unit: str,
    goal: str,
    random: np.random.Generator,
) -> np.ndarray:
    """The numbers of the chosen labels, the most useful ones first."""
    if unit == "rows":
        return _rows(cells, p, budget, goal, random)
    if goal == "evaluate":
        return random.permutation(len(cells))[:budget]
    if goal == "learn":
        return np.argsort(np.abs(p - 0.5), kind="stable")[:budget]
    if goal == "find":
        return np.argsort(-p, kind="stable")[:budget]
    return _rare_first(audit, cells[:, 1], p, budget)


def _rows(
    cells: np.ndarray, p: np.ndarray, count: int, goal: str, random: np.random.Generator
) -> np.ndarray:
    """All unknown labels of `count` rows: those with most missing labels, or random ones."""
    rows, inverse = np.unique(cells[:, 0], return_inverse=True)
    if goal == "evaluate":
        order = random.permutation(len(rows))
    else:
        order = np.argsort(-np.bincount(inverse, p), kind="stable")
    rank = np.empty(len(rows), dtype=np.intp)
    rank[order] = np.arange(len(rows))
    taken = np.flatnonzero(rank[inverse] < count)
    return taken[np.lexsort((-p[taken], rank[inverse][taken]))]


def _whole_rows(
    cells: np.ndarray, p: np.ndarray, labels: int, goal: str, random: np.random.Generator
) -> np.ndarray:
    """All unknown labels of as many rows as `labels` answers allow."""
    return _rows(cells, p, len(cells), goal, random)[:labels]


def _rare_first(audit: AuditFolder, column: np.ndarray, p: np.ndarray, budget: int) -> np.ndarray:
    """Greedily the highest p / (labels of the class so far, expected ones included)."""
    count = (audit.scored["labels"] > 0).sum(axis=0).astype(float)
    order = np.argsort(-p, kind="stable")
    queues = {int(k): iter(order[column[order] == k]) for k in np.unique(column)}
    heap: list[tuple[float, int, int]] = []

    def push(k: int) -> None:
        best = next(queues[k], None)
        if best is not None:
            heapq.heappush(heap, (-float(p[best]) / (count[k] + 1), k, int(best)))

    for k in queues:
        push(k)
    chosen: list[int] = []
    while heap and len(chosen) < budget:
        _, k, best = heapq.heappop(heap)
        chosen.append(best)
        count[k] += p[best]
        push(k)
    return np.array(chosen, dtype=np.intp)


def _write(audit: AuditFolder, plan: Plan, cells: np.ndarray, p: np.ndarray) -> None:
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
        "missing": vars(left.total),
        "missing_by_class": [count.estimate for count in left.per_class],
        "missing_intervals": [[count.low, count.high] for count in left.per_class],
        "wrong": 0.0,
        "wrong_by_class": [0.0] * len(audit.classes),
        "plan": {"present": vars(plan.present), "alternatives": plan.alternatives},
    }
    write_text(plan.path / INFO, json.dumps(info, indent=1))
