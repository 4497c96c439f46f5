"""What a person looks at to decide: the picture of a row, or the columns of text and features."""

from __future__ import annotations

import io
from functools import cached_property
from pathlib import Path

import numpy as np
from PIL import Image

from halftruth.audit.folder import AuditFolder
from halftruth.data import BadImage, DataError, ImageStore
from halftruth.data.features import FEATURE_KEYS
from halftruth.data.readers.array_file import find_matrix, load_arrays
from halftruth.data.readers.columns import PROVENANCE
from halftruth.data.readers.text_table import SUFFIXES, Table, read_table

# Of a wide row only this many columns are shown, and of a long text this much.
_MOST_COLUMNS, _MOST_TEXT = 12, 600


class Rows:
    """The rows of the audited file, by their number there."""

    def __init__(self, audit: AuditFolder) -> None:
        self.audit = audit
        places = [Path(path) for path in audit.info["images"]]
        # Where the pictures have gone, the columns are still there.
        self.store = ImageStore(places) if places and all(p.exists() for p in places) else None

    def picture(self, item: str, side: int) -> bytes:
        """The picture as a JPEG of at most `side` pixels; `BadImage` where there is none."""
        if self.store is None:
            raise BadImage(item, "the audit has no images")
        picture = self.store.read(item, side)
        picture.thumbnail((side, side), Image.Resampling.LANCZOS)
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=85)
        return file.getvalue()

    def columns(self, row: int) -> list[tuple[str, str]]:
        """Name and text of what the row holds besides its labels, features included."""
        found = self._cells(self._table, row) + self._cells(self._features, row)
        if isinstance(self._features, np.ndarray):
            some = self._features[row][:_MOST_COLUMNS]
            found += [(f"feature {k}", f"{value:.4g}") for k, value in enumerate(some)]
        return [(name, text[:_MOST_TEXT]) for name, text in found[:_MOST_COLUMNS]]

    def _cells(self, table: object, row: int) -> list[tuple[str, str]]:
        if not isinstance(table, Table) or row >= table.rows:
            return []
        classes = self.audit.classes
        names = [name for name in table.columns if name not in {*classes, *PROVENANCE}]
        return [(name, str(table.columns[name][row])) for name in names]

    @cached_property
    def _table(self) -> Table | None:
        path = self.audit.labels_file
        if not path.name.lower().endswith(SUFFIXES) or not path.is_file():
            return None
        return read_table(path, self.audit.info["reading"].get("delimiter"))

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
