"""The model of labelling: calibrated P(present | x) and prevalences, from incomplete labels.

Everything that depends on which labels are missing uses this module: probabilities, decisions,
estimated scores, the audit and the report. Out-of-sample logits z become

    P(present | x) = σ(a_k + b_k z_k)

with a prevalence π_k per class. What labels leave open is covered by an interval:

- where rows show several labels or none, one label frequency c = P(shown | present) of all classes
  (or in proportion to given propensities), and classes that are independent given their scores, or
  given that no row is empty, whichever fits the labels (`share_grid`);
- where every row shows exactly one label, three fits: classes independent of each other,
  independent given that at least one is present, and one c for all classes. The estimate is their
  mean in logits, the interval covers all three;
- where every row shows a label, and some show several, rows that show nothing are taken for not
  listed: the likelihood of a row is given that it shows one, P(present | x) is that of listed rows,
  and the interval also covers that nearly all labels are shown;
- where some rows show nothing and have lower scores than the others, these rows are empty.

With the label of a cell known, `Probabilities.infer` gives P(present | x, label) of all cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from halftruth.labels import ABSENT, PRESENT, UNKNOWN
from halftruth.labels.checks import Array
from halftruth.presence.label_frequency import fit_label_frequency
from halftruth.presence.labelling_model import (
    Presence,
    PresenceRange,
    choose_selection,
    draw_rows,
    fit_presence,
    infer_presence,
)
from halftruth.presence.ranking import measure_ranking
from halftruth.presence.solvers import (
    find_shift,
    find_shifts,
    fit_curves,
    logit,
    project_on_hierarchy,
    sigmoid,
)
from halftruth.presence.uncertainty import CLASS_DOUBT, DOUBT, NEXT_DOUBT, Z90, Estimate
from halftruth.seeds import check_seed

Selection = Literal["auto", "missing_at_random", "single_positive"]
SELECTIONS: tuple[str, ...] = get_args(Selection)
# Whether rows without a shown label are in the file; "auto": not, if there is none.
UNLABELLED_ROWS = ("auto", "kept", "dropped")
# The curves are fitted to at most this many labels.
_MOST_LABELS = 2_000_000
# The ends of a range are found on about this many labels.
_LABELS_OF_SHIFT = 200_000
# With fewer rows, it is by chance that each shows a label.
_SOME_ROWS = 50
# From this share of rows without a label, and with this AUC of their scores against those of other
# rows, blank rows are empty (see above).
_SOME_BLANK, _APART = 0.02, 0.6
# A class that was never seen, or always, is given this share of the rows, or all but this.
_NEVER = 1e-7
# Classes that reach a bound are found in few steps.
_STEPS = 10
# Fields that are lists in a file.
_ARRAYS = ("offset", "slope", "prevalence", "shown")


@dataclass(frozen=True)
class Probabilities:
    """Curves from logits to P(present | x), prevalences and their intervals, one per class."""

    offset: np.ndarray
    slope: np.ndarray
    # (K, 3): estimate, low and high end of the 90 % interval.
    prevalence: np.ndarray
    # The number of PRESENT labels that the fit has seen.
    shown: np.ndarray
    rows: int
    selection: str
    labels_per_row: Estimate
    # How many times fewer and more labels per row the fits allow, before doubt of their model.
    fewest: float = 1.0
    most: float = 1.0
    # The weights of the assumptions behind the fits, see `posterior`.
    assumptions: dict[str, float] = field(default_factory=dict)
    # Rows without a label have no class; and classes of which every present label is shown.
    blank_is_empty: bool = False
    complete: list[int] = field(default_factory=list)
    # Why nothing is known of missing labels: the scores do not rank (`ranking`); '' where they do.
    not_known: str = ""
    # Rows that show nothing are taken for not listed.
    only_shown: bool = False
    # Pairs of the numbers of a child and its parent: P(child) is at most P(parent).
    parents: list[list[int]] = field(default_factory=list)
    # Offsets and slopes for a level that is known later, where `average_over_level` made the curves
    # flatter.
    sharp: list[list[float]] = field(default_factory=list)

    def __call__(self, logits: Array) -> np.ndarray:
        """Return P(present | x) of logits (N, K)."""
        p = sigmoid(self.offset + self.slope * np.asarray(logits, dtype=np.float64))
        return self.keep_hierarchy(p)

    def keep_hierarchy(self, p: np.ndarray) -> np.ndarray:
        """Return the nearest probabilities in which no child is above its parent."""
        return project_on_hierarchy(p, self.parents) if self.parents else p

    @property
    def shown_probability(self) -> np.ndarray:
        """(K, 3) the probability that a present label is shown: estimate, low, high."""
        present = np.maximum(self.prevalence[:, [0, 2, 1]] * self.rows, 1e-9)
        return np.clip(self.shown[:, None] / present, 0.0, 1.0)

    def infer(
        self,
        labels: np.ndarray,
        logits: np.ndarray,
        *,
        verified: np.ndarray | None = None,
        propensity: np.ndarray | None = None,
    ) -> PresenceRange:
        """P(present | x, label) of the rows of the fit, with the fewest and the most labels.

        Verdicts of a review (`verified`, +1, -1 and 0) override labels.
        """
        known = np.zeros(labels.shape, np.int8) if verified is None else np.array(verified)
        if self.blank_is_empty:
            known[~(labels == PRESENT).any(axis=1)[:, None] & (known == 0)] = ABSENT
        whole = np.isin(np.arange(labels.shape[1]), self.complete)
        known[whole & (labels == UNKNOWN) & (known == 0)] = ABSENT
        z = self.offset + self.slope * np.asarray(logits, dtype=np.float64)
        middle = infer_presence(labels, sigmoid(z), self.assumptions, known, propensity)
        # What is known for certain does not move.
        free = self.prevalence[:, 1] < self.prevalence[:, 2]
        open_ones = free & (np.where(known == 0, labels, known) == UNKNOWN)
        low, high = (_scale_labels(middle, open_ones, end) for end in (self.fewest, self.most))
        known = np.where(known == 0, labels, known)
        middle, low, high = (
            np.where(known == UNKNOWN, self.keep_hierarchy(one), one) for one in (middle, low, high)
        )
        return PresenceRange(middle, low, high, self.selection)

    def at_level(
        self,
        logits: np.ndarray,
        labels_per_row: float | None,
        prevalence: Mapping[int, float],
    ) -> Probabilities:
        """Return the curves for a known number of labels per row and known shares of rows.

        `logits`: of rows that the model was not fitted on; on them, the level holds.
        """
        least, known = self.shown / max(self.rows, 1), self
        if labels_per_row is not None and self.sharp:
            offset, slope = map(np.array, self.sharp)
            known = replace(self, offset=offset, slope=slope, sharp=[])
        return _use_knowledge(known, logits, labels_per_row, prevalence, least)

    def recalibrate(self, z: np.ndarray, known: Probabilities) -> np.ndarray:
        """Return P(present | x) by the curves of `known`, from the log-odds by these curves."""
        if known is self:
            return self.keep_hierarchy(sigmoid(z))
        ratio = known.slope / np.where(self.slope == 0, 1.0, self.slope)
        return known.keep_hierarchy(sigmoid(known.offset + ratio * (z - self.offset)))

    def to_dict(self) -> dict[str, object]:
        """Return the curves and estimates as plain numbers and lists, for a file."""
        return {
            **vars(self),
            **{name: getattr(self, name).tolist() for name in _ARRAYS},
            "labels_per_row": list(vars(self.labels_per_row).values()),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Probabilities:
        """Return the object of `to_dict`."""
        arrays = {name: np.asarray(values[name]) for name in _ARRAYS}
        return cls(**{**values, **arrays, "labels_per_row": Estimate(*values["labels_per_row"])})


def fit_probabilities(
    labels: np.ndarray,
    logits: np.ndarray,
    *,
    selection: str = "auto",
    verified: np.ndarray | None = None,
    propensity: np.ndarray | None = None,
    possible: np.ndarray | None = None,
    labels_per_row: float | None = None,
    prevalence: Mapping[int, float] | None = None,
    complete: np.ndarray | None = None,
    unlabelled_rows: str = "auto",
    groups: np.ndarray | None = None,
    parents: Sequence[Sequence[int]] = (),
    seed: int = 0,
) -> Probabilities:
    """Fit P(present | x) to out-of-sample logits and incomplete labels.

    Args:
        labels: (N, K) of +1 present, 0 unknown, -1 absent.
        logits: (N, K) of a model that was not fitted to these rows.
        selection: how labels came to be shown, "missing_at_random" or "single_positive" (per row);
            "auto" decides from the labels.
        verified: (N, K) verdicts of a review, +1 present, −1 absent, 0 none.
        propensity: (K,) how likely a present label of a class is shown, relative to other classes.
        possible: (K,) propensities that labels cannot exclude; intervals cover them, too.
        labels_per_row: the mean number of present classes, if it is known.
        prevalence: the known shares of rows, by class number.
        complete: (K,) of bool: classes of which every present label is shown.
        unlabelled_rows: whether rows that show no label are in the file ("kept"), or were left out
            ("dropped"); "auto": left out if there is none.
        groups: (N,) rows of the same value, such as copies of a row, are not independent.
        parents: pairs of the numbers of a child and its parent, in a hierarchy of classes.
        seed: of the sample of rows that is fitted, where there are many.

    >>> z = np.array([[3.0], [2.0], [-3.0], [-4.0]] * 50)
    >>> fitted = fit_probabilities(np.sign(z).astype(np.int8), z)
    >>> fitted([[3.0], [-3.0]]).round().ravel().tolist()
    [1.0, 0.0]
    """
    check_seed(seed)
    labels, z = np.asarray(labels), np.asarray(logits, dtype=np.float64)
    for given in (propensity, possible):
        _check_knowledge(z.shape[1], selection, labels_per_row, prevalence or {}, given)
    how = choose_selection(labels) if selection == "auto" else selection
    values = labels
    if complete is not None:
        values = np.where(complete & (values == UNKNOWN), ABSENT, values)
    if verified is not None:
        values = np.where(verified == 0, values, verified)
    # The shares of rows that have a class for certain, and that may have it, (K,) each.
    bounds = (values == PRESENT).mean(axis=0), (values != ABSENT).mean(axis=0)
    blank = ~(labels == PRESENT).any(axis=1) & (labels == UNKNOWN).any(axis=1)
    blank_is_empty = how == "single_positive" and _are_empty(blank, z)
    if blank_is_empty:
        values = np.where(blank[:, None] & (values == UNKNOWN), ABSENT, values)

    only_shown = how == "missing_at_random" and _lists_only_shown(values, unlabelled_rows)
    some = draw_rows(values.shape, _MOST_LABELS, seed, values == PRESENT)
    part, scores = values[some].astype(np.int8), sigmoid(z[some])
    not_known = ""
    if (part == UNKNOWN).any() and (part == PRESENT).any():
        kin = None if groups is None else groups[some]
        ranking = measure_ranking(labels[some], z[some], kin)
        not_known = "" if ranking.found else ranking.describe()
    how_shown = how, blank_is_empty, only_shown
    fits, start = _fit_assumptions(part, scores, *how_shown, propensity)
    in_range = fits
    if not_known:
        # Any number of labels from those that are shown to all.
        in_range = [replace(fit, low=0.0, high=1e9) for fit in fits]
    elif possible is not None:
        in_range = fits + _fit_assumptions(part, scores, *how_shown, possible)[0]
    mean = sigmoid(np.sum([fit.weight * logit(fit.prior) for fit in fits], axis=0))
    first = np.stack([start.offset, start.slope / start.scale], axis=1)
    offset, slope = fit_curves(z[some], mean, first).T
    total = max(float(mean.sum()), 1e-12)
    result = Probabilities(
        offset, slope, np.zeros((len(offset), 3)), (labels == PRESENT).sum(axis=0), len(values),
        how, Estimate(0, 0, 0),
        fewest=min([1.0, *(float(fit.prior.sum()) * fit.low / total for fit in in_range)]),
        most=max([1.0, *(float(fit.prior.sum()) * fit.high / total for fit in in_range)]),
        assumptions={fit.assumption: fit.weight for fit in fits if fit.weight > 0},
        blank_is_empty=blank_is_empty,
        complete=[] if complete is None else np.flatnonzero(complete).tolist(),
        not_known=not_known,
        only_shown=only_shown,
    )  # fmt: skip
    known = ~(values == UNKNOWN).any(axis=0)
    levels = [fit.prior.mean(axis=0) * end for fit in in_range for end in (fit.low, fit.high)]
    result = replace(result, offset=result.offset + _find_way_back(result, z, *bounds))
    result = _add_intervals(result, z, levels, known, *bounds)
    result = _use_knowledge(result, z, labels_per_row, prevalence or {}, bounds[0])
    return _add_hierarchy(result, z, parents)


def average_over_level(fitted: Probabilities, logits: Array) -> Probabilities:
    """Flatten the curves by how little is known of the level; the mean of each class stays.

    A logit that is only known up to a normal error of spread s has the mean probability
    σ(logit / √(1 + π s² / 8)), about. s follows from the interval of labels per row, so that
    probabilities near 0 and 1 are only claimed where labels tell how many are missing. Promises of
    decisions need this; counts of missing labels do not.
    """
    # Sums of rows and of columns in memory would differ in their last digit.
    z = np.ascontiguousarray(logits, dtype=np.float64)
    count = fitted.labels_per_row
    part = z[:: max(z.size // _LABELS_OF_SHIFT, 1)]
    at = fitted.offset + fitted.slope * part
    mean = sigmoid(at).mean(axis=0)
    total, most = float(mean.sum()), 0.999 * len(mean)
    factors = (end / max(count.value, 1e-12) for end in (count.low, count.high))
    low, high = (find_shift(at, float(np.clip(total * one, 1e-6, most))) for one in factors)
    flatter = 1 / np.sqrt(1 + np.pi / 8 * ((high - low) / (2 * Z90)) ** 2)
    if flatter > 1 - 1e-6:
        return fitted
    # Rounded: the same rows in another order give the same curves.
    flatter = round(float(flatter), 6)
    shift = np.round(find_shifts(at * flatter, np.clip(mean, _NEVER, 1 - _NEVER)), 9)
    sharp = [fitted.offset.tolist(), fitted.slope.tolist()]
    offset, slope = fitted.offset * flatter + shift, fitted.slope * flatter
    return replace(fitted, offset=offset, slope=slope, sharp=sharp)


def _add_hierarchy(
    fitted: Probabilities, z: np.ndarray, parents: Sequence[Sequence[int]]
) -> Probabilities:
    """Add a hierarchy; the intervals also hold the means of the projected probabilities."""
    if not len(parents):
        return fitted
    fitted = replace(fitted, parents=[[int(k) for k in pair] for pair in parents])
    mean, bounds, count = fitted(z).mean(axis=0), fitted.prevalence, fitted.labels_per_row
    low, high = np.minimum(bounds[:, 1], mean), np.maximum(bounds[:, 2], mean)
    value = float(mean.sum())
    return replace(
        fitted,
        prevalence=np.stack([mean, low, high], axis=1),
        labels_per_row=Estimate(value, min(count.low, value), max(count.high, value)),
    )


def _find_way_back(
    fitted: Probabilities, z: np.ndarray, least: np.ndarray, most: np.ndarray
) -> np.ndarray:
    """(K,) what to add to the offsets so that the mean P of each class is inside its bounds.

    Curves that are drawn towards those of other classes may leave what is known of their own.
    """
    mean = fitted(z).mean(axis=0)
    target = np.clip(mean, np.maximum(least, _NEVER), np.minimum(most, 1 - _NEVER))
    shift = np.zeros(len(mean))
    out = np.flatnonzero(np.abs(target - mean) > _NEVER / 10)
    at = fitted.offset[out] + fitted.slope[out] * z[:, out]
    shift[out] = find_shifts(at, target[out])
    return shift


@dataclass(frozen=True)
class _Fit:
    """P(present | x) by one assumption, its weight, and the factors of the labels per row."""

    assumption: str
    weight: float
    prior: np.ndarray
    low: float = 1.0
    high: float = 1.0


def _fit_assumptions(
    labels: np.ndarray,
    scores: np.ndarray,
    how: str,
    blank_is_empty: bool,
    only_shown: bool,
    propensity: np.ndarray | None,
) -> tuple[list[_Fit], Presence]:
    """Fit every assumption that the labels allow; also returns a fit to start the curves from."""
    if propensity is not None:
        propensity = np.asarray(propensity, float) / np.max(propensity)
    incomplete = (labels == UNKNOWN).any() and (labels == PRESENT).any()
    # The rows determine the level, so that one assumption is enough.
    if blank_is_empty or not incomplete:
        one = how == "single_positive" and bool((labels == UNKNOWN).any())
        kind = "single_positive" if one else "missing_at_random"
        fit = fit_presence(labels, scores, selection=kind, propensity=propensity)
        prior = fit.prior(scores)
        # Empty rows tell how many rows have a class, but not how many classes such a row has.
        missing = max(1 - float((labels == PRESENT).sum()) / max(float(prior.sum()), 1e-9), 0.0)
        low, high = (1 + one * missing * np.expm1(Z90 * end * NEXT_DOUBT) for end in (-1, 1))
        return [_Fit(kind, 1.0, prior, low, high)], fit
    # Where rows show one label each by design, blank rows tell nothing of the share.
    shares = fit_label_frequency(
        labels, scores, propensity, use_blank_rows=how == "missing_at_random",
        only_shown=only_shown,
    )  # fmt: skip
    by_share = [("missing_at_random", 1 - shares.nonempty), ("no empty row", shares.nonempty)]
    prior = shares.prior(scores)
    part = 1.0 if how == "missing_at_random" else 1 / 3
    low = shares.low
    if only_shown:
        # Nearly all labels may be shown instead, and every row have one.
        low = min(low, float((labels == PRESENT).sum()) / max(float(prior.sum()), 1e-9))
    found = [
        _Fit(name, part * weight, prior, low, shares.high)
        for name, weight in by_share
        if weight > 0
    ]
    if how == "missing_at_random":
        if only_shown and ((labels == PRESENT).sum(axis=1) == 1).mean() > 0.5:
            # Most rows show one label: every row may have been given one of its labels at least.
            some = draw_rows(labels.shape, _MOST_LABELS // 10, 0, labels == PRESENT)
            next_to = fit_presence(labels[some], scores[some], selection="single_positive")
            found.append(_Fit("single_positive", 0.0, next_to.prior(scores)))
        return found, shares.fits[0]
    # Which label is shown does not tell whether classes exclude each other: three equal weights.
    fits = [
        fit_presence(
            labels, scores, selection="single_positive", at_least_one=given, propensity=propensity
        )
        for given in (False, True)
    ]
    for name, fit in zip(("single_positive", "single_positive, at least one"), fits, strict=True):
        found.append(_Fit(name, 1 / 3, fit.prior(scores)))
    return found, fits[0]


def _check_knowledge(
    classes: int,
    selection: str,
    labels_per_row: float | None,
    prevalence: Mapping[int, float],
    propensity: np.ndarray | None,
) -> None:
    if selection not in SELECTIONS:
        raise ValueError(f"selection: expected {' or '.join(SELECTIONS)}, got {selection!r}")
    wrong = [share for share in prevalence.values() if not 0 < share < 1]
    if wrong:
        raise ValueError(f"prevalence: expected shares between 0 and 1, got {wrong[0]:g}")
    check_labels_per_row(labels_per_row, classes, prevalence)
    if propensity is not None:
        given = np.asarray(propensity, float)
        if given.shape != (classes,) or not (given > 0).all() or not np.isfinite(given).all():
            raise ValueError(
                f"propensity: expected {classes} positive numbers, one per class, got {propensity}"
            )


def check_labels_per_row(
    labels_per_row: float | None, classes: int, prevalence: Mapping[int, float]
) -> None:
    """Refuse a mean number of present classes that no probabilities between 0 and 1 add up to.

    `prevalence`: the known shares of rows, by class number.
    """
    low = sum(prevalence.values())
    high = low + classes - len(prevalence)
    if labels_per_row is None or (
        not isinstance(labels_per_row, str) and low < labels_per_row < high
    ):
        return
    least = f"the known prevalences add up to, {low:g}," if prevalence else "0"
    raise ValueError(
        f"labels_per_row (--labels-per-row): expected more than {least} and less than {high:g}, "
        f"which would be every class in every row, got {labels_per_row}"
    )


def _lists_only_shown(labels: np.ndarray, unlabelled_rows: str) -> bool:
    """Whether rows that show nothing are missing from the file: as the user says, or none is there.

    Then either they were left out, or nearly all labels are shown; the interval covers both.
    """
    if unlabelled_rows not in UNLABELLED_ROWS:
        expected = ", ".join(UNLABELLED_ROWS)
        raise ValueError(f"unlabelled_rows: expected {expected}, got {unlabelled_rows!r}")
    if unlabelled_rows == "dropped":
        check_unlabelled_rows(labels)
    listed = unlabelled_rows == "auto" and len(labels) >= _SOME_ROWS
    listed = listed and bool((labels == PRESENT).any(axis=1).all())
    return bool((listed or unlabelled_rows == "dropped") and (labels == UNKNOWN).any())


def check_unlabelled_rows(labels: np.ndarray) -> None:
    """Refuse rows that show nothing where the user says that such rows were left out."""
    if blank := int((~(labels == PRESENT).any(axis=1)).sum()):
        raise ValueError(
            "unlabelled_rows (--unlabelled-rows dropped): expected only rows that show a label, "
            f"got {blank:,} that show none; leave the option out or these rows"
        )


def _are_empty(blank: np.ndarray, z: np.ndarray) -> bool:
    """Whether rows without a label have no class: enough of them, with lower scores than others.

    Rows that nobody has looked at have the same scores as the others.
    """
    if blank.mean() < _SOME_BLANK or blank.all():
        return False
    # The expected number of labels, by which empty rows differ most.
    rank = sigmoid(z).sum(axis=1).argsort().argsort()
    above = rank[~blank].sum() - (~blank).sum() * ((~blank).sum() - 1) / 2
    return bool(above / (blank.sum() * (~blank).sum()) >= _APART)


def _add_intervals(
    fitted: Probabilities,
    z: np.ndarray,
    levels: list[np.ndarray],
    known: np.ndarray,
    least: np.ndarray,
    most: np.ndarray,
) -> Probabilities:
    """Add prevalences with intervals: over the fits, and widened by sampling and by doubt.

    There is no doubt about classes (K,) of which every label is `known`: their intervals are for
    other rows of the same kind. Those of other classes stay inside what is certain of these rows:
    the share that has the class (`least`), and that may have it (`most`).
    Of a class without a shown label nothing else is known.
    """
    p = fitted(z).mean(axis=0)
    low, high = np.minimum.reduce([p, *levels]), np.maximum.reduce([p, *levels])
    low, high = np.where(known, p, low), np.where(known, p, high)
    # Labels that are shown are no matter of doubt.
    missing = np.where(known, 0.0, np.maximum(1 - fitted.shown / (len(z) * p + 1e-9), 0.0))
    # A class with few shown labels is uncertain by their number alone.
    sampling = 1 / np.sqrt(np.maximum(fitted.shown, 1))
    doubt = missing * np.hypot(DOUBT, CLASS_DOUBT)
    factor = np.exp(Z90 * np.hypot(sampling, doubt))
    in_doubt = float(missing @ p) / max(float(p.sum()), 1e-12)
    total = np.hypot(DOUBT * in_doubt, 1 / np.sqrt(max(fitted.shown.sum(), 1)))
    wide = float(np.exp(Z90 * total))
    if known.all():
        least, most = np.zeros(len(p)), np.ones(len(p))
    ends = np.stack([low / factor, high * factor])
    ends[:, ~known & (fitted.shown == 0)] = [[0.0], [1.0]]
    inside = np.where(known, [[0.0], [1.0]], [np.minimum(least, p), np.maximum(most, p)])
    value = float(p.sum())
    count = Estimate(
        value,
        max(float(low.sum()) / wide, min(float(least.sum()), value)),
        min(float(high.sum()) * wide, max(float(most.sum()), value)),
    )
    bounds = np.stack([p, *np.clip(ends, *inside)], axis=1)
    return replace(fitted, prevalence=bounds, labels_per_row=count)


def _use_knowledge(
    fitted: Probabilities,
    z: np.ndarray,
    labels_per_row: float | None,
    prevalence: Mapping[int, float],
    least: np.ndarray,
) -> Probabilities:
    """Move the curves so that prevalences and labels per row are those that the user knows.

    Other classes have no smaller share of the rows than `least` (K,), which is shown.
    """
    offset, bounds, count = fitted.offset.copy(), fitted.prevalence.copy(), fitted.labels_per_row
    told = np.isin(np.arange(len(offset)), list(prevalence))
    if prevalence:
        shares = np.array([prevalence[k] for k in sorted(prevalence)])
        offset[told] += find_shifts(offset[told] + z[:, told] * fitted.slope[told], shares)
        more = float((shares - bounds[told, 0]).sum())
        ends = np.clip(np.add(list(vars(count).values()), more), 0.0, len(offset))
        count = Estimate(*map(float, ends))
        bounds[told] = shares[:, None]
    if labels_per_row is not None:
        rest = labels_per_row - sum(prevalence.values())
        at, floor = offset[~told] + z[:, ~told] * fitted.slope[~told], least[~told]
        floor = floor * min(1.0, rest / max(float(floor.sum()), 1e-12))
        shift = find_shift(at, rest)
        for _ in range(_STEPS):
            # Classes that would fall below what is shown stay there; the others take the rest.
            low = sigmoid(at + shift).mean(axis=0) < floor
            if not low.any() or low.all():
                break
            shift = find_shift(at[:, ~low], rest - float(floor[low].sum()))
        mean = sigmoid(at + shift).mean(axis=0)
        own = np.full(len(mean), shift)
        below = mean < floor - _NEVER
        own[below] += find_shifts(at[:, below] + shift, floor[below])
        mean = np.maximum(mean, floor)
        ratio = mean / np.maximum(bounds[~told, 0], 1e-12)
        offset[~told] += own
        ends = np.clip(bounds[~told] * ratio[:, None], floor[:, None], 1.0)
        bounds[~told] = ends
        count = Estimate(labels_per_row, labels_per_row, labels_per_row)
    return replace(fitted, offset=offset, prevalence=bounds, labels_per_row=count)


def _scale_labels(present: np.ndarray, open_ones: np.ndarray, factor: float) -> np.ndarray:
    """Move P(present) of open labels, all by the same logit, to `factor` times as many labels."""
    if factor == 1.0 or not open_ones.any():
        return present
    z = logit(present[open_ones])
    certain = float(present.sum()) - float(present[open_ones].sum())
    target = np.clip(factor * present.sum() - certain, 1e-6 * len(z), 0.999 * len(z))
    # One number needs few labels.
    some = z[:: max(len(z) // _LABELS_OF_SHIFT, 1)]
    moved = present.copy()
    moved[open_ones] = sigmoid(z + find_shift(some[None], float(target) * len(some) / len(z)))
    return moved
