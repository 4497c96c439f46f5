"""One matrix from all inputs of a run that are not images: tables, matrices, text.

`FeatureEncoder.fit` learns on the training rows what the columns and texts become; a run keeps it
in its folder (encoder.json, encoder.npz), and applies it to whatever it predicts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from halftruth.data.errors import DataError, nearest
from halftruth.data.feature_columns import MATRIX, FeatureColumns, read_feature_columns
from halftruth.data.features import find_rows, match_rows, refuse_labels
from halftruth.data.table_encoder import TableEncoder
from halftruth.data.text_encoder import TextEncoder
from halftruth.data.wide_matrix import Matrix, WideMatrix
from halftruth.labels import LabelMatrix
from halftruth.models.weights import ModelError

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

JSON, ARRAYS = "encoder.json", "encoder.npz"
# The folder with the tokenizer of a fine-tuned language model.
ENCODER = "encoder"


@dataclass(frozen=True)
class FeatureEncoder:
    """The encoders of the sources of features, in order, and of the text."""

    tables: tuple[TableEncoder, ...] = ()
    # A TextEncoder, or a TextTokens for a language model that is fine-tuned.
    text: Any = None
    # A LanguageModel, whose features of the text stand beside its terms.
    language: Any = None
    # An ImageFeatures, if the run also has images.
    images: Any = None
    # All terms of the text are features, as a sparse matrix; otherwise the chosen ones, dense.
    wide: bool = False

    @classmethod
    def fit(
        cls,
        sources: Sequence[FeatureColumns],
        texts: Sequence[str] | None,
        labels: np.ndarray | None,
        rows: np.ndarray,
        encoder: str | None = None,
        tuned: bool = False,
        images: object = None,
        sampled: bool = False,
        wide: bool = False,
    ) -> FeatureEncoder:
        """Learn from the training rows.

        sampled: the sources are training rows only, not all rows. wide: `transform` returns all
        terms of a text, not only those that fit into a dense matrix.

        labels: those of all rows, by which the terms of a text are chosen; None where the rows will
        also be scored, and their labels must not be known. encoder: a transformers model that reads
        the text beside TF-IDF; tuned: it is fine-tuned instead, and a text becomes tokens.
        """
        text: object = None
        language: object = None
        if texts is not None and encoder is not None and tuned:
            from halftruth.models.language_model import TextTokens

            text = TextTokens.fit(encoder, [texts[row] for row in rows])
        elif texts is not None:
            text = TextEncoder.fit(texts, labels, rows, wide=wide)
            if encoder is not None:
                from halftruth.models.language_model import LanguageModel

                language = LanguageModel(encoder)
        return cls(
            tuple(
                TableEncoder.fit(source, np.arange(len(source)) if sampled else rows)
                for source in sources
            ),
            text,
            language,
            images,
            wide and isinstance(text, TextEncoder) and text.leaves_out_terms,
        )

    def transform(
        self,
        sources: Sequence[FeatureColumns],
        texts: Sequence[str] | None = None,
        pictures: np.ndarray | None = None,
    ) -> Matrix:
        """Return the (N, D) float32 matrix of some rows; `pictures`: the features of images.

        It is a NumPy array, or a `WideMatrix` where the encoder is wide.
        """
        if len(sources) != len(self.tables):
            raise DataError(
                f"features: expected {len(self.tables)} sources, as in training, got {len(sources)}"
            )
        if (texts is None) != (self.text is None):
            raise DataError("text: " + ("is missing" if texts is None else "was not in training"))
        blocks = [
            table.transform(source) for table, source in zip(self.tables, sources, strict=True)
        ]
        if pictures is not None:
            blocks.append(pictures)
        if texts is not None:
            if self.language is not None:
                blocks.append(self.language.transform(texts))
            encode = self.text.encode_sparse if self.wide else self.text.transform
            blocks.append(encode(texts))
        if len({block.shape[0] for block in blocks}) > 1:
            rows = ", ".join(f"{block.shape[0]:,}" for block in blocks)
            raise DataError(f"features: expected as many rows in every source, got {rows}")
        if self.wide:
            return self._make_wide(blocks)
        return blocks[0] if len(blocks) == 1 else np.hstack(blocks)

    def _make_wide(self, blocks: list[np.ndarray | csr_matrix]) -> WideMatrix:
        """Return dense columns (tables, images, language model) and all terms as one matrix."""
        from scipy import sparse  # type: ignore[import-untyped]

        others = sum(block.shape[1] for block in blocks[:-1])
        columns = np.concatenate([np.arange(others), others + self.text.chosen])
        parts = [*map(sparse.csr_matrix, blocks[:-1]), blocks[-1]]
        matrix = parts[0] if len(parts) == 1 else sparse.hstack(parts, "csr", np.float32)
        return WideMatrix(matrix, columns, others)

    def find_empty(self, matrix: Any) -> np.ndarray:
        """Return the rows (N,) of text alone in which the model knows no term."""
        more = self.tables or self.images is not None or self.language is not None
        if more or not isinstance(self.text, TextEncoder):
            return np.zeros(len(matrix), dtype=bool)
        if isinstance(matrix, WideMatrix):
            return np.diff(matrix.sparse.indptr) == 0
        return ~matrix.any(axis=1)

    @property
    def outputs(self) -> list[str]:
        """The names of the columns of the matrix."""
        names = [name for table in self.tables for name in table.outputs]
        names += [] if self.images is None else self.images.outputs
        if self.text is None:
            return names
        names += [] if self.language is None else self.language.outputs
        return names + (self.text.all_outputs if self.wide else self.text.outputs)

    @property
    def one_scale(self) -> np.ndarray | None:
        """Columns that must keep their scales relative to each other: TF-IDF, None if none.

        Standardised one by one, a rare term would count a hundred times as much as a common one.
        """
        if not isinstance(self.text, TextEncoder) or self.wide:
            # A wide matrix knows them itself.
            return None
        width = len(self.outputs)
        return np.arange(width - len(self.text.chosen), width)

    @property
    def is_plain(self) -> bool:
        """Whether there is one matrix, which stays as it is."""
        alone = self.text is None and self.images is None
        return alone and len(self.tables) == 1 and self.tables[0].is_plain

    def describe(self) -> str:
        """Describe the inputs, one line per source."""
        lines = [f"features: {table.describe()}" for table in self.tables]
        lines += [] if self.images is None else [self.images.describe()]
        if self.text is not None:
            lines.append(self.text.describe())
        if self.language is not None:
            lines.append(self.language.describe())
        if self.wide:
            lines.append(
                f"the linear member of the ensemble uses all terms, the others the "
                f"{len(self.text.chosen):,} that are most associated with a label"
            )
        return "\n".join(lines)

    def describe_exactly(self) -> str:
        """Return a text that differs for encoders that encode differently."""
        tables: list[object] = [table.to_json() for table in self.tables]
        tables += [] if self.images is None else [self.images.to_json()]
        if self.text is None:
            return json.dumps(tables)
        tables += [] if self.language is None else [self.language.to_json()]
        arrays = {name: value.tolist() for name, value in self.text.arrays().items()}
        return json.dumps([tables, self.text.to_json(), arrays, self.wide])

    # ------------------------------------------------------------------ files

    def save(self, folder: Path) -> None:
        """Write encoder.json and encoder.npz."""
        values: dict[str, Any] = {"version": 1, "tables": [t.to_json() for t in self.tables]}
        if self.wide:
            values["wide"] = True
        if self.images is not None:
            values["images"] = self.images.to_json()
            self.images.save(folder)
        if self.language is not None:
            values["language"] = self.language.to_json()
        if self.text is not None:
            values["text"] = self.text.to_json()
            if values["text"]["kind"] == "tokens":
                self.text.save(folder / ENCODER)
            np.savez(folder / ARRAYS, **self.text.arrays())
        (folder / JSON).write_text(json.dumps(values, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def for_matrix(cls, width: int) -> FeatureEncoder:
        """Return the encoder of one matrix that stays as it is."""
        return cls((TableEncoder.for_matrix(width),))

    @classmethod
    def load(cls, folder: Path) -> FeatureEncoder | None:
        """Return the encoder of a run folder; None if the features of the run stay as they are."""
        path = folder / JSON
        if not path.is_file():
            return None
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            if values.get("version") != 1:
                raise ValueError(f"version {values.get('version')}, expected 1")
            tables = tuple(TableEncoder.from_json(one) for one in values["tables"])
            text: object = None
            if "text" in values:
                text = _load_text(values["text"], folder)
            language: object = None
            if "language" in values:
                from halftruth.models.language_model import LanguageModel

                language = LanguageModel.from_json(values["language"])
            images: object = None
            if "images" in values:
                from halftruth.train.inputs.image_features import ImageFeatures

                images = ImageFeatures.load(values["images"], folder)
        except (
            AttributeError, EOFError, LookupError, OSError, TypeError, ValueError, BadZipFile
        ) as error:  # fmt: skip
            if isinstance(error, (DataError, ModelError)):
                raise
            raise DataError(f"{path}: is damaged ({error}); train again") from error
        return cls(tables, text, language, images, bool(values.get("wide", False)))


def _load_text(values: Mapping[str, object], folder: Path) -> object:
    if values["kind"] == "tokens":
        from halftruth.models.language_model import TextTokens

        return TextTokens.load(values, folder / ENCODER)
    with (folder / ARRAYS).open("rb") as given, np.load(given) as arrays:
        return TextEncoder.from_json(values, dict(arrays))


# ---------------------------------------------------------------------- reading


def read_sources(
    paths: Sequence[str | Path], labels: LabelMatrix | None = None, **options: Any
) -> list[FeatureColumns]:
    """Read sources of features; with `labels`, one row per row of the labels, matched by id.

    `options` are those of `read_feature_columns`. Several sources without labels are matched by id,
    in the order of the first; without ids they must have the same order.
    """
    several = len(paths) > 1
    sources = [
        read_feature_columns(path, **options_for(path, options), lenient=several) for path in paths
    ]
    check_columns_exist(options, [source.header for source in sources])
    if labels is not None:
        return [_align(source, labels) for source in sources]
    return [sources[0], *(_follow(source, sources[0]) for source in sources[1:])]


def check_columns_exist(
    options: Mapping[str, Sequence[str]], headers: Sequence[Sequence[str]]
) -> None:
    """Refuse names of columns that none of several sources has."""
    names = [name for header in headers for name in header]
    for argument in ("drop_columns", "categorical"):
        for name in options.get(argument, ()) if len(headers) > 1 else ():
            if name not in names:
                raise DataError(
                    f"{argument}={name!r}: no source has such a column{nearest(name, names)}"
                )


def options_for(path: str | Path, options: dict[str, object]) -> dict[str, Any]:
    """The options that are meant for a file of this kind."""
    name = Path(path).name.lower()
    if ".arff" not in name:
        options = {key: value for key, value in options.items() if key != "arff_labels"}
    return options


def _align(source: FeatureColumns, labels: LabelMatrix) -> FeatureColumns:
    """The rows in the order of the labels."""
    rows = match_rows(source.ids, len(source), labels, source.place)
    aligned = source if rows is None else source.select(rows)
    bare = aligned.columns.get(MATRIX)
    refuse_labels(bare, labels, source.place, aligned.names)
    return aligned


def _follow(source: FeatureColumns, first: FeatureColumns) -> FeatureColumns:
    """The rows in the order of another source."""
    if source.ids is not None and first.ids is not None:
        return source.select(find_rows(source.ids, first.ids, source.place, first.place))
    if len(source) != len(first):
        raise DataError(
            f"{source.place}: has {len(source):,} rows, {first.place} has {len(first):,}, and they "
            "have no ids to match them"
        )
    return source
