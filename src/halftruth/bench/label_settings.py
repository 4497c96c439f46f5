"""Label settings by name: which labels of a complete data set a method may see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from halftruth.data.errors import DataError
from halftruth.labels.biased_hiding import centre_weights, frequency_weights, keep_by_weight
from halftruth.labels.hiding import drop_positives, keep_known, single_positive_published
from halftruth.seeds import check_seed

# The settings of Zhang et al. (Hill, SPLC) and their r: the share left depends on the data.
_LEFT = {"left-75": 0.5, "left-40": 0.8}
# The measures of each label, (N, K), that a data set may have, in words.
MEASURES = {
    "area": "the share of the image that the objects of a class cover",
    "centre_distance": "the distance of the nearest object of a class from the image centre",
}
Measures = Mapping[str, np.ndarray]
# Complete labels, measures and a random generator -> weights, (N, K) or (K,).
Weigh = Callable[[np.ndarray, Measures, np.random.Generator], np.ndarray]
# Complete labels, seed and measures -> labels.
Show = Callable[[np.ndarray, int, Measures], np.ndarray]


@dataclass(frozen=True)
class Bias:
    """A rule of who is shown: a weight per label, drawn in proportion or largest first."""

    weigh: Weigh
    largest_first: bool = False
    measure: str | None = None


def _by_measure(name: str, largest_first: bool = False) -> Bias:
    return Bias(lambda complete, measures, rng: measures[name], largest_first, name)


def _by_centre(largest_first: bool = False) -> Bias:
    measure = "centre_distance"
    return Bias(lambda _, measures, rng: centre_weights(measures[measure]), largest_first, measure)


def _by_frequency(rare_first: bool, largest_first: bool = False) -> Bias:
    return Bias(lambda complete, *_: frequency_weights(complete, rare_first=rare_first),
                largest_first)  # fmt: skip


BIASES = {
    "size": _by_measure("area"),
    "largest": _by_measure("area", True),
    "centre": _by_centre(),
    "most-central": _by_centre(True),
    "frequent": _by_frequency(False),
    "most-frequent": _by_frequency(False, True),
    "rare": _by_frequency(True),
    "rarest": _by_frequency(True, True),
    # The seed draws the annotator's order of the classes.
    "class-order": Bias(lambda complete, _, rng: rng.permutation(complete.shape[1]) + 1.0, True),
}
SETTINGS = ("complete", "single", *_LEFT, "drop-R", "known-F", *BIASES)


def hide(
    complete: np.ndarray, setting: str, seed: int = 1200, measures: Measures | None = None
) -> np.ndarray:
    """Hide complete labels as a label setting does; return a new (N, K) array.

    complete: nothing is hidden. single: one PRESENT label per row; seed 1200 is the published draw
    of Cole et al., if rows and classes are in their order. left-75, left-40: what Zhang et al.
    call 75 % and 40 % of the labels left (r = 0.5 and 0.8); drop-R: the same with any r. known-F:
    that share of all known labels, PRESENT and ABSENT alike.

    Labels that are not missing at random, one per row, or with -R (frequent-0.4) a share R of all
    PRESENT labels: size and largest, centre and most-central (these need `measures`, see
    `MEASURES`), frequent and most-frequent, rare and rarest: in proportion, and always the first.
    class-order: always the first in an order of the classes that the seed draws.

    >>> hide(np.array([[1, -1, 1], [-1, 1, -1]]), "single").tolist()
    [[1, 0, 0], [0, 1, 0]]
    """
    return find_setting(setting)(complete, check_seed(seed), measures or {})


def find_setting(setting: str) -> Show:
    """Return the function (complete labels, seed, measures) -> labels of a label setting."""
    name, shares = _split(setting)
    if name in BIASES and len(shares) <= 1:
        return _biased(setting, BIASES[name], *shares)
    match name, shares:
        case "complete", []:
            return lambda complete, *_: np.array(complete, dtype=np.int8)
        case "single", []:
            return lambda complete, seed, _: single_positive_published(complete, seed)
        case "left-75" | "left-40", []:
            return lambda complete, seed, _: drop_positives(complete, _LEFT[name], seed)
        case "drop" | "known", [share]:
            hidden = drop_positives if name == "drop" else keep_known
            return lambda complete, seed, _: hidden(complete, share, seed)
    raise DataError(
        f"labels={setting!r} is not a label setting; expected one of {', '.join(SETTINGS)}, "
        "with R and F between 0 and 1, as in drop-0.5, known-0.1 and frequent-0.4"
    )


def needs_measure(setting: str) -> bool:
    """Whether a label setting shows labels by numbers that only some data sets have."""
    name, _ = _split(setting)
    return name in BIASES and BIASES[name].measure is not None


def _split(setting: str) -> tuple[str, list[float]]:
    """The name of a setting, and the shares at its end."""
    name, shares = setting, list[float]()
    while True:
        first, dash, number = name.rpartition("-")
        try:
            share = float(number) if dash else -1.0
        except ValueError:
            share = -1.0
        if not 0.0 <= share <= 1.0:
            return name, shares
        name, shares = first, [share, *shares]


def _biased(setting: str, bias: Bias, share: float | None = None) -> Show:
    def show(complete: np.ndarray, seed: int, measures: Measures) -> np.ndarray:
        if bias.measure is not None and bias.measure not in measures:
            raise DataError(
                f"labels={setting!r} needs {MEASURES[bias.measure]}, and the data set has no "
                f"{bias.measure!r}; the reader `table` takes a .npz file of it as `measures` (docs/"
                "datasets.md)"
            )
        # Its own stream: the classes an annotator prefers are not tied to the draw of the labels.
        weights = bias.weigh(np.asarray(complete), measures, np.random.default_rng([seed, 1]))
        try:
            return keep_by_weight(
                complete, weights, share, largest_first=bias.largest_first, seed=seed
            )
        except ValueError as error:
            raise DataError(f"labels={setting!r}: {error}") from error

    return show
