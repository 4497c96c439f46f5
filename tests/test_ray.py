"""Ray Data: the public class in a pipeline, and `predict --engine ray` on two nodes."""

import os
import threading
import time

import numpy as np
import pandas as pd
import pytest

import halftruth
from halftruth.audit.make_audit import make_audit
from halftruth.train.results.predictions import read_predictions, write_predictions
from halftruth.train.results.write_parts import write_parts

pytestmark = pytest.mark.slow
ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
pytest.importorskip("ray.data")
from halftruth.ray import Predictor, _PartWriter, run_tasks, write_missing  # noqa: E402

ROWS = 60_000


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on a table with a category, and new rows of 15 parts."""
    folder = tmp_path_factory.mktemp("ray")
    random = np.random.default_rng(0)
    table = pd.DataFrame(random.normal(size=(ROWS, 4)), columns=list("abcd"))
    table["kind"] = np.array(["x", "y", "z"])[np.arange(ROWS) % 3]
    labels = pd.DataFrame({"first": table.a > 0, "second": table.b > 0.5}).astype(int)
    halftruth.fit(
        labels[:200], features=table[:200], method="wan", epochs=1, out=folder / "run",
        report=False, quiet=True, device="cpu",
    )  # fmt: skip
    table.insert(0, "id", [f"r{row}" for row in range(ROWS)])
    table.to_parquet(folder / "x.parquet", row_group_size=10_000)
    write_predictions(folder / "run", folder / "p.parquet", features=folder / "x.parquet")
    return folder


@pytest.fixture(scope="module")
def cluster():
    """The first node of a Ray cluster on this machine."""
    from ray.cluster_utils import Cluster

    path = {"PYTHONPATH": os.environ["PYTHONPATH"]}
    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    ray.init(found.address, log_to_driver=False, runtime_env={"env_vars": path})
    yield found
    ray.shutdown()
    found.shutdown()


def assert_same(one, other):
    for name in one.columns:
        if name not in ("first", "second"):
            assert one[name].tolist() == other[name].tolist()
        else:
            np.testing.assert_allclose(one[name], other[name], rtol=0, atol=1e-6)


def test_the_class_predicts_in_a_pipeline(run, cluster):
    rows = ray.data.read_parquet(str(run / "x.parquet"))
    found = rows.map_batches(
        Predictor, fn_constructor_args=(run / "run",), batch_format="pandas", batch_size=8192,
        concurrency=1,
    )  # fmt: skip
    table = found.to_pandas().sort_values("item", key=lambda x: x.str[1:].astype(int))
    assert_same(read_predictions(run / "p.parquet"), table.reset_index(drop=True))


def test_folds_of_an_audit_are_tasks(run, cluster, tmp_path, monkeypatch):
    """Relative paths are those of the command."""
    monkeypatch.chdir(tmp_path)
    labels = np.sign(np.random.default_rng(0).normal(size=(90, 3))).clip(0).astype(int)
    pd.DataFrame(labels, columns=list("xyz")).to_csv("labels.csv", index=False)
    np.save("x.npy", labels + np.random.default_rng(1).normal(0, 0.2, labels.shape))
    settings = {"features": ["x.npy"], "method": "wan", "epochs": 30, "folds": 3, "device": "cpu"}
    settings |= {"head_lr": 0.1}
    here = make_audit("labels.csv", out="here", **settings)
    there = make_audit("labels.csv", out="there", engine=run_tasks, **settings)
    one, other = (found.scored.scores for found in (here, there))
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_tasks_return_in_order(cluster):
    assert run_tasks(lambda x, y: x**y, [(2, 3), (3, 2)]) == [8, 9]


def test_a_node_that_is_killed_loses_and_doubles_nothing(run, cluster, tmp_path, monkeypatch):
    """The second node is killed while it writes a part; the first writes what is missing."""
    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    out, began, done = (tmp_path / name for name in ("parts", "began", "done"))
    for folder in (began, done):
        folder.mkdir()

    doomed = second.node_id

    class Slow(_PartWriter):
        def __call__(self, batch):
            node = ray.get_runtime_context().get_node_id()
            name = f"{node}-{batch['number'][0]}"
            (began / name).touch()
            # The first node waits, so that the second gets parts however slowly it starts.
            waits = time.monotonic() + (4 if node == doomed else 60)
            while time.monotonic() < waits and (node == doomed or not [*done.glob(f"{doomed}*")]):
                time.sleep(0.05)
            found = super().__call__(batch)
            (done / name).touch()
            return found

    monkeypatch.setattr("halftruth.ray._PartWriter", Slow)

    def kill():
        while not any(path.name.startswith(doomed) for path in done.iterdir()):
            time.sleep(0.01)
        count = len(list(began.glob(f"{doomed}*")))
        while len(list(began.glob(f"{doomed}*"))) == count:
            time.sleep(0.01)
        cluster.remove_node(second, allow_graceful=False)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    rows, bad = write_parts(
        halftruth.load(run / "run", device="cpu"), out,
        features=run / "x.parquet", engine=write_missing,
    )  # fmt: skip
    killer.join(10)
    assert not killer.is_alive(), "the second node wrote nothing"
    lost = {path.name for path in began.iterdir()} - {path.name for path in done.iterdir()}
    assert len(lost) == 1
    assert min(lost).startswith(doomed)
    assert (rows, bad) == (ROWS, [])
    assert_same(read_predictions(run / "p.parquet"), read_predictions(out))
