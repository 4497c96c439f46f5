"""Methods of the papers that are a loss together with training settings, by their own name."""

from collections.abc import Mapping
from typing import Any

# Name -> what it is, and its settings; settings and options that the user gives replace these.
NAMED: dict[str, tuple[str, dict[str, Any]]] = {
    "l1r": (
        "Zhou et al. 2022: bce with a penalty on the absolute weights (l1, 1e-9 to 1e-5)",
        {"method": "bce", "l1": 1e-6},
    ),
    "l2r": (
        "Zhou et al. 2022: bce with a penalty on the squared weights (weight_decay with adam, "
        "1e-9 to 1e-5)",
        {"method": "bce", "weight_decay": 1e-6, "optimizer": "adam"},
    ),
    "n-ls": (
        "Zhou et al. 2022: label smoothing of the assumed negatives only",
        {"method": "an-ls", "options": {"sides": "negative"}},
    ),
    "role-li": (
        "Cole et al. 2021: ROLE + LinearInit, the head alone first (25 epochs), then all layers",
        {"method": "role", "tune": "head-first", "head_epochs": 25, "head_lr": 1e-3},
    ),
    "boostlu": (
        "Kim et al. 2023: LL-R with the head boostlu, which boosts the positive part of class "
        "maps (images only)",
        {"method": "ll-r", "head": "boostlu", "tune": "all"},
    ),
}


def expand_named_method(settings: Mapping[str, Any]) -> dict[str, object]:
    """Settings in which a named method is replaced by its loss and its settings.

    >>> expand_named_method({"method": "l1r", "epochs": 5})
    {'method': 'bce', 'l1': 1e-06, 'epochs': 5}
    """
    name = settings.get("method")
    if not isinstance(name, str) or name not in NAMED:
        return dict(settings)
    own = NAMED[name][1]
    given = {key: value for key, value in settings.items() if key != "method"}
    found = {**own, **given}
    if "options" in own:
        found["options"] = {**own["options"], **(given.get("options") or {})}
    return found
