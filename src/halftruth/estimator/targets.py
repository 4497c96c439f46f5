"""Checks of labels, weights and settings that scikit-learn users pass."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from halftruth import labels as label_codes
from halftruth.data.complete_rows import check_complete_rows
from halftruth.data.errors import some
from halftruth.labels import MANY_CLASSES, SparseLabels
from halftruth.labels.checks import Array
from halftruth.models.ensemble import MEMBERS
from halftruth.train.inputs.batches import is_sparse, to_dense


def fill_missing(y: Any) -> object:
    """Return labels with 0 (unknown) where they are missing: NaN, None, pandas NA, masked."""
    if y is None or is_sparse(y):
        return y
    if np.ma.isMaskedArray(y):
        missing, values = np.ma.getmaskarray(y), np.ma.getdata(y)
    elif hasattr(y, "isna"):
        missing, values = np.asarray(y.isna()), y.to_numpy(dtype=object, na_value=0)
    else:
        values = np.asarray(y)
        if values.dtype.kind not in "fO":
            return y
        # NaN is the only value that differs from itself.
        missing = (values != values) | (values == None)  # noqa: E711
    if not np.any(missing):
        return y
    filled = np.where(missing, 0, values)
    if (filled[~missing] == 0).any() and not (filled == -1).any():
        warnings.warn(
            "y has missing values and 0, and both are read as unknown; where 0 is verified as "
            "absent, use halftruth.labels.from_zero_absent(y)",
            stacklevel=3,
        )
    return filled.astype(float) if filled.dtype == object else filled


def check_same_order(X: object, y: object) -> None:
    """Refuse indices that name the same rows in another order; question those of other rows."""
    ours: Any = getattr(X, "index", None)
    theirs: Any = getattr(y, "index", None)
    if not hasattr(ours, "equals") or not hasattr(theirs, "equals") or ours.equals(theirs):
        return
    if len(ours) != len(theirs) or not ours.is_unique:
        return
    if set(ours) == set(theirs):
        raise ValueError(
            "y: its index names the rows of X in another order; pass y.loc[X.index], or "
            "y.reset_index(drop=True) and X.reset_index(drop=True) if the order is right"
        )
    if not any(index.equals(pd.RangeIndex(len(index))) for index in (ours, theirs)):
        warnings.warn(
            "X and y have different indices; the rows of y are taken in the order of X",
            stacklevel=3,
        )


def refuse_dates(X: object) -> None:
    """Refuse an array of dates or times, which would be read as nanoseconds."""
    kinds = list(X.dtypes) if isinstance(X, pd.DataFrame) else [getattr(X, "dtype", None)]
    if dates := [kind for kind in kinds if getattr(kind, "kind", "O") in "mM"]:
        raise ValueError(f"X: holds dates or times ({dates[0]}); expected numbers, such as days")


@contextmanager
def explain(X: object, y: object) -> Iterator[None]:
    """Add to an error of scikit-learn or NumPy what is wrong with the features or labels."""
    try:
        yield
    except (TypeError, ValueError, RuntimeError) as error:
        if hint := _find_reason(X, y):
            raise ValueError(f"{hint} ({str(error).partition(chr(10))[0]})") from error
        raise


def _find_reason(X: object, y: object) -> str | None:
    """Say what features or labels are, if they are something else than numbers in a table."""
    for name, given in (("X", X), ("y", y)):
        if isinstance(given, dict):
            return f"{name}: expected an array or a DataFrame, got a dict; use pandas.DataFrame"
        if getattr(given, "requires_grad", False):
            return f"{name}: is a tensor that requires gradients; pass {name}.detach()"
    kinds = X.dtypes.items() if hasattr(X, "dtypes") and hasattr(X, "columns") else ()
    if texts := [name for name, kind in kinds if getattr(kind, "kind", "O") not in "biuf"]:
        return (
            f"X: the columns {some(texts)} hold no numbers; encode them, for instance with "
            "sklearn.preprocessing.OneHotEncoder, or train from a table with halftruth.fit"
        )
    if isinstance(X, list | np.ndarray) and len(X) and isinstance(X[0], str):
        return (
            "X: expected numbers, got texts; sklearn.feature_extraction.text.TfidfVectorizer makes "
            "features of them, or train from a table with halftruth.fit(..., text=COLUMN)"
        )
    cells: Any = np.asarray(X) if isinstance(X, np.ndarray) or hasattr(X, "to_numpy") else None
    if cells is not None and cells.dtype.kind == "f" and (missing := int(np.isnan(cells).sum())):
        return (
            f"X: {missing:,} of {cells.size:,} cells are NaN; fill them in, for instance with "
            "sklearn.impute.SimpleImputer, or train from a table with halftruth.fit, which does"
        )
    first = y[0] if isinstance(y, list | np.ndarray) and len(y) else None
    is_list = isinstance(first, list | tuple) and any(isinstance(one, str) for one in first)
    if is_list or isinstance(first, set | frozenset | str):
        return (
            "y: expected a matrix with one column per class, got names of classes; "
            "sklearn.preprocessing.MultiLabelBinarizer converts them"
        )
    values: Any = np.asarray(y) if isinstance(y, np.ndarray) or hasattr(y, "to_numpy") else None
    is_soft = getattr(values, "ndim", 0) == 2 and values.dtype.kind == "f" and values.size
    if is_soft and values.min() >= 0 and values.max() <= 1:
        return (
            "Unknown label type: y holds probabilities (soft labels), which only halftruth.fit "
            "takes (soft=True); here labels are 1, 0 and -1"
        )
    return None


def order_columns(y: Any, classes: np.ndarray) -> object:
    """Return a DataFrame of labels with its columns in the order of `classes`, by their names."""
    names = getattr(y, "columns", None)
    if names is None or np.array_equal(names, classes):
        return y
    if set(names) != set(classes.tolist()):
        if classes.dtype.kind == "i":
            # The labels of `fit` had no names.
            return y
        raise ValueError(
            f"y: expected the columns {', '.join(map(str, classes))}, as in fit, got "
            f"{', '.join(map(str, names))}"
        )
    return y[list(classes)]


def to_labels(y: np.ndarray | csr_matrix) -> np.ndarray:
    """Return the labels as int8; other targets get the messages of scikit-learn."""
    y = to_dense(y)
    try:
        return np.ascontiguousarray(label_codes.check(y))
    except ValueError:
        check_classification_targets(y)
        if np.ndim(y) == 1 and type_of_target(y) == "multiclass":
            raise ValueError(
                "Only binary classification is supported, with one column per class, got one "
                "column of several classes; sklearn.preprocessing.label_binarize converts it"
            ) from None
        raise


def to_sparse_labels(y: object) -> SparseLabels:
    """Return labels of many classes, which may be a scipy matrix, as sparse ones."""
    if is_sparse(y):
        return SparseLabels.from_scipy(y)
    return SparseLabels.from_dense(to_labels(y))


def check_any_present(present: np.ndarray, count: int) -> None:
    """Refuse labels without a single present one."""
    if not present.any():
        raise ValueError(
            f"no label of the {count:,} rows is present (1), so there is no class to learn; 1 "
            "means present, 0 unknown, -1 absent"
        )


def mark_complete_rows(y: np.ndarray, complete_rows: object) -> np.ndarray:
    """Return labels whose unknown ones are absent in the complete rows."""
    new = check_complete_rows(complete_rows, len(y))[:, None] & (y == label_codes.UNKNOWN)
    if not new.any():
        raise ValueError(
            "complete_rows: has no effect, since the labels of these rows are all known already"
        )
    return np.where(new, np.int8(label_codes.ABSENT), y)


def check_sample_weight(
    weights: Array | None, X: np.ndarray | csr_matrix, y: np.ndarray | csr_matrix
) -> np.ndarray | None:
    """Return weights per row (N, 1) or per label (N, K) in float32."""
    if weights is None:
        return None
    weights = np.asarray(weights)
    if weights.ndim == 0:
        weights = np.full(X.shape[0], weights)
    try:
        found = label_codes.check_weights(weights, (X.shape[0], y.shape[1] if y.ndim > 1 else 1))
    except ValueError as error:
        raise ValueError(f"sample_weight: {error}") from None
    if not found.any():
        raise ValueError("sample_weight: every weight is zero, so there is nothing to learn from")
    return found


def find_counted(weights: np.ndarray) -> np.ndarray:
    """Return the rows that have a weight other than 0."""
    rows = np.flatnonzero(weights.any(axis=1))
    if len(rows) < 2:
        raise ValueError(
            "sample_weight: expected at least 2 rows with a weight above 0, got one row"
        )
    return rows


def refuse_with_many_classes(weights: np.ndarray | None, **given: object) -> None:
    """Refuse arguments about single labels or classes, which that model does not take."""
    if named := [name for name, value in given.items() if value is not None]:
        raise ValueError(
            f"{', '.join(named)}: not available with more than {MANY_CLASSES:,} classes; leave it "
            'out, or name a method ("ensemble", "swan")'
        )
    if weights is not None and weights.shape[1] > 1:
        raise ValueError(
            f"sample_weight: with more than {MANY_CLASSES:,} classes, expected one weight per "
            f"row, got shape {weights.shape}"
        )


def find_problems(
    members: Sequence[object],
    val: object,
    patience: object,
    prevalence: object = None,
    complete_classes: object = None,
) -> list[str]:
    """Return the problems of the settings that `Config` does not have."""
    found = []
    if isinstance(val, bool) or not isinstance(val, (int, float)) or not 0 <= val < 1:
        found.append(f"val: expected a share in [0, 1), got {val!r}")
    elif not val and patience is not None:
        found.append("val: patience needs held-out rows, for instance val=0.2")
    if members is not None:
        listed = [] if isinstance(members, str) else list(members)
        if not listed or not set(listed) <= set(MEMBERS) or len(set(listed)) < len(listed):
            found.append(
                f"members: expected a list of {', '.join(MEMBERS)}, each once, got {members!r}"
            )
    if prevalence is not None and not isinstance(prevalence, Mapping):
        found.append(f"prevalence: expected a dict of classes and shares, got {prevalence!r:.80}")
    if isinstance(complete_classes, str):
        found.append(f"complete_classes: expected a list of classes, got {complete_classes!r}")
    return found
