"""Label settings by name: how much of the complete labels a method may see."""

from __future__ import annotations

import numpy as np

from halftruth.data.errors import DataError
from halftruth.labels.hiding import drop_positives, keep_known, single_positive_published

# The names of Zhang et al. (Hill, SPLC) and the r behind them: the share left depends on the data.
_LEFT = {"left-75": 0.5, "left-40": 0.8}
SETTINGS = ("complete", "single", *_LEFT, "drop-R", "known-F")


def hide(complete: np.ndarray, setting: str, seed: int = 1200) -> np.ndarray:
    """The labels that a setting shows of complete ones, as a new (N, K) array.

    complete: all of them. single: one PRESENT label a row, with seed 1200 the published draw of
    Cole et al., where rows and classes come in their order. left-75, left-40: what Zhang et al.
    call 75 % and 40 % of the labels left (r = 0.5 and 0.8); drop-R: the same with any r. known-F:
    that share of all known labels, PRESENT and ABSENT alike.

    >>> hide(np.array([[1, -1, 1], [-1, 1, -1]]), "single").tolist()
    [[1, 0, 0], [0, 1, 0]]
    """
    if setting == "complete":
        return np.array(complete, dtype=np.int8)
    if setting == "single":
        return single_positive_published(complete, seed)
    if setting in _LEFT:
        return drop_positives(complete, _LEFT[setting], seed)
    kind, _, number = setting.partition("-")
    share = _share(number)
    if share is None or kind not in ("drop", "known"):
        raise DataError(
            f"labels={setting!r} is no label setting; expected one of {', '.join(SETTINGS)}, with "
            "R and F between 0 and 1, as in drop-0.5 and known-0.1"
        )
    show = drop_positives if kind == "drop" else keep_known
    return show(complete, share, seed)


def _share(text: str) -> float | None:
    try:
        share = float(text)
    except ValueError:
        return None
    return share if 0.0 <= share <= 1.0 else None
