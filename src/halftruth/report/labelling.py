"""The parts of a run's report about missing labels: what is estimated, what is decided."""

from __future__ import annotations

import shlex
from html import escape
from pathlib import Path

import numpy as np

from halftruth.data.errors import some
from halftruth.presence.probabilities import Probabilities
from halftruth.report.page import make_table
from halftruth.train.auto.label_bias import describe_bias, looks_biased, read_test
from halftruth.train.results.run_result import (
    ESTIMATED,
    ONLY_SHOWN,
    UNKNOWN_AS_ABSENT,
    VERIFIED,
    Result,
)
from halftruth.train.run_folder import write_text
from halftruth.train.scored_rows import PARTS

# The section of scores after a verification lies between these marks.
_BEGIN, _END = "<!-- verified -->", "<!-- /verified -->"
_RULES = {
    "f1": "between the cuts with the highest expected F1 of the class and over all labels",
    "macro-f1": "highest expected F1 per class",
    "f2": "highest expected F2 per class, which weighs recall more",
    "precision": "most predictions with at least this expected precision per class",
    "recall": "fewest predictions with at least this expected recall per class",
    "threshold": "the same threshold for all classes",
    "top": "this many classes per row",
    "count": "as many predictions per class as labels are estimated to be present",
    "cost": "lowest expected cost, if a missed label costs this much and a wrong one 1",
}
_SELECTIONS = {
    "single_positive": "each row shows one of its present labels",
    "missing_at_random": "labels are missing at random",
}


def describe_basis(result: Result) -> str:
    """Return what the scores of the validation and test rows stand on, as HTML."""
    text = ""
    for basis in (VERIFIED, ESTIMATED):
        parts = [
            name for part, name in PARTS.items()
            if result.get_observed(part) and result.basis[part] == basis
        ]  # fmt: skip
        if not parts:
            continue
        rows = f"{' and '.join(parts)} rows"
        if basis == VERIFIED:
            text += f"<p>Scores on {rows} are <b>verified</b>: these rows have complete labels.</p>"
        else:
            text += (
                f"<p>The labels of {rows} are incomplete, so their scores are "
                "<b>estimated</b>, not measured.</p>"
            )
    if result.estimated:
        text += (
            "<p><b>Estimated</b> scores are those expected on new rows, from the incomplete labels "
            "of rows that the model was not fitted on, with 90 % intervals. To know them better, "
            f"verify a few labels: <code>halftruth review {escape(shlex.quote(str(result.folder)))}"
            " --purpose evaluate</code></p>"
        )
    return text


def show_verified(estimated: dict[str, list[float]], cells: int) -> str:
    """Return the section about scores after a verification, as HTML; '' without verified cells."""
    text = ""
    if cells:
        rows = [
            (name, f"{100 * value:.1f}", f"{100 * low:.1f} to {100 * high:.1f}")
            for name, (value, low, high) in estimated.items()
        ]
        text = (
            f"<h3>Scores after verification</h3><p>People have verified <b>{cells:,}</b> labels, "
            "drawn with known probabilities. Expected on new rows, with 90 % intervals:</p>"
            + make_table(["score", "percent", "90 % interval"], rows)
        )
    return f"{_BEGIN}{text}{_END}"


def update_report(folder: Path, estimated: dict[str, list[float]], cells: int) -> bool:
    """Put the scores after a verification into a run's report.html; False if it has none."""
    path = folder / "report.html"
    try:
        page = path.read_text(encoding="utf-8")
    except OSError:
        return False
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        return False
    write_text(path, before + show_verified(estimated, cells) + after)
    return True


def show_decisions(result: Result) -> str:
    """Return the section about the rule, the model of labelling and the thresholds, as HTML."""
    fitted = Probabilities.from_dict(result.probabilities)
    count, name = fitted.labels_per_row, result.decide.partition("=")[0]
    complete = count.low == count.value == count.high
    interval = "" if complete else f" (90 % interval {count.low:.2f} to {count.high:.2f})"
    text = (
        f"<p>Rule: <b>{escape(result.decide)}</b> ({_RULES[name]}). Estimated labels per row: "
        f"<b>{count.value:.2f}</b>{interval}.</p>"
        f"<p>Probabilities P(present | x), prevalences and thresholds are <b>estimated</b> from "
        f"{fitted.rows:,} rows that the model was not fitted on. Assumption: "
        f"{_SELECTIONS[fitted.selection]}{'; ' * fitted.only_shown}"
        f"{ONLY_SHOWN * fitted.only_shown}.</p>"
    )
    if result.not_predicted:
        text += (
            "<p><b>Not predicted</b>, for lack of labels or since no threshold satisfies the rule: "
            f"{escape(some(result.not_predicted, 50))}.</p>"
        )
    head = ["class", "shown labels", "prevalence, %", "90 % interval", "present labels shown, %",
            "90 % interval", "threshold"]  # fmt: skip
    return f"{text}{make_table(head, _list_classes(result, fitted))}"


def show_label_bias(result: Result) -> str:
    """Return the section on how the labels were chosen, as HTML; '' if nothing was tested."""
    facts = result.label_bias
    if not facts:
        return ""
    state = (
        "Labels <b>look biased</b>" if looks_biased(facts) else "Labels <b>do not look biased</b>"
    )
    test = read_test(facts)
    if "preference" not in facts and test is not None and not test.tells:
        state = "Whether labels are biased <b>cannot be told</b> from them"
    sentences = [line[0].upper() + line[1:] for line in describe_bias(facts)]
    lines = "".join(f"<p>{escape(line)}.</p>" for line in sentences)
    note = ""
    if "preference" not in facts:
        note = (
            "<p>This test compares two models of the same rows: the shown class is drawn at random "
            "from the present ones, or frequent classes are preferred. It does not see other "
            "preferences, such as rare classes first. Complete labels of some rows "
            "(<code>--complete-rows</code>) show all of them.</p>"
        )
    return f"<p>{state}.</p>{lines}{note}"


def _list_classes(result: Result, fitted: Probabilities) -> list[tuple[str, ...]]:
    left_out = set(result.not_predicted)
    rows: list[tuple[str, ...]] = []
    for k in np.argsort(-fitted.prevalence[:, 0], kind="stable"):
        prevalence, shown = 100 * fitted.prevalence[k], 100 * fitted.shown_probability[k]
        no_label = not fitted.shown[k]
        rows.append((
            result.classes[k], f"{result.shown[k]:,}",
            f"{prevalence[0]:.1f}", _join(prevalence, ".1f"),
            "–" if no_label else f"{shown[0]:.0f}",
            "–" if no_label else _join(shown, ".0f"),
            "not predicted" if result.classes[k] in left_out else f"{result.thresholds[k]:.3f}",
        ))  # fmt: skip
    return rows


def _join(estimate: np.ndarray, digits: str) -> str:
    """The two ends of an interval, which a narrow page does not break into lines."""
    return f"{estimate[1]:{digits}}\N{NO-BREAK SPACE}to\N{NO-BREAK SPACE}{estimate[2]:{digits}}"


def show_members(result: Result) -> str:
    """Return the table of the members of an ensemble, as HTML; '' for another model."""
    if not result.members:
        return ""
    rows = [
        (one["name"], "–" if one["score"] is None or np.isnan(one["score"])
         else f"{100 * one['score']:.1f}", f"{100 * one['weight']:.0f}", f"{one['seconds']:.1f}")
        for one in result.members
    ]  # fmt: skip
    return (
        "<p>Weights are chosen on rows that a member was not "
        "fitted on. The score is the geometric mean of mAP and ROC AUC on the observed labels "
        f"({UNKNOWN_AS_ABSENT}), or mAP if they are complete; a member of weight 0 is left out.</p>"
        + make_table(["member", "score, %", "weight, %", "seconds"], rows)
    )
