"""Whether the labels of a run look biased, how sure this is, and what would settle it.

Two tests: of labels alone, whether frequent classes are named first (presence.propensity; only
where rows show one class each); and, where the complete labels of some rows are known beside those
that were shown at first, whether any classes are preferred (presence.propensity).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from halftruth.labels import PRESENT, UNKNOWN, find_complete_rows
from halftruth.presence.propensity import (
    LEVEL,
    LabelBias,
    choose_possible,
    choose_propensity,
    choose_rows_to_complete,
    find_preference,
)

# The file in the run folder with the rows to label completely.
ROWS_TO_LABEL = "rows_to_label.txt"
# The share of shown labels is told for classes that are predicted or present in this many rows.
_ENOUGH_ROWS = 10
# With fewer complete rows, no difference may mean too few rows.
_FEW_TO_TELL = 20
# The numbers of the test of labels alone.
_NUMBERS = ("z", "gain", "even", "explained")


def collect_bias_facts(
    classes: tuple[str, ...],
    labels: np.ndarray,
    given: np.ndarray | None,
    shown: np.ndarray,
    predicted: np.ndarray,
    test: LabelBias | None = None,
) -> dict[str, object]:
    """Return what is known about the choice of labels, for result.json; {} if nothing was tested.

    labels, given: of all rows, with complete rows, and as shown at first (None: the same).
    shown, predicted: labels and decisions of rows that the model was not fitted on.
    """
    facts: dict[str, object] = {}
    if test is not None:
        numbers = {name: float(getattr(test, name)) for name in _NUMBERS}
        facts["frequent_first"] = {**numbers, "rows": int(test.rows), "found": bool(test.found)}
        where = predicted & ~find_complete_rows(shown)[:, None]
        counts = ((shown == PRESENT) & where).sum(axis=0), where.sum(axis=0)
        facts["shown_where_predicted"] = list_extremes(classes, *counts)
    found = None if given is None else find_preference(given, labels)
    if found is not None and found.rows:
        facts["preference"] = {
            "rows": found.rows,
            "p_value": found.p_value,
            "exponent": found.told,
            "shown_where_present": list_extremes(classes, found.shown, found.present),
        }
    return facts


def list_extremes(
    classes: tuple[str, ...], shown: np.ndarray, total: np.ndarray
) -> list[list[object]]:
    """The class that is shown most often and the one shown least often: name, shown, of how many.

    Only classes with enough rows; [] if there are not two of them.
    """
    often = np.flatnonzero(total >= _ENOUGH_ROWS)
    if len(often) < 2:
        return []
    share = shown[often] / total[often]
    ends = often[share.argmax()], often[share.argmin()]
    if share.max() == share.min():
        return []
    return [[classes[k], int(shown[k]), int(total[k])] for k in ends]


def looks_biased(facts: dict[str, Any]) -> bool:
    """Whether labels look biased: the test with complete rows decides where there is one."""
    if "preference" in facts:
        return bool(facts["preference"]["p_value"] < LEVEL)
    return bool(facts.get("frequent_first", {}).get("found", False))


def describe_bias(facts: dict[str, object]) -> list[str]:
    """Say in plain words whether labels look biased, how sure that is, and what would settle it."""
    if "frequent_first" not in facts or "preference" in facts:
        return describe_details(facts)
    test = read_test(facts)
    return [*([] if test is None else [test.describe()]), *describe_details(facts)]


def read_test(facts: dict[str, Any]) -> LabelBias | None:
    """Return the test of labels alone from the facts of a run; None where none was made."""
    if (given := facts.get("frequent_first")) is None:
        return None
    # Runs of earlier versions have not all of the numbers.
    return LabelBias(**{name: given[name] for name in ("rows", *_NUMBERS) if name in given})


def choose_propensities(facts: dict[str, Any], labels: np.ndarray) -> dict[str, np.ndarray | None]:
    """Return the propensities per class that the model of labelling uses for biased labels."""
    given = read_test(facts), facts.get("preference", {}).get("exponent")
    return {
        "propensity": choose_propensity(labels, *given),
        "possible": choose_possible(labels, *given),
    }


def describe_details(facts: dict[str, Any]) -> list[str]:
    """Say what the test of labels alone does not: the extreme classes, complete rows, advice."""
    if "preference" in facts:
        return [_describe_preference(facts["preference"])]
    if not looks_biased(facts):
        return []
    lines = []
    if extremes := facts.get("shown_where_predicted"):
        lines.append(_compare(extremes, "predicted"))
    if count := facts.get("rows_to_label", 0):
        lines.append(
            f"to settle it, label the {count:,} rows of {ROWS_TO_LABEL} completely, in a label "
            "file of their own, and train again with --complete-rows and that file: which labels "
            "were shown at first is then tested directly"
        )
    return lines


def _describe_preference(found: dict[str, Any]) -> str:
    p, rows = found["p_value"], found["rows"]
    chance = "less than 0.1 %" if p < 0.0011 else f"{100 * p:.2g} %"
    sure = f"an even choice would differ as much in {chance} of cases"
    subject = f"the {rows:,} complete rows in which some present labels were not shown at first"
    if p < LEVEL:
        extremes = found["shown_where_present"]
        more = f": {_compare(extremes, 'present')}" if extremes else ""
        return f"labels are biased, as {subject} tell{more} ({sure})"
    if rows < _FEW_TO_TELL:
        return f"whether labels are biased is not known: {subject} are too few to tell ({sure})"
    return f"labels do not look biased: {subject} show no preference for any classes ({sure})"


def _compare(extremes: list[list[Any]], where: str) -> str:
    (most, shown, total), (least, few, of) = extremes
    return (
        f"{most!r} is shown in {100 * shown / total:.0f} % of the rows where it is {where}, "
        f"{least!r} in {100 * few / of:.0f} %"
    )


def find_rows_to_label(
    facts: dict[str, object], labels: np.ndarray, probabilities: np.ndarray, seed: int = 0
) -> np.ndarray:
    """Return which of the rows, whose labels and P(present | x) are given, to label completely.

    Rows that show a class and in which others are likely present, too; none if labels do not look
    biased or complete rows have settled it already.
    """
    if "preference" in facts or not looks_biased(facts):
        return np.zeros(0, dtype=np.intp)
    open_rows = (labels == PRESENT).any(axis=1) & (labels == UNKNOWN).any(axis=1)
    rows = np.flatnonzero(open_rows)
    if not len(rows):
        return rows
    # A shown label is present.
    p = np.where(labels[rows] == PRESENT, 1.0, probabilities[rows])
    return np.asarray(rows[choose_rows_to_complete(p, seed=seed)])
