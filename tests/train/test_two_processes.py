"""Two processes (gloo) train the same model as one, with the same metrics."""

import signal
import tarfile
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from real_processes import Command, ranks
from tiny_data import arguments, outcome, records, tensors, with_tune

from halftruth.data import ImageStore, decode_all, read_labels
from halftruth.train.inputs.batches import Batches, Features
from halftruth.train.run_folder import load_checkpoint
from halftruth.train.scoring import score_rows


@pytest.fixture
def train(tmp_path):
    """Start a run in one or several processes; return their commands."""

    def start(settings, out, *more, count=1, machines=1, **launcher):
        options = {name: value for name, value in settings.items() if name != "labels"}
        line = ["train", settings["labels"], *arguments(options), "--out", tmp_path / out, *more]
        places = ranks(count, machines) if count > 1 else [{}]
        return [
            Command(*line, log=tmp_path / f"{out}{rank}.log", **environment, **launcher)
            for rank, environment in enumerate(places)
        ]

    return start


def finish(commands):
    for command in commands:
        assert command.wait() == 0, command.output()


def assert_close(one, other, tolerance=2e-5):
    ours, theirs = tensors(one), tensors(other)
    assert ours.keys() == theirs.keys()
    for path, tensor in ours.items():
        torch.testing.assert_close(
            tensor.double(), theirs[path].double(), rtol=tolerance, atol=tolerance, msg=path
        )


@pytest.fixture
def without_batch_norm(on_images):
    return {**on_images, "backbone": "test_efficientnet_ln", "optimizer": "sgd"}


@pytest.mark.parametrize(
    "batch", [{"batch_size": 27}, {"batch_size": 26}, {"batch_size": 7}], ids=str
)
def test_two_processes_train_the_same_weights(without_batch_norm, tmp_path, train, batch):
    """One step on all 27 rows; 26 rows and 1, fewer than processes; 7, 7, 7 and 6 rows."""
    settings = with_tune(without_batch_norm, "all") | batch
    settings |= {"epochs": 1, "schedule": "constant", "lr": 0.1}
    settings |= {"ema": 0, "l1": 1e-4, "weight_decay": 0.01, "clip": 0.5}
    finish(train(settings, "one"))
    finish(train(settings, "two", count=2))
    one, two = (load_checkpoint(tmp_path / run / "last.safetensors") for run in ("one", "two"))
    assert_close(one["model"], two["model"])
    assert_close(one["optimizer"], two["optimizer"])
    for ours, theirs in zip(records(tmp_path / "one"), records(tmp_path / "two"), strict=True):
        assert ours.pop("stage") == theirs.pop("stage")
        assert ours == pytest.approx(theirs, rel=1e-4)


def test_two_processes_get_the_same_metrics(without_batch_norm, data, tmp_path, train):
    """There are nine validation rows: one that counted twice would change the metrics."""
    settings = {**without_batch_norm, "tune": "head-first", "truth": data / "truth.csv"}
    finish(train(settings, "one"))
    commands = train(settings, "two", count=2)
    finish(commands)
    ours, theirs = outcome(tmp_path / "one"), outcome(tmp_path / "two")
    for part in ("val", "test"):
        assert ours[part] == pytest.approx(theirs[part], abs=1e-6)
    assert ours["thresholds"] == pytest.approx(theirs["thresholds"], abs=1e-3)
    # Only the main process shows messages.
    assert "everything is in" in commands[0].output()
    assert "everything is in" not in commands[1].output()


@pytest.mark.parametrize(
    "launcher",
    [{}, {"ACCELERATE_USE_CPU": "true"}, {"SLURM_NTASKS": "2", "SLURM_JOB_ID": "1"}],
    ids=["torchrun", "accelerate", "srun"],
)
def test_without_a_gpu_processes_work_together_unasked(on_features, tmp_path, train, launcher):
    """Each launcher sets RANK and its relatives; nobody has to write `--device cpu`."""
    settings = {**on_features, "epochs": 1, "device": "auto"}
    commands = train(settings, "run", count=2, **launcher)
    finish(commands)
    assert "the launcher asked" not in commands[0].output()
    assert commands[1].output() == ""


@pytest.mark.parametrize("world", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 10])
def test_every_row_is_scored_once_and_in_its_place(world, count):
    rows = np.random.default_rng(0).permutation(20)[:count]
    sent = []
    for rank in range(world):
        alone = SimpleNamespace(
            num_processes=world,
            process_index=rank,
            device=torch.device("cpu"),
            gather=lambda values: sent.append(values) or torch.cat([values] * world),
        )
        result = score_rows(lambda x: 10 * x, Features(torch.arange(20.0)[:, None]), rows, alone, 2)
    if world > 1:
        alone.gather = lambda values: torch.cat(sent)
        result = score_rows(lambda x: 10 * x, Features(torch.arange(20.0)[:, None]), rows, alone, 2)
    assert result[:, 0].tolist() == [10.0 * row for row in rows]


def test_a_stop_request_stops_both_processes(on_features, tmp_path, train):
    settings = {**on_features, "epochs": 2000, "batch_size": 2}
    running = train(settings, "run", count=2)
    assert running[0].until((tmp_path / "run" / "last.safetensors").exists)
    running[1].send(signal.SIGTERM)
    assert [command.wait(30) for command in running] == [130, 130]
    assert "--resume --out" in running[0].output()


@pytest.mark.parametrize("cache", ["memory", "disk"])
def test_an_error_is_shown_once(on_features, data, tmp_path, train, cache):
    settings = {**on_features, "truth": tmp_path}
    if cache == "disk":
        # The main process writes the features first, and fails.
        table = pd.DataFrame({"image": [f"p{k}.png" for k in range(44)], "x": [np.inf] * 44})
        table.to_parquet(tmp_path / "x.parquet")
        settings = {**on_features, "features": tmp_path / "x.parquet", "cache": "disk"}
    running = train(settings, "run", count=2)
    assert [command.wait(30) for command in running] == [2, 2]
    # Accelerate may warn of the number of threads before it.
    assert [command.output().count("error: ") for command in running] == [1, 0]


@pytest.fixture
def on_shards(data, without_batch_norm, tmp_path):
    """The photos in five shards; nine steps, which read the images from the shards."""
    folder, files = tmp_path / "shards", sorted((data / "photos").iterdir())
    folder.mkdir()
    for number, part in enumerate(np.array_split(np.arange(len(files)), [4, 14, 22, 34])):
        with tarfile.open(folder / f"s-{number}.tar", "w") as archive:
            for row in part:
                archive.add(files[row], files[row].name)
    settings = with_tune(without_batch_norm, "all") | {"images": folder / "*.tar", "cache": "none"}
    settings |= {"epochs": 1, "schedule": "constant", "lr": 0.1, "ema": 0, "batch_size": 3}
    return settings | {"workers": 0}


def test_two_machines_of_two_processes_train_from_shards_like_one(on_shards, tmp_path, train):
    """`torchrun --nnodes 2 --nproc_per_node 2`: four processes, each reads its shards."""
    finish(train(on_shards, "one"))
    finish(train(on_shards, "four", count=4, machines=2))
    one, four = (load_checkpoint(tmp_path / run / "last.safetensors") for run in ("one", "four"))
    assert_close(one["model"], four["model"])
    ours, theirs = outcome(tmp_path / "one"), outcome(tmp_path / "four")
    for part in ("val", "test"):
        assert ours[part] == pytest.approx(theirs[part], abs=1e-5)


def test_processes_decode_their_shards_into_one_cache(on_shards, tmp_path, train):
    settings = {**on_shards, "cache": "disk", "cache_dir": tmp_path / "cache"}
    finish(train(settings, "two", count=2))
    [together] = (tmp_path / "cache").glob("pixels-*.npy")
    store, names = ImageStore(settings["images"]), read_labels(settings["labels"]).items.tolist()
    assert np.array_equal(np.load(together), decode_all(store, names, 32).pixels)
    assert not list((tmp_path / "cache").glob(".part*"))


@pytest.mark.parametrize("world", [1, 2, 4])
def test_a_process_reads_only_its_shards(world):
    """Each row once per epoch, the same steps for any number of processes, shards in turn."""
    random = np.random.default_rng(0)
    shards = random.integers(0, 9, 200)
    rows = np.flatnonzero(random.random(200) < 0.8)
    whole = Batches(rows, 16, 3, shards=shards)
    own = [Batches(rows, 16, 3, rank, world, shards) for rank in range(world)]
    drawn = [list(batches) for batches in own]
    for step in range(whole.steps):
        parts = [
            some[step] for batches, some in zip(own, drawn, strict=True) if batches.weight(step)
        ]
        assert sorted(np.concatenate(parts)) == sorted(whole.get_rows_of_step(0, step))
        assert sum(batches.weight(step) for batches in own) == pytest.approx(world)
    seen = [{int(shard) for batch in some for shard in shards[batch]} for some in drawn]
    assert sum(map(len, seen)) == 9
    assert set(whole.draw_order(0)) == set(rows)
    assert not np.array_equal(whole.draw_order(0), whole.draw_order(1))
    # A lane ends a shard before it starts the next one.
    order = whole.draw_order(0)
    for lane in range(whole.lane.max() + 1):
        turns = shards[order[whole.lane[order] == lane]]
        assert (np.diff(turns) != 0).sum() == len(set(turns)) - 1
