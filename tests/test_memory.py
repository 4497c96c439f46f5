"""The table by sample index: reading, writing, saving, where it lies, several processes."""

import io
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from halftruth import losses, memory
from halftruth.memory import Memory, packed, unpacked

TYPES = ["float16", "float32", "float64", "int8", "bool"]


def filled(dtype: str, rows: int = 9, *shape: int) -> tuple[Memory, Tensor]:
    table = Memory(dtype)
    table.allocate(rows, *shape)
    random = torch.Generator().manual_seed(rows)
    values = torch.randint(0, 2, (rows, *shape), generator=random).to(table.dtype)
    table.write(torch.arange(rows), values)
    return table, values


@pytest.mark.parametrize("shape", [(), (1,), (8,), (19,), (3, 11)])
@pytest.mark.parametrize("dtype", TYPES)
def test_what_is_written_is_read(dtype: str, shape: tuple[int, ...]):
    table, values = filled(dtype, 9, *shape)
    index = torch.tensor([4, 0, 8])
    new = 1 - values[index].int()
    table.write(index, new)
    values[index] = new.to(values.dtype)
    assert torch.equal(table.read(torch.arange(9)), values)
    assert table.read(index.to(torch.int32)).dtype == getattr(torch, dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("fill", [0, 1])
def test_rows_start_as_they_are_filled(dtype: str, fill: int):
    table = Memory(dtype)
    table.allocate(4, 11, fill=fill)
    assert (table.read(torch.arange(4)) == fill).all()


@given(st.lists(st.lists(st.booleans(), min_size=13, max_size=13), min_size=1, max_size=5))
def test_bits_keep_every_truth_value(rows: list[list[bool]]):
    bits = torch.tensor(rows)
    assert packed(bits).shape == (len(rows), 2)
    assert torch.equal(unpacked(packed(bits), (13,)), bits)


def test_bytes_are_counted():
    sizes = {"float16": 2, "float32": 4, "int8": 1}
    for dtype, size in sizes.items():
        assert filled(dtype, 10, 24)[0].nbytes == 10 * 24 * size + 10
    assert filled("bool", 10, 24)[0].nbytes == 10 * 3 + 10


@pytest.mark.parametrize("dtype", TYPES)
def test_saved_and_loaded_into_an_empty_one(dtype: str):
    table, values = filled(dtype, 7, 13)
    file = io.BytesIO()
    torch.save(table.state_dict(), file)
    file.seek(0)
    other = Memory(dtype)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other.read(torch.arange(7)), values)
    assert not other.touched.any(), "what was loaded is the same in every process"
    third = Memory(dtype)
    third.allocate(8, 13)
    with pytest.raises(RuntimeError, match="size mismatch"):
        third.load_state_dict(table.state_dict())


def test_the_type_stays_whatever_happens_around():
    table, _ = filled("float16", 3, 2)
    nn.Sequential(nn.Linear(2, 2), table).double()
    assert table.values.dtype == torch.float16
    table.to(torch.bfloat16)
    assert table.values.dtype == torch.float16


@pytest.mark.parametrize(
    ("device", "limit", "place"),
    [
        ("auto", 10 * 6 * 2, "meta"),
        ("auto", 10 * 6 * 2 - 1, "cpu"),
        ("host", None, "cpu"),
        ("training", 0, "meta"),
    ],
)
def test_a_table_over_the_limit_stays_in_host_memory(device: str, limit: int | None, place: str):
    """The device "meta" stands for an accelerator here: it holds no values, only places."""
    before, after = (Memory("float16", device=device, limit=limit) for _ in range(2))
    before.to("meta")
    before.allocate(10, 6)
    after.allocate(10, 6)
    after.to("meta")
    for table in (before, after):
        assert table.values.device.type == table.touched.device.type == place
        assert table.near.type == "meta"
    if place == "cpu":
        assert before.read(torch.tensor([1, 2])).shape == (2, 6)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"such as .float16.*got 'float17'"):
        Memory("float17")
    with pytest.raises(ValueError, match="got 'gpu'"):
        Memory(device="gpu")
    table, _ = filled("float32", 5, 3)
    with pytest.raises(ValueError, match=r"rows of shape \(2, 3\) for 2 samples, got \(2, 4\)"):
        table.write(torch.tensor([0, 1]), torch.zeros(2, 4))


# Several processes


def in_turn(tables: list[Memory]) -> None:
    """Merge tables as their processes would, by letting each ask for what all would send."""
    asked: list[list[Tensor]] = [[] for _ in tables]
    answers: list[Tensor] = []

    class Wait(Exception):
        pass

    def exchange(rank: int) -> Any:
        place = iter(range(1000))

        def gather(tensor: Tensor) -> Tensor:
            at = next(place)
            if at == len(asked[rank]):
                asked[rank].append(tensor.clone())
            if at < len(answers):
                return answers[at]
            raise Wait

        return gather

    done = [False] * len(tables)
    for _ in range(1000):
        for rank, table in enumerate(tables):
            if not done[rank]:
                try:
                    table.merge(exchange(rank))
                    done[rank] = True
                except Wait:
                    continue
        if all(done):
            return
        answers.append(torch.cat([sent[len(answers)] for sent in asked]))
    raise AssertionError("the processes wait for each other")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("block", [40, 1 << 22])
def test_merging_gives_everyone_what_anyone_wrote(dtype: str, block: int, monkeypatch):
    monkeypatch.setattr(memory, "BLOCK", block)
    tables = [filled(dtype, 12, 10)[0] for _ in range(3)]
    for table in tables:
        table.touched.zero_()
    expected = tables[0].read(torch.arange(12))
    writes = [(0, [3, 7]), (1, [7, 1, 0, 9, 2, 11]), (2, [])]
    for rank, samples in writes:
        rows = torch.randint(
            0, 2, (len(samples), 10), generator=torch.Generator().manual_seed(rank)
        )
        tables[rank].write(torch.tensor(samples, dtype=torch.long), rows)
        for sample, row in zip(samples, rows, strict=True):
            if (rank, sample) != (1, 7):  # rank 0 has it
                expected[sample] = row.to(expected.dtype)
    in_turn(tables)
    for table in tables:
        assert torch.equal(table.read(torch.arange(12)), expected)
        assert not table.touched.any()


SAMPLES, CLASSES, EPOCHS = 24, 6, 3
METHODS: dict[str, dict[str, Any]] = {
    "em-apl": {"warmup": 1},
    "ll-cp": {"delta": 0.05},
    "mime": {"warmup": 1, "theta": 0.6},
    "smile": {},
    "en": {"expected_positives": 1.5},
    "role": {"expected_positives": 1.5, "light": True, "rate": 0.02},
}


def labels_of_all() -> Tensor:
    random = torch.Generator().manual_seed(5)
    return torch.randint(-1, 2, (SAMPLES, CLASSES), generator=random, dtype=torch.int8)


def share(epoch: int, rank: int) -> list[tuple[Tensor, Tensor]]:
    """(logits, index) of the batches of one of two processes; both have sample 0 in the last."""
    random = torch.Generator().manual_seed(epoch)
    order = torch.randperm(SAMPLES - 1, generator=random) + 1
    logits = torch.randn(SAMPLES, CLASSES, generator=random) * 2
    mine = torch.cat([order[rank::2], torch.zeros(1, dtype=torch.long)])
    return [(logits[part], part) for part in mine.split(4)]


def remember(name: str, ranks: list[int]) -> losses.Loss:
    """A run over the batches of one process, or of both one after the other."""
    labels = labels_of_all()
    loss = losses.create(name, **METHODS[name])
    loss.begin(labels)
    table = loss.memory.values
    for epoch in range(EPOCHS):
        loss.start_epoch(epoch, EPOCHS)
        before = table[0].clone()
        of_first = None
        for rank in ranks:
            table[0] = before
            for logits, index in share(epoch, rank):
                loss(logits, labels[index], index=index)
                if loss.needs_scores:
                    loss.observe(logits, index)
            # Both processes write sample 0, and what the first wrote counts.
            of_first = table[0].clone() if of_first is None else of_first
        table[0] = of_first
        loss.merge()
        loss.end_epoch()
    return loss


def process(rank: int, folder: str) -> dict[str, Any]:
    """What one of two processes remembers of every method."""
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meet",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=60),
    )
    try:
        return {name: remember(name, [rank]).state_dict() for name in METHODS}
    finally:
        torch.distributed.destroy_process_group()


def second_process(_: int, folder: str) -> None:
    torch.save(process(1, folder), f"{folder}/second.pt")


def test_two_processes_remember_what_one_would(tmp_path: Path):
    other = torch.multiprocessing.spawn(second_process, (str(tmp_path),), nprocs=1, join=False)
    first = process(0, str(tmp_path))
    while not other.join():
        pass
    second = torch.load(tmp_path / "second.pt", weights_only=True)
    for name in METHODS:
        alone = remember(name, [0, 1]).state_dict()
        assert alone.keys() == first[name].keys() == second[name].keys()
        for key, value in alone.items():
            assert torch.equal(first[name][key], value), (name, key)
            assert torch.equal(second[name][key], value), (name, key)
