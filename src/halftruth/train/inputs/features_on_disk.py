"""Features that do not fit into memory: encoded block by block into a file, and mapped from there.

Memory holds the labels, the ids, a sample of the training rows for fitting the encoder, and one
block of rows.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from halftruth.data.errors import mask
from halftruth.data.feature_blocks import BlockSource, MatrixFile, open_blocks
from halftruth.data.feature_columns import FeatureColumns
from halftruth.data.features import match_rows, refuse_labels
from halftruth.data.memory import get_free_memory
from halftruth.data.remote import describe_file, is_remote
from halftruth.data.wide_matrix import MOST_FEATURES
from halftruth.labels import LabelMatrix
from halftruth.train.config import Config
from halftruth.train.inputs.feature_encoder import FeatureEncoder, check_columns_exist, options_for
from halftruth.train.inputs.feature_inputs import TEXTS_AT_ONCE, feature_options, read_inputs
from halftruth.train.run_folder import digest, replace_file

# Training rows that the encoder is fitted to, at most, and their bytes.
SAMPLE, SAMPLE_BYTES = 100_000, 32 << 20


def open_sources(config: Config, paths: Sequence[str | Path]) -> list[BlockSource]:
    """Open files of features for reading in blocks."""
    options, several = feature_options(config), len(paths) > 1
    sources = [open_blocks(path, options_for(path, options), several) for path in paths]
    check_columns_exist(options, [source.header for source in sources])
    return sources


def belongs_on_disk(config: Config, rows: int) -> bool:
    """Return whether encoded features are kept on disk: asked for, or too large for memory."""
    if config.cache == "memory":
        return False
    size = sum(source.size for source in open_sources(config, config.features))
    if config.text:
        size += 4 * rows * MOST_FEATURES
    if config.cache == "disk":
        # A float32 .npy file is on disk already.
        return size > 0
    return size > get_free_memory() / 4


def encode_on_disk(
    config: Config,
    labels: LabelMatrix,
    values: np.ndarray,
    rows: np.ndarray,
    encoder: FeatureEncoder | None,
    images: object = None,
) -> tuple[np.ndarray, FeatureEncoder, list[str] | None]:
    """Return the features of all rows as a memory map, the encoder, and the texts.

    `values`: labels by which the terms of a text are chosen; `rows`: the training rows. `encoder`:
    that of the run which is resumed. The file is made once and used again by the same run.
    """
    sources = open_sources(config, config.features)
    _, texts, pictures = read_inputs(config, labels, config.labels, [], images=images)
    places = [match_rows(one.ids, one.count, labels, one.place) for one in sources]
    for source in sources:
        refuse_labels(None, labels, source.place, source.names)
    if encoder is None:
        samples = [
            _take_sample(source, rows if place is None else place[rows])
            for source, place in zip(sources, places, strict=True)
        ]
        encoder = FeatureEncoder.fit(
            samples,
            texts,
            values,
            rows,
            config.encoder,
            config.tunes_encoder,
            images,
            sampled=True,
        )
    path = _name_file(config, encoder, sources, labels, texts)
    if not path.exists():
        shape = (len(labels), len(encoder.outputs))
        with replace_file(path, shared=True) as new:
            out = np.lib.format.open_memmap(new, mode="w+", dtype=np.float32, shape=shape)
            _fill(out, encoder, sources, places, texts, pictures)
            out.flush()
            del out
    # "c": torch warns of arrays that cannot be written to; nothing is written to the file.
    return np.load(path, mmap_mode="c"), encoder, texts


def _take_sample(source: BlockSource, rows: np.ndarray) -> FeatureColumns:
    """The training rows of a source, or a random part of them."""
    most = min(SAMPLE, max(1, SAMPLE_BYTES * source.count // max(source.size, 1)))
    if len(rows) <= most:
        return source.sample(np.unique(rows))
    some = np.random.default_rng(0).choice(rows, most, replace=False)
    if isinstance(source, MatrixFile):
        # A matrix without missing values stays as it is, so a few missing ones must be seen.
        some = np.concatenate([some, np.intersect1d(source.find_gaps(), rows)])
    return source.sample(np.unique(some))


def _fill(
    out: np.ndarray,
    encoder: FeatureEncoder,
    sources: Sequence[BlockSource],
    places: Sequence[np.ndarray | None],
    texts: Sequence[str] | None,
    pictures: np.ndarray | None,
) -> None:
    """Write the features of every source and of the texts, block by block."""
    left = 0
    for table, source, place in zip(encoder.tables, sources, places, strict=True):
        right, at = left + len(table.outputs), 0
        # Rows of the labels in the order of the source, which may lack some and repeat others.
        order = None if place is None else np.argsort(place, kind="stable")
        ordered = None if place is None or order is None else place[order]
        for block in source.blocks():
            encoded = table.transform(block)
            end = at + len(block)
            if order is None or ordered is None:
                out[at:end, left:right] = encoded
            else:
                first, last = np.searchsorted(ordered, (at, end))
                out[order[first:last], left:right] = encoded[ordered[first:last] - at]
            at = end
        left = right
    if pictures is not None:
        right = left + pictures.shape[1]
        for at in range(0, len(pictures), TEXTS_AT_ONCE):
            out[at : at + TEXTS_AT_ONCE, left:right] = pictures[at : at + TEXTS_AT_ONCE]
        left = right
    if texts is not None:
        for at in range(0, len(texts), TEXTS_AT_ONCE):
            some, right = texts[at : at + TEXTS_AT_ONCE], left
            for part in filter(None, (encoder.language, encoder.text)):
                columns = part.transform(some)
                out[at : at + len(some), right : right + columns.shape[1]] = columns
                right += columns.shape[1]


def _name_file(
    config: Config,
    encoder: FeatureEncoder,
    sources: Sequence[BlockSource],
    labels: LabelMatrix,
    texts: Sequence[str] | None,
) -> Path:
    """The name of the file, which depends on everything that the features depend on."""
    from halftruth.data.shards import expand_all

    facts: list[object] = [str(encoder.describe_exactly())]
    for path in expand_all(config.features):
        facts.append([mask(path) if is_remote(path) else str(path.resolve()), *describe_file(path)])
    facts.append(None if labels.items is None else "\0".join(map(str, labels.items)))
    facts.append(None if texts is None else "\0".join(texts))
    key = digest(*(str(fact).encode() + b"|" for fact in facts))
    return Path(config.cache_dir or Path(config.out) / "cache") / f"encoded-{key}.npy"
