"""The rows of the audited file as a reviewer sees them: an image, or columns of text."""

from __future__ import annotations

import io
from functools import cached_property
from pathlib import Path

import numpy as np
from PIL import Image

from halftruth.audit.audit_folder import AuditFolder, find_reading_problem, find_roles
from halftruth.data import BadImage, DataError, ImageStore
from halftruth.data.feature_columns import FEATURE_KEYS
from halftruth.data.readers.label_table import PROVENANCE
from halftruth.data.readers.numpy_file import find_matrix, load_arrays
from halftruth.data.readers.text_table import SUFFIXES, Table, read_table
from halftruth.data.shards import exists
from halftruth.reading import text_options

# A wide row shows this many columns, and a long text this many characters.
_MOST_COLUMNS, _MOST_TEXT = 12, 600
# Columns whose cells have more characters in the mean, over the first rows, come first.
_LONG, _FIRST_ROWS = 40, 200


class ShownRows:
    """Images and columns of the rows of an audit."""

    def __init__(self, audit: AuditFolder) -> None:
        self.audit = audit
        sources = [Path(path) for path in audit.info["images"]]
        # Where the images were removed, the columns are still there.
        self.store = ImageStore(sources) if sources and all(map(exists, sources)) else None

    def image(self, item: str, side: int) -> bytes:
        """The image as a JPEG of at most `side` pixels; `BadImage` if the row has none."""
        if self.store is None:
            raise BadImage(item, "the audit has no images")
        image = self.store.read(item, side)
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
        file = io.BytesIO()
        image.save(file, "JPEG", quality=85)
        return file.getvalue()

    @property
    def feature_matrix(self) -> np.ndarray | None:
        """The features of the audited rows, where they are one array."""
        matrix, rows = self._features, self.audit.scored.rows
        if not isinstance(matrix, np.ndarray) or rows.max(initial=-1) >= len(matrix):
            return None
        return np.nan_to_num(np.asarray(matrix[rows], dtype=np.float32))

    def columns(self, row: int) -> list[tuple[str, str]]:
        """Name and text of the columns that are not labels, features included."""
        found, line = [], self._line(row)
        if self._table is not None and line < self._table.rows:
            found = [(name, str(self._table.columns[name][line])) for name in self._names]
        if isinstance(self._features, Table) and row < self._features.rows:
            cells = self._features.columns.items()
            found += [(name, str(column[row])) for name, column in cells]
        if isinstance(self._features, np.ndarray):
            some = self._features[row][:_MOST_COLUMNS]
            found += [(f"feature {k}", f"{value:.4g}") for k, value in enumerate(some)]
        return [(name, text[:_MOST_TEXT]) for name, text in found[:_MOST_COLUMNS]]

    def _line(self, row: int) -> int:
        """The row of the table, which differs where rows of an item were combined."""
        return row if self._lines is None else self._lines.get(row, len(self._lines))

    @cached_property
    def _lines(self) -> dict[int, int] | None:
        table, name = self._table, self._item
        if table is None or name is None or not find_reading_problem(self.audit.info["reading"]):
            return None
        first: dict[str, int] = {}
        for line, item in enumerate(table.columns[name]):
            first.setdefault(str(item), line)
        scored = self.audit.scored
        pairs = zip(scored.rows.tolist(), scored.items.tolist(), strict=True)
        return {row: first.get(item, table.rows) for row, item in pairs}

    @cached_property
    def _item(self) -> str | None:
        """The column that names the items, which the page shows anyway."""
        if self._table is None:
            return None
        return find_roles(self._table, self.audit.info["reading"]).item

    @cached_property
    def _names(self) -> list[str]:
        """The columns of the label file to show: long texts first."""
        table = self._table
        if table is None:
            return []
        known = {*self.audit.classes, *PROVENANCE}
        names = [name for name in table.columns if name not in known]
        others = [name for name in names if name != self._item]

        def is_long(name: str) -> bool:
            cells = table.columns[name][:_FIRST_ROWS]
            return sum(len(str(cell)) for cell in cells) > _LONG * len(cells)

        return sorted(others or names, key=lambda name: not is_long(name))

    @cached_property
    def _table(self) -> Table | None:
        path = self.audit.labels_file
        if not path.name.lower().endswith(SUFFIXES) or not path.is_file():
            return None
        return read_table(path, **text_options(self.audit.info["reading"]))

    @cached_property
    def _features(self) -> Table | np.ndarray | None:
        path = Path(self.audit.info["features"] or "")
        if not path.is_file() or path == self.audit.labels_file:
            return None
        try:
            if path.name.lower().endswith(SUFFIXES):
                return read_table(path)
            return find_matrix(load_arrays(path), FEATURE_KEYS, None, path)[0]
        except DataError:
            return None


def find_features(audit: AuditFolder) -> np.ndarray | None:
    """The features of the audited rows: of its folds, or of its feature file; None without any."""
    saved = sorted(audit.path.glob("folds*/features.npy"), key=lambda path: path.stat().st_mtime)
    for path in reversed(saved):
        matrix = np.load(path)
        if len(matrix) == len(audit.scored.rows):
            return np.asarray(matrix)
    return ShownRows(audit).feature_matrix
