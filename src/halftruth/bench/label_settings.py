"""Label settings by name: which labels of a complete data set a method may see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

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
    "confidence": "the probability of each class by some model",
}
Measures = Mapping[str, np.ndarray]
# Complete labels, measures and a random generator -> weights, (N, K) or (K,).
Weigh = Callable[[np.ndarray, Measures, np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class Bias:
    """A rule of who is shown: a weight per label, drawn in proportion or largest first."""

    weigh: Weigh
    largest_first: bool = False
    measure: str | None = None


def _draw_order(complete: np.ndarray, _: Measures, rng: np.random.Generator) -> np.ndarray:
    """The annotator's order of the classes."""
    return rng.permutation(complete.shape[1]) + 1.0


def _frequency(complete: np.ndarray, *_: Any) -> np.ndarray:
    return frequency_weights(complete)


def _rarity(complete: np.ndarray, *_: Any) -> np.ndarray:
    return frequency_weights(complete, rare_first=True)


def _area(_: Any, measures: Measures, __: Any) -> np.ndarray:
    return measures["area"]


def _centre(_: Any, measures: Measures, __: Any) -> np.ndarray:
    return centre_weights(measures["centre_distance"])


def _confidence(_: Any, measures: Measures, __: Any) -> np.ndarray:
    return measures["confidence"]


BIASES = {
    "size": Bias(_area, measure="area"),
    "largest": Bias(_area, True, measure="area"),
    "centre": Bias(_centre, measure="centre_distance"),
    "most-central": Bias(_centre, True, measure="centre_distance"),
    "frequent": Bias(_frequency),
    "most-frequent": Bias(_frequency, True),
    "rare": Bias(_rarity),
    "rarest": Bias(_rarity, True),
    "confident": Bias(_confidence, measure="confidence"),
    "most-confident": Bias(_confidence, True, measure="confidence"),
    "class-order": Bias(_draw_order, True),
}
SETTINGS = ("complete", "single", *_LEFT, "drop-R", "known-F", *BIASES, "unused-C")


def hide(
    complete: np.ndarray, setting: str, seed: int = 1200, measures: Measures | None = None
) -> np.ndarray:
    """Hide complete labels as a label setting does; return a new (N, K) array.

    complete: nothing is hidden. single: one PRESENT label per row; seed 1200 is the published draw
    of Cole et al., if rows and classes are in their order. left-75, left-40: what Zhang et al.
    call 75 % and 40 % of the labels left (r = 0.5 and 0.8); drop-R: the same with any r. known-F:
    that share of all known labels, PRESENT and ABSENT alike.

    Labels that are not missing at random, one per row, or with -R (frequent-0.4) a share R of all
    PRESENT labels: size and largest, centre and most-central, confident and most-confident (these
    need `measures`, see `MEASURES`), frequent and most-frequent, rare and rarest: in proportion,
    and always the first. class-order: always the first in an order of the classes that the seed
    draws. unused-C: uniform, but a share C of the classes, drawn by the seed, is never shown.

    >>> hide(np.array([[1, -1, 1], [-1, 1, -1]]), "single").tolist()
    [[1, 0, 0], [0, 1, 0]]
    """
    return find_setting(setting)(complete, check_seed(seed), measures or {})


def find_setting(setting: str) -> Callable[[np.ndarray, int, Measures], np.ndarray]:
    """Return the function (complete labels, seed, measures) -> labels of a label setting."""
    if setting == "complete":
        return lambda complete, *_: np.array(complete, dtype=np.int8)
    if setting == "single":
        return lambda complete, seed, _: single_positive_published(complete, seed)
    if setting in _LEFT:
        return lambda complete, seed, _: drop_positives(complete, _LEFT[setting], seed)
    if setting in BIASES:
        return _biased(setting, BIASES[setting], None)
    kind, _, number = setting.rpartition("-")
    share = _share(number)
    if share is not None:
        if kind in ("drop", "known"):
            show = drop_positives if kind == "drop" else keep_known
            return lambda complete, seed, _: show(complete, share, seed)
        if kind in BIASES:
            return _biased(setting, BIASES[kind], share)
        if kind == "unused":
            return _biased(setting, Bias(_without(share)), None)
        first, _, number = kind.rpartition("-")
        unused = _share(number)
        if first == "unused" and unused is not None:
            return _biased(setting, Bias(_without(unused)), share)
    raise DataError(
        f"labels={setting!r} is not a label setting; expected one of {', '.join(SETTINGS)}, "
        "with R, F and C between 0 and 1, as in drop-0.5, known-0.1, frequent-0.4 and unused-0.2"
    )


def needs_measure(setting: str) -> bool:
    """Whether a label setting shows labels by numbers that only some data sets have."""
    first = setting.rpartition("-")[0]
    return any(name in BIASES and BIASES[name].measure is not None for name in (setting, first))


def _biased(
    setting: str, bias: Bias, share: float | None
) -> Callable[[np.ndarray, int, Measures], np.ndarray]:
    def show(complete: np.ndarray, seed: int, measures: Measures) -> np.ndarray:
        if bias.measure is not None and bias.measure not in measures:
            raise DataError(
                f"labels={setting!r} needs {MEASURES[bias.measure]}, and the data set has no "
                f"{bias.measure!r}; the reader `table` takes a .npz file of it as `measures` (docs/"
                "datasets.md)"
            )
        # Its own stream: the classes an annotator prefers are not tied to the draw of the labels.
        rng = np.random.default_rng([seed, 1])
        weights = bias.weigh(np.asarray(complete), measures, rng)
        try:
            return keep_by_weight(
                complete, weights, share, largest_first=bias.largest_first, seed=seed
            )
        except ValueError as error:
            raise DataError(f"labels={setting!r}: {error}") from error

    return show


def _without(share: float) -> Weigh:
    def weigh(complete: np.ndarray, _: Any, rng: np.random.Generator) -> np.ndarray:
        width = complete.shape[1]
        found = np.ones(width)
        # At least one class stays in use.
        found[rng.permutation(width)[: min(round(share * width), width - 1)]] = 0.0
        return found

    return weigh


def _share(text: str) -> float | None:
    try:
        share = float(text)
    except ValueError:
        return None
    return share if 0.0 <= share <= 1.0 else None
