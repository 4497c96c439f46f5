"""Which method to try first on a label matrix, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from halftruth.labels import ABSENT, PRESENT, LabelMatrix

MANY_EMPTY = 0.2  # a rule of thumb


@dataclass(frozen=True)
class Advice:
    """A method's name, its arguments, other methods worth trying, and the reason in words."""

    method: str
    options: dict[str, Any] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    reason: str = ""


def suggest_method(labels: LabelMatrix) -> Advice:
    """A first method from what is known about the labels; a starting point, not a verdict.

    >>> import numpy as np
    >>> one_each = LabelMatrix(np.eye(3, dtype=np.int8), ("a", "b", "c"), None, None)
    >>> suggest_method(one_each).method
    'em'
    """
    positives = (labels.values == PRESENT).sum(axis=1)
    absent = labels.values == ABSENT
    known = float((labels.values != 0).mean())
    empty = float((positives == 0).mean())
    if known == 1.0 and empty >= MANY_EMPTY:
        return Advice(
            "any-class",
            {"base": "bce"},
            ("bce", "focal"),
            f"all labels are known and {empty:.0%} of the rows have no class at all: the any-class "
            "term teaches the difference between something and nothing",
        )
    if known == 1.0:
        return Advice(
            "bce", {}, ("asl", "focal"), "all labels are known, so nothing has to be corrected for"
        )
    if absent.any():
        return Advice(
            "bce",
            {"unknown": "ignore"},
            ("wan",),
            f"{int(absent.sum()):,} labels are verified as absent: learn from what is known and "
            "leave the rest out; wan also uses the unknown ones, at a small weight",
        )
    if positives.max(initial=0) <= 1:
        rest = "" if empty == 0.0 else f" ({empty:.0%} of the rows have none)"
        return Advice(
            "em",
            {},
            ("wan", "lasd"),
            f"no row has more than one positive and nothing is known to be absent{rest}: em, lasd "
            "and wan gained most over assume-negative on VOC and COCO with one positive a picture",
        )
    return Advice(
        "em",
        {},
        ("wan", "hill", "splc"),
        "only positives are known and some are likely missing: treat the unknown labels as "
        "undecided instead of absent",
    )
