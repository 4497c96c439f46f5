"""SIGKILL in the middle of an epoch: the memory of a method is the same after a resume."""

import os
import signal
from functools import partial

import pytest
import torch
from real_processes import Command, ranks
from tiny_data import arguments, assert_same_run, with_tune
from torch.utils.data import DataLoader, TensorDataset

from halftruth import losses
from halftruth.losses.memory import Memory
from halftruth.train.run_folder import load_checkpoint
from halftruth.train.trainer import Trainer

# Options of a method, the tensor of its memory, and the first values of that tensor.
METHODS = {
    "em-apl": (["warmup=1"], "memory.values", (-2.0, 2.0)),
    "en": (["expected_positives=1.5"], "memory.values", (-1.0,)),
    "ll-cp": (["delta=0.05"], "memory.values", (0,)),
    "mime": (["warmup=1", "theta=0.45"], "memory.values", (0,)),
    "pseudo-label": (["tau=0.35", "base=ll-ct"], "positive.values", (0,)),
    "role": (["expected_positives=1.5"], "estimator", (0.0,)),
    "role, light": (["expected_positives=1.5", "light=true"], "memory.values", (0.0,)),
    "smile": ([], "memory.values", (-1.0,)),
}


def kill_in_an_epoch(rank: str | None) -> None:
    """Kill the process of this rank in the second epoch, after two steps."""
    step = Trainer._step

    def crashing(self, raw, rows):
        place = (self.progress.epoch, self.progress.step)
        if place == (1, 2) and os.environ.get("RANK") == rank:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(self, raw, rows)

    Trainer._step = crashing


def prepare(place: str, rank: str | None, killed: bool) -> None:
    """Keep the memory at this place, whatever is free, and kill the process if asked to."""
    choose = Memory.set_place
    Memory.set_place = lambda memory, _="auto", together=False: choose(memory, place, together)
    if killed:
        kill_in_an_epoch(rank)


@pytest.fixture
def train(tmp_path):
    """Start a run in one or several processes, and wait until it ends or is killed."""

    def start(settings, out, *more, place="auto", count=1, killed=False):
        options = {k: v for k, v in settings.items() if k not in ("labels", "set")}
        line = ["train", settings["labels"], *arguments(options), "--out", tmp_path / out, *more]
        line += [word for pair in settings["set"] for word in ("--set", pair)]
        places = ranks(count) if count > 1 else [{}]
        before = partial(prepare, place, places[-1].get("RANK"), killed)
        commands = [
            Command(*line, log=tmp_path / f"{out}{rank}.log", before=before, **environment)
            for rank, environment in enumerate(places)
        ]
        if killed:
            assert commands[-1].wait() == -signal.SIGKILL, commands[-1].output()
            # The others would wait for it for ever.
            for command in commands[:-1]:
                command.kill()
            return
        ends = [command.wait() for command in commands]
        assert ends == [0] * count, "\n".join(command.output() for command in commands)

    return start


def check(train, tmp_path, settings, method, count, place="auto"):
    """`place`: where the killed run keeps its memory; that of the whole run is on the device."""
    given, name, empty = METHODS[method]
    settings |= {"method": method.split(",")[0], "set": given, "dropout": 0.2}
    settings |= {"epochs": 3, "batch_size": 7, "ema": 0, "schedule": "constant"}
    settings |= {"checkpoint_every": 1}
    train(settings, "whole", place="device", count=count)
    train(settings, "killed", place=place, count=count, killed=True)
    folder = tmp_path / "killed" / ("teacher" if method == "pseudo-label" else "")
    progress = load_checkpoint(folder / "last.safetensors")["progress"]
    assert (progress["epoch"], progress["step"]) == (1, 2)
    train(settings, "killed", "--resume", place=place, count=count)
    assert_same_run(tmp_path / "whole", tmp_path / "killed")
    memory = load_checkpoint(tmp_path / "whole" / "last.safetensors")["loss"][name]
    assert (~torch.isin(memory.double(), torch.tensor(empty).double())).any()


@pytest.mark.parametrize("method", METHODS)
def test_memory_after_a_kill_with_two_processes_on_features(on_features, tmp_path, train, method):
    check(train, tmp_path, {**on_features, "head_lr": 0.02}, method, count=2)


@pytest.mark.parametrize(
    ("method", "count"),
    [("em-apl", 1), ("em-apl", 2), ("en", 2), ("mime", 2), ("pseudo-label", 2), ("role, light", 2)],
)
def test_host_memory_after_a_kill_equals_device_memory(on_features, tmp_path, train, method, count):
    """Two processes share one table, which must be relabelled once."""
    check(train, tmp_path, {**on_features, "head_lr": 0.02}, method, count, place="host")


@pytest.mark.parametrize(("method", "count"), [("em-apl", 1), ("ll-cp", 2)])
def test_memory_after_a_kill_with_decoding_workers(on_images, tmp_path, train, method, count):
    settings = {**with_tune(on_images, "all"), "cache": "none", "workers": 1}
    check(train, tmp_path, settings, method, count)


@pytest.mark.parametrize("method", ["em-apl", "en", "ll-cp", "mime", "smile"])
def test_memory_in_a_custom_loop_with_persistent_workers(method):
    """The table is in the loss, not in the data set, so persistent workers cannot lose it."""
    torch.manual_seed(0)
    labels = torch.randint(-1, 2, (16, 4), dtype=torch.int8)
    data = TensorDataset(torch.randn(16, 3), labels, torch.arange(16))
    weights = torch.randn(3, 4)
    options = {"em-apl": {"warmup": 1}, "en": {"expected_positives": 1.5}, "ll-cp": {"delta": 0.1}}
    options["mime"] = {"warmup": 1, "theta": 0.7}

    def loop(workers: int, epochs: int, loss: losses.Loss, start: int = 0, skip: int = 0):
        """Train from batch `skip` of epoch `start`; stop before the last two batches."""
        kept = {"persistent_workers": True, "multiprocessing_context": "fork"} if workers else {}
        loader = DataLoader(data, batch_size=4, num_workers=workers, **kept)
        for epoch in range(start, epochs):
            loss.start_epoch(epoch, 5)
            for number, (x, y, index) in enumerate(loader):
                if epoch == start and number < skip:
                    continue
                loss((x + epoch) @ weights, y, index=index)
                if (epoch, number) == (epochs - 1, 1):
                    return loss
            scores = (data.tensors[0] + epoch) @ weights
            loss.end_epoch(scores if loss.needs_scores else None)

    def begun() -> losses.Loss:
        loss = losses.create(method, **options.get(method, {}))
        loss.begin(labels)
        return loss

    plain, lasting = (loop(workers, 4, begun()) for workers in (0, 1))
    resumed = losses.create(method, **options.get(method, {}))
    resumed.load_state_dict(loop(1, 3, begun()).state_dict())
    resumed = loop(1, 4, resumed, start=2, skip=2)
    for key, tensor in plain.state_dict().items():
        assert torch.equal(tensor, lasting.state_dict()[key]), key
        assert torch.equal(tensor, resumed.state_dict()[key]), key
