"""Features that stay on disk: the same matrix, runs and predictions as from memory."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import halftruth
from halftruth.data import DataError, feature_blocks, read_labels
from halftruth.data.feature_blocks import ArrowShards, open_blocks
from halftruth.data.wide_matrix import MOST_FEATURES
from halftruth.train.config import Config
from halftruth.train.inputs import features_on_disk
from halftruth.train.inputs.feature_encoder import FeatureEncoder
from halftruth.train.inputs.feature_inputs import read_inputs
from halftruth.train.inputs.features_on_disk import belongs_on_disk, encode_on_disk
from halftruth.train.run_folder import load_checkpoint

ROWS = 120
SHORT = {"method": "bce", "epochs": 2, "device": "cpu", "report": False, "quiet": True}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """labels.csv with texts; table/: three Parquet files in another order, with an extra row."""
    folder = tmp_path_factory.mktemp("disk")
    random = np.random.default_rng(0)
    present = (random.random((ROWS, 3)) < 0.4).astype(int)
    present[0] = 1
    ids = [f"r{k}" for k in range(ROWS)]
    labels = pd.DataFrame({"id": ids, **{f"c{k}": present[:, k] for k in range(3)}})
    labels["note"] = [" ".join(f"word{k}" for k in range(3) if row[k]) + " so" for row in present]
    labels.to_csv(folder / "labels.csv", index=False)
    vectors = (present[:, [0, 1, 2, 0]] + random.normal(0, 0.3, (ROWS, 4))).astype(np.float32)
    table = pd.DataFrame(
        {
            "id": [*ids, "unused"],
            "age": [*(None if k % 9 == 0 else float(k) for k in range(ROWS)), 1.0],
            "zip": [*(["01", "02", "x"][k % 3] for k in range(ROWS)), "01"],
            "member": [*(bool(k % 2) for k in range(ROWS)), True],
            "vector": [*vectors.tolist(), [0.0] * 4],
        }
    ).sample(frac=1, random_state=0)
    (folder / "table").mkdir()
    for number, part in enumerate(np.array_split(np.arange(ROWS + 1), 3)):
        found = pa.Table.from_pandas(table.iloc[part], preserve_index=False)
        pq.write_table(found, folder / "table" / f"part-{number}.parquet", row_group_size=16)
    np.save(folder / "wide.npy", vectors.astype(np.float64))
    return folder


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(feature_blocks, "BLOCK_ROWS", 7)


@pytest.mark.parametrize(
    ("features", "more"),
    [
        (["table"], {}),
        (["table"], {"text": "note"}),
        (["wide.npy"], {}),
        (["wide.npy", "table/part-*.parquet"], {}),
        (["table"], {"reading_features": {"categorical": ["age"], "drop_columns": ["zip"]}}),
    ],
)
@pytest.mark.filterwarnings("ignore:.*rows are not used")
def test_the_matrix_on_disk_is_that_in_memory(data, tmp_path, features, more):
    paths = [str(data / name) for name in features]
    config = Config(labels=data / "labels.csv", features=paths, out=str(tmp_path), **more)
    labels = read_labels(data / "labels.csv", drop_columns=["note"])
    rows = np.arange(0, ROWS, 2)
    sources, texts, _ = read_inputs(config, labels, config.labels, config.features)
    encoder = FeatureEncoder.fit(sources, texts, labels.values, rows)
    found, same, kept = encode_on_disk(config, labels, labels.values, rows, None)
    assert isinstance(found, np.memmap)
    assert kept == texts
    assert same.describe_exactly() == encoder.describe_exactly()
    np.testing.assert_array_equal(found, encoder.transform(sources, texts))
    again, *_ = encode_on_disk(config, labels, labels.values, rows, same)
    assert again.filename == found.filename, "made once"


@pytest.mark.filterwarnings("ignore:.*rows are not used")
def test_runs_and_predictions_do_not_depend_on_the_place(data, tmp_path):
    outs = {}
    for cache in ("disk", "memory"):
        out = tmp_path / cache
        halftruth.fit(
            data / "labels.csv", features=data / "table", drop_columns=["note"], cache=cache,
            out=out, **SHORT,
        )  # fmt: skip
        outs[cache] = load_checkpoint(out / "best.safetensors")["model"]
    assert list((tmp_path / "disk" / "cache").glob("encoded-*.npy"))
    for name, tensor in outs["disk"].items():
        assert tensor.equal(outs["memory"][name]), name
    whole = halftruth.predict(tmp_path / "disk", data / "table")
    run = halftruth.load(tmp_path / "disk")
    from halftruth.train.results.predictions import write_predictions

    for ending in ("parquet", "csv"):
        path = tmp_path / f"p.{ending}"
        rows, bad = write_predictions(run, path, data / "table")
        assert (rows, bad) == (ROWS + 1, [])
        read = pd.read_parquet(path) if ending == "parquet" else pd.read_csv(path)
        assert read["item"].tolist() == whole["item"].tolist()
        assert read["labels"].fillna("").tolist() == whole["labels"].tolist()
        np.testing.assert_allclose(read["c0"], whole["c0"], rtol=1e-4)


def test_large_features_go_to_disk_by_themselves(data, monkeypatch):
    config = Config(labels=data / "labels.csv", features=str(data / "table"))
    assert not belongs_on_disk(config, ROWS)
    monkeypatch.setattr(features_on_disk, "get_free_memory", lambda: 1000.0)
    assert belongs_on_disk(config, ROWS)
    assert not belongs_on_disk(Config(features=str(data / "table"), cache="memory"), ROWS)


def test_a_float32_matrix_is_used_as_it_is(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.zeros((9, 2), np.float32))
    assert not belongs_on_disk(Config(features=str(tmp_path / "x.npy"), cache="disk"), 9)


def test_missing_values_outside_the_sample_are_seen(data, tmp_path, monkeypatch):
    """A matrix is only taken as it is if no row misses a value."""
    monkeypatch.setattr(features_on_disk, "SAMPLE", 5)
    x = np.arange(2.0 * ROWS).reshape(ROWS, 2)
    x[ROWS // 2, 1] = np.nan
    np.save(tmp_path / "x.npy", x)
    config = Config(labels=data / "labels.csv", features=str(tmp_path / "x.npy"), out=str(tmp_path))
    labels = read_labels(data / "labels.csv", drop_columns=["note"])
    found, encoder, _ = encode_on_disk(config, labels, labels.values, np.arange(ROWS), None)
    assert not encoder.is_plain
    assert found.shape == (ROWS, 3)
    assert found[ROWS // 2, 2] == 1


def write(folder, *tables):
    for number, columns in enumerate(tables):
        pq.write_table(pa.table(columns), folder / f"p{number}.parquet")
    return folder


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ([{"a": [1.0]}, {"b": [1.0]}], r"p1\.parquet: has other columns .* 'a', 'b' are in"),
        ([{"a": [1.0]}, {"a": []}], r"p1\.parquet: has columns but no rows"),
        ([{"v": [[1.0, 2.0]] * 60}, {"v": [[1.0]] * 60}], "expected lists of one length"),
        (
            [{"a": [1.0] * 60}, {"a": ["x"] * 60}],
            "has numbers in some files, not in all|different kinds",
        ),
        ([{"a": [float("inf")] * ROWS}], "row 1, column 'a': expected a finite float32 number"),
        ([{"id": ["r0", None], "a": [1.0, 2.0]}], "column 'id' is blank"),
        ([{"id": ["r0", "r0"], "a": [1.0, 2.0]}], "1 ids occur more than once"),
        ([{"id": ["q1", "q2"], "a": [1.0, 2.0]}], "items of the label file have no row"),
        ([{"a": [1.0] * 7}], "has 7 rows, but the labels have 120"),
        ([{"d": pa.array([0] * ROWS, pa.date32())}], "expected numbers, texts or lists of numbers"),
        (
            [{"id": [f"r{k}" for k in range(ROWS)]}],
            "expected columns of features, but none is left",
        ),
    ],
)
@pytest.mark.parametrize("cache", ["disk", "memory"])
def test_bad_tables_are_refused_in_both_places(data, tmp_path, tables, message, cache):
    folder = tmp_path / "t"
    folder.mkdir()
    with pytest.raises(DataError, match=message):
        halftruth.fit(
            data / "labels.csv", features=write(folder, *tables), drop_columns=["note"],
            cache=cache, out=tmp_path / "run", **SHORT,
        )  # fmt: skip


def test_files_that_are_no_parquet_are_refused(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"PAR1 broken")
    (tmp_path / "x.arrow").write_bytes(b"ARROW1 broken")
    for name in ("x.parquet", "x.arrow"):
        with pytest.raises(DataError, match="cannot be read as"):
            open_blocks(tmp_path / name, {})


def test_an_unknown_column_is_refused(data):
    with pytest.raises(DataError, match=r"drop_columns='ages'.*did you mean 'age'"):
        ArrowShards("t", sorted((data / "table").iterdir()), drop_columns=["ages"])


def test_no_cache_is_for_images(data, tmp_path):
    with pytest.raises(ValueError, match="cache: none is for `images`"):
        halftruth.fit(data / "labels.csv", features=data / "wide.npy", cache="none", **SHORT)


@pytest.mark.parametrize(
    ("name", "text", "cache", "free", "expected"),
    [
        ("x.npy", None, "memory", 0, False),
        ("x.npy", None, "disk", 1e9, True),
        # 9 x 2 float64 become float32; more than a quarter of the free memory is too much.
        ("x.npy", None, "auto", 4 * 72 - 1, True),
        ("x.npy", None, "auto", 4 * 72, False),
        # A text of any length becomes a row of MOST_FEATURES float32.
        ("x.npy", "text", "auto", 4 * (72 + 4 * 9 * MOST_FEATURES) - 1, True),
        ("x.npy", "text", "auto", 4 * (72 + 4 * 9 * MOST_FEATURES), False),
    ],
)
def test_what_belongs_on_disk(tmp_path, monkeypatch, name, text, cache, free, expected):
    np.save(tmp_path / name, np.zeros((9, 2)))
    monkeypatch.setattr(features_on_disk, "get_free_memory", lambda: float(free))
    config = Config(features=str(tmp_path / name), text=text, cache=cache)
    assert belongs_on_disk(config, 9) is expected
