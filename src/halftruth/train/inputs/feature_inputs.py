"""Features and text of a run, read from files or from memory, for training and for prediction."""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import nn

from halftruth.data import DataError
from halftruth.data.decode_images import describe_bad
from halftruth.data.errors import option, some
from halftruth.data.feature_blocks import BlockSource, open_blocks
from halftruth.data.feature_columns import FeatureColumns, feature_columns_from_frame
from halftruth.data.features import find_rows
from halftruth.data.hints import read_hint
from halftruth.data.images import open_images
from halftruth.data.readers.text_table import (
    SUFFIXES,
    find_item_column,
    index_ids,
    read_table,
)
from halftruth.data.remote import describe_file
from halftruth.data.shards import expand_shards
from halftruth.data.table_encoder import ColumnEncoder
from halftruth.data.text_encoder import check_texts
from halftruth.data.wide_matrix import Matrix, WideMatrix
from halftruth.labels import LabelMatrix
from halftruth.models.classifier import Standardize
from halftruth.reading import text_options
from halftruth.train.config import GIVEN, Config
from halftruth.train.inputs.feature_encoder import FeatureEncoder, options_for, read_sources

# Texts that are encoded at once.
TEXTS_AT_ONCE = 4096
# Numbers beyond those of training that are no accident: rows, and their share.
_FEW, _SHARE = 5, 0.2

# Fewer than 4 % of the training rows are as many standard deviations from the mean.
_FAR, _MOST_ROWS = 5.0, 2000

# Features of some rows (an array or a WideMatrix), their ids and texts, where they have any.
Encoded = tuple[Any, np.ndarray | None, list[str] | None]
Files = str | Path | Sequence[str | Path]


class NewRows:
    """What new rows have that training has not seen: counted by blocks, then said at once."""

    def __init__(self, encoder: FeatureEncoder) -> None:
        self.encoder, self.rows, self.empty = encoder, 0, 0
        # Per column: how many rows, and the first value.
        self.unseen: dict[ColumnEncoder, tuple[int, object]] = {}
        self.blank: Counter[ColumnEncoder] = Counter()

    def encode(
        self,
        sources: Sequence[FeatureColumns],
        texts: Sequence[str] | None = None,
        *more: np.ndarray | None,
    ) -> Matrix:
        """Return the matrix of a block of rows, and count them."""
        matrix = self.encoder.transform(sources, texts, *more)
        self.rows, self.empty = self.rows + len(matrix), self.empty + self._count_empty(matrix)
        for table, source in zip(self.encoder.tables, sources, strict=True):
            for one in () if table.is_plain else table.columns:
                values = source.columns[one.name]
                self.blank[one] += int(pd.isna(values).reshape(len(values), -1).all(axis=1).sum())
                if (new := one.find_unseen(values)).any():
                    count, first = self.unseen.get(one, (0, values[new.argmax()]))
                    self.unseen[one] = count + int(new.sum()), first
        return matrix

    def _count_empty(self, matrix: object) -> int:
        return int(self.encoder.find_empty(matrix).sum())

    def warn(self) -> None:
        """Warn of texts without a known term, and of columns with unseen values."""
        if self.empty:
            warnings.warn(
                f"{self.empty:,} of {self.rows:,} texts have no term that the run knows; each "
                "class has the same probability in all of them, its share of rows",
                stacklevel=4,
            )
        told = [
            f"{one.name!r} in {count / self.rows:.0%} of the rows, such as {str(first)!r}"
            + (f", beyond {one.span[0]:g} to {one.span[1]:g}" if one.span else "")
            for one, (count, first) in self.unseen.items()
            # A few new rows are always extreme; another unit moves most of them.
            if not one.span or count >= max(_FEW, _SHARE * self.rows)
        ]
        told += [
            f"{one.name!r} is blank in all rows"
            for one, count in self.blank.items()
            if count == self.rows >= _FEW
        ]
        if told:
            more = f"; and {len(told) - 5:,} more columns" if len(told) > 5 else ""
            warnings.warn(
                f"training has not seen these values: {'; '.join(told[:5])}{more}. Check the "
                "spelling and the units: such values predict little",
                stacklevel=4,
            )


def warn_of_far_columns(
    model: nn.Module, matrix: np.ndarray, names: Sequence[str] | None = None, stacklevel: int = 3
) -> None:
    """Warn of columns (N, D) that are far from the training rows of a model, as in other units."""
    first = next((one for one in model.modules() if isinstance(one, Standardize)), None)
    # The dense members of an ensemble on many sparse columns see some of them.
    if first is None or len(matrix) < _FEW or len(first.mean) != matrix.shape[1]:
        return
    some = np.asarray(matrix[:: -(-len(matrix) // _MOST_ROWS)], dtype=np.float32)
    z = np.abs((some - first.mean.cpu().numpy()) / first.std.cpu().numpy())
    far = np.flatnonzero((z > _FAR).sum(axis=0) >= max(_FEW, _SHARE * len(some)))
    if len(far):
        called = f"column {far[0]}" if names is None else repr(str(names[far[0]]))
        warnings.warn(
            f"training has not seen these values: {len(far):,} of {z.shape[1]:,} columns of the "
            f"features, such as {called}, are far from those of training in many rows. Check their "
            "order and the units: such values predict little",
            stacklevel=stacklevel,
        )


def read_inputs(
    config: Config,
    labels: LabelMatrix,
    table: str | Path,
    features: Sequence[str | Path],
    reading: Mapping[str, object] | None = None,
    images: Any = None,
) -> tuple[list[FeatureColumns], list[str] | None, np.ndarray | None]:
    """Read the sources of features, the texts and the images of the rows of a label file, `table`.

    `reading`: how the file is read, if it differs from the label file of the run. `images`: the
    `ImageFeatures` of the run, if it has images; its attribute `bad` then lists those that cannot
    be read.
    """
    sources = read_sources(features, labels, **feature_options(config)) if features else []
    pictures = None
    if images is not None:
        if labels.items is None:
            raise DataError(
                f"{table}: has no image names; give their column with {option('image_column')}"
            )
        pictures, images.bad = images.read(config, [str(item) for item in labels.items])
    if not config.text:
        return sources, None, pictures
    texts = read_texts(table, config.text, config.reading if reading is None else reading)
    if len(texts) != len(labels):
        raise DataError(
            f"{table}: has {len(texts):,} texts for {len(labels):,} items, since rows of one item "
            "were merged; remove the repeated rows, or pass duplicates='keep' (--duplicates keep)"
        )
    return sources, check_texts(texts, f"{table} column {config.text!r}"), pictures


def read_texts(table: str | Path, column: str, reading: Mapping[str, object]) -> list[str]:
    """Return the texts of a table, which may be long."""
    cells = read_table(Path(table), **text_options(reading)).column(column, "text")
    return [str(cell) for cell in cells]


def read_run_features(
    config: Config,
    encoder: FeatureEncoder,
    labels: LabelMatrix,
    table: str | Path,
    features: Files | None = None,
    reading: Mapping[str, object] | None = None,
) -> Any:
    """Return the features of the rows of a label file, as a trained run needs them.

    `features`: other files than those of training.
    """
    paths = config.features if features is None else list_files(features)
    if config.method == GIVEN:
        return read_scores(paths[0], labels)[0]
    found = read_inputs(config, labels, table, paths, reading, encoder.images)
    if encoder.images is not None and encoder.images.bad:
        raise DataError(describe_bad(encoder.images.bad, len(labels)))
    new = NewRows(encoder)
    matrix = new.encode(*found)
    new.warn()
    return matrix


def read_scores(path: str | Path, labels: LabelMatrix) -> tuple[np.ndarray, FeatureEncoder]:
    """Return the scores (N, K) of another model for the rows of the labels, and their encoder.

    Columns are the classes by name, or in their order where the file is an array.
    """
    found = read_hint(path, labels.classes, labels.items, len(labels))
    scores = found.scores
    if (at := found.note.find("warning: ")) >= 0:
        warnings.warn(f"{found.place}: {found.note[at + 9 :]}", stacklevel=2)
    if np.isnan(scores).any():
        row, column = np.argwhere(np.isnan(scores))[0]
        item = f"row {row + 1}" if labels.items is None else repr(str(labels.items[row]))
        raise DataError(
            f"{found.place}: expected a score of every class for every row, got none of "
            f"{labels.classes[column]!r} for {item} ({np.isnan(scores).sum():,} are missing)"
        )
    encoder = FeatureEncoder.for_matrix(len(labels.classes))
    if Path(path).suffix not in (".npy", ".npz"):
        columns = dict(zip(labels.classes, scores.T.astype(float), strict=True))
        source = FeatureColumns(columns, None, found.place, tuple(labels.classes))
        encoder = FeatureEncoder.fit([source], None, None, np.arange(len(labels)))
    return scores.astype(np.float32), encoder


def encode(
    config: Config,
    encoder: FeatureEncoder,
    features: Any = None,
    text: object = None,
    images: Any = None,
) -> Encoded:
    """Return the features of new rows as a trained run needs them, their ids and their texts.

    Warns of what training has not seen.

    features: files, a DataFrame, or an array of encoded features. text: a table with the column of
    text, a DataFrame, a text, or a list of texts. images: where the images are that the ids name.
    """
    if is_matrix(features):
        return _to_floats(features), None, None
    texts, ids = (None, None) if text is None else _read_texts(config, text)
    sources: list[FeatureColumns] = []
    if isinstance(features, pd.DataFrame):
        sources = [feature_columns_from_frame(features, **config.reading_features)]
    elif features is not None:
        sources = read_sources(list_files(features), **feature_options(config))
    if sources and ids is None:
        ids = sources[0].ids
    elif sources and ids is not None:
        # Those without ids have the order of the texts, as in training.
        sources = [
            source
            if source.ids is None
            else source.select(find_rows(source.ids, ids, source.place, "the table of texts"))
            for source in sources
        ]
    pictures = None
    if encoder.images is not None:
        if ids is None:
            raise DataError(
                "features: expected a column that names the image of each row, such as image or id"
            )
        names = [str(name) for name in ids]
        pictures, bad = encoder.images.transform(open_images(images), names, config.workers)
        if bad:
            raise DataError(describe_bad(bad, len(names)))
    new = NewRows(encoder)
    matrix = new.encode(sources, texts, pictures)
    new.warn()
    return matrix, ids, texts


class EncodedRows:
    """The rows of `encode`, read in blocks where the inputs allow it, otherwise all at once.

    Blocks are read of one .npy, Parquet or Arrow file (or shards of it), and texts are encoded in
    blocks where they are alone.
    """

    def __init__(
        self,
        config: Config,
        encoder: FeatureEncoder,
        features: Any = None,
        text: Any = None,
        images: Any = None,
    ) -> None:
        files = [] if features is None or is_matrix(features) else features
        paths = [] if isinstance(files, pd.DataFrame) else list_files(files)
        self.new, self.size = NewRows(encoder), 0.0
        self.source: BlockSource | None = None
        self.texts: list[str] | None = None
        self.ids: np.ndarray | None = None
        self.matrix: Any = None
        if text is None and images is None and len(paths) == 1:
            self.source = open_blocks(paths[0], options_for(paths[0], feature_options(config)))
            self.count = self.source.count
            self.size = sum(describe_file(one)[0] for one in expand_shards(paths[0]))
        elif text is not None and features is None and images is None:
            self.texts, self.ids = _read_texts(config, text)
            self.count = len(self.texts)
        else:
            self.matrix, self.ids, self.texts = encode(config, encoder, features, text, images)
            self.count = len(self.matrix)

    def blocks(self, first: int, last: int) -> Iterator[Encoded]:
        """Yield the rows from `first` to before `last`."""
        if self.source is not None:
            for block in self.source.blocks(first, last):
                yield self.new.encode([block]), block.ids, None
            return
        rows = TEXTS_AT_ONCE if self.matrix is None else last - first
        for at in range(first, last, rows):
            some = slice(at, min(at + rows, last))
            ids = None if self.ids is None else self.ids[some]
            texts = None if self.texts is None else self.texts[some]
            matrix = self.new.encode([], texts) if self.matrix is None else self.matrix[some]
            yield matrix, ids, texts


def feature_options(config: Config) -> dict[str, Any]:
    """Return the options for reading features; those of the labels name the ARFF labels."""
    options = dict(config.reading_features)
    if "arff_labels" in config.reading:
        options.setdefault("arff_labels", config.reading["arff_labels"])
    return options


def list_files(paths: Files) -> list[str | Path]:
    """Return one path or several as a list."""
    return [paths] if isinstance(paths, str | Path) else list(paths)


def is_matrix(values: Any) -> bool:
    """Return whether features are numbers in memory, not files and not a DataFrame."""
    if values is None or isinstance(values, str | Path | pd.DataFrame):
        return False
    if isinstance(values, WideMatrix):
        return True
    return not (len(values) and all(isinstance(path, str | Path) for path in values))


def _to_floats(features: object) -> object:
    """Return numbers in memory as float32; torch warns of arrays that cannot be written to."""
    if isinstance(features, WideMatrix):
        return features
    try:
        return np.require(features, np.float32, "W")
    except (TypeError, ValueError) as error:
        raise DataError(f"features: expected numbers (rows, columns): {error}") from error


def _read_texts(config: Config, source: Any) -> tuple[list[str], np.ndarray | None]:
    """The texts of a table, a DataFrame or of memory, and the ids of the rows."""
    assert config.text is not None
    # Texts of new rows may all be blank.
    _check = partial(check_texts, may_be_blank=True)
    if isinstance(source, pd.DataFrame):
        if config.text not in source.columns:
            raise DataError(
                f"DataFrame: expected the column of text {config.text!r}, as in training, got "
                f"{some(list(source.columns))}"
            )
        column = source[config.text]
        # Numbers are read as text; lists and the like are left for the error message.
        texts: list[Any] = [
            "" if gone else v if isinstance(v, list | tuple | dict | np.ndarray) else str(v)
            for v, gone in zip(column, column.isna(), strict=True)
        ]
        return _check(texts, f"DataFrame column {config.text!r}"), index_ids(source)
    if isinstance(source, str | Path):
        path = Path(source)
        if not path.is_file() and isinstance(source, str) and path.suffix not in SUFFIXES:
            return _check([source], "text"), None
        table = read_table(path, **text_options(config.reading))
        texts = list(table.column(config.text, "text"))
        chosen = config.reading.get("image_column")
        if chosen not in table.columns:
            chosen = find_item_column(table.columns)
        ids = None if chosen is None else np.array(table.texts(chosen, "image_column"))
        return _check(texts, f"{path} column {config.text!r}"), ids
    return _check(list(source), "text"), None
