"""The memory by sample index: reading, writing, saving, placement, several processes."""

import copy
import io
import os
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from halftruth import losses
from halftruth.losses import memory
from halftruth.losses._engine import table_storage as placement
from halftruth.losses.memory import Memory, pack_bits, unpack_bits

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
def test_new_rows_have_the_fill_value(dtype: str, fill: int):
    table = Memory(dtype)
    table.allocate(4, 11, fill=fill)
    assert (table.read(torch.arange(4)) == fill).all()


@given(st.lists(st.lists(st.booleans(), min_size=13, max_size=13), min_size=1, max_size=5))
def test_packed_bits_unpack_to_the_same_booleans(rows: list[list[bool]]):
    bits = torch.tensor(rows)
    assert pack_bits(bits).shape == (len(rows), 2)
    assert torch.equal(unpack_bits(pack_bits(bits), (13,)), bits)


def test_bytes_are_counted():
    sizes = {"float16": 2, "float32": 4, "int8": 1}
    for dtype, size in sizes.items():
        assert filled(dtype, 10, 24)[0].nbytes == 10 * 24 * size + 10
    assert filled("bool", 10, 24)[0].nbytes == 10 * 3 + 10


@pytest.mark.parametrize("dtype", TYPES)
def test_a_saved_table_loads_into_an_empty_one(dtype: str):
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


def test_the_dtype_does_not_follow_the_module():
    table, _ = filled("float16", 3, 2)
    nn.Sequential(nn.Linear(2, 2), table).double()
    assert table.values.dtype == torch.float16
    table.to(torch.bfloat16)
    assert table.values.dtype == torch.float16


@pytest.mark.parametrize(
    ("place", "free", "found"),
    [
        ("auto", 8 * 10 * 6 * 2, "meta"),
        ("auto", 8 * 10 * 6 * 2 - 1, "cpu"),
        ("auto", None, "meta"),
        ("host", None, "cpu"),
        ("device", 0, "meta"),
    ],
)
def test_a_table_that_would_fill_the_device_lies_in_host_memory(
    place: str, free: int | None, found: str
):
    """The device "meta" replaces an accelerator here: it has shapes but no values."""
    # In host memory itself there is room for all.
    left = {"meta": free, "cpu": None}
    before, after = (
        Memory("float16", place=place, free=lambda device: left[device.type]) for _ in range(2)
    )
    before.to("meta")
    before.allocate(10, 6)
    after.allocate(10, 6)
    after.to("meta")
    for table in (before, after):
        assert table.values.device.type == table.touched.device.type == found
        assert table.near.type == "meta"
        assert table.in_host == (found == "cpu")
        table.half()
        assert table.values.device.type == found, "what stays on its device stays in its place"
    if found == "cpu":
        assert before.read(torch.tensor([1, 2])).shape == (2, 6)


def test_free_memory_is_that_of_the_machine():
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    free = placement.free_memory(torch.device("cpu"))
    assert free is not None
    assert 0 < free < pages
    assert placement.free_memory(torch.device("meta")) is None


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(), (5,), (3, 11)])
def test_host_memory_equals_device_memory(dtype: str, shape: tuple[int, ...]):
    random = torch.Generator().manual_seed(1)
    tables = [Memory(dtype, place=place) for place in ("device", "host")]
    for table in tables:
        table.allocate(9, *shape, fill=1)
    assert [table.in_host for table in tables] == [False, True]
    index = torch.tensor([7, 0, 3])
    rows = torch.randint(0, 2, (3, *shape), generator=random)
    for table in tables:
        table.write(index, rows)
    assert torch.equal(*(table.values for table in tables))
    assert torch.equal(*(table.read(torch.arange(9)) for table in tables))
    copied = copy.deepcopy(tables[1])
    copied.write(index, 1 - rows)
    assert torch.equal(tables[1].read(index), rows.to(tables[1].dtype)), "a copy is its own table"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", TYPES)
def test_a_cuda_device_reads_and_writes_host_memory(dtype: str):
    tables = [Memory(dtype, place=place).to("cuda") for place in ("device", "host")]
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    tables[1].allocate(1000, 300)
    assert torch.cuda.memory_allocated() - before < tables[1].values.nbytes
    tables[0].allocate(1000, 300)
    random = torch.Generator("cuda").manual_seed(0)
    for _ in range(3):
        index = torch.randperm(1000, generator=random, device="cuda")[:64]
        rows = torch.randint(0, 2, (64, 300), generator=random, device="cuda")
        torch.cuda.set_sync_debug_mode("error")
        try:
            for table in tables:
                table.write(index, rows)
                table.read(index)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert torch.equal(*(table.read(index) for table in tables))
    assert torch.equal(*(table.state_dict()["values"].cpu() for table in tables))
    views = tables[1].values[5:7]
    kept = views.clone()
    del tables, table
    assert torch.equal(views, kept), "pages are let go with the last tensor over them"


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"such as .float16.*got 'float17'"):
        Memory("float17")
    with pytest.raises(ValueError, match="got 'gpu'"):
        Memory(place="gpu")
    table, _ = filled("float32", 5, 3)
    with pytest.raises(ValueError, match=r"rows of shape \(2, 3\) for 2 samples, got \(2, 4\)"):
        table.write(torch.tensor([0, 1]), torch.zeros(2, 4))


# Several processes


def in_turn(tables: list[Memory]) -> None:
    """Merge tables as their processes would, with an exchange in one process."""
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
def test_merge_gives_every_process_all_written_rows(dtype: str, block: int, monkeypatch):
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


def share(epoch: int, rank: int, both: bool = True) -> list[tuple[Tensor, Tensor]]:
    """(logits, index) of the batches of one of two processes; `both` have sample 0 in the last."""
    random = torch.Generator().manual_seed(epoch)
    order = torch.randperm(SAMPLES - 1, generator=random) + 1
    logits = torch.randn(SAMPLES, CLASSES, generator=random) * 2
    mine = torch.cat([order[rank::2], torch.zeros(int(both or rank == 0), dtype=torch.long)])
    return [(logits[part], part) for part in mine.split(4)]


def remember_together(name: str, ranks: list[int], place: str) -> losses.Loss:
    """The same, each sample in one process only, as in a run: two of them can hold one table."""
    labels = labels_of_all()
    loss = losses.create(name, **METHODS[name])
    loss.place_memory(place, together=True)
    loss.begin(labels)
    for epoch in range(EPOCHS):
        loss.start_epoch(epoch, EPOCHS)
        for rank in ranks:
            for logits, index in share(epoch, rank, both=False):
                loss(logits, labels[index], index=index)
                if loss.needs_scores:
                    loss.observe(logits, index)
        loss.merge()
        loss.end_epoch()
        if epoch == 1:
            saved = copy.deepcopy(loss.state_dict())
            loss.load_state_dict(saved)
    return loss


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
            # Both processes write sample 0; the row of the first one counts.
            of_first = table[0].clone() if of_first is None else of_first
        table[0] = of_first
        loss.merge()
        loss.end_epoch()
    return loss


def process(rank: int, folder: str) -> dict[str, Any]:
    """The memory of every method in one of two processes."""
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meet",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=60),
    )
    try:
        found = {name: remember(name, [rank]).state_dict() for name in METHODS}
        placement.FOLDER = Path(folder)
        for name in METHODS:
            loss = remember_together(name, [rank], "host")
            assert loss.memory.sharing == placement.Sharing(leads=rank == 0, all_here=True)
            # One process reads the rows that the other has written, before any merge.
            torch.distributed.barrier()
            if rank == 1:
                loss.memory.write(torch.tensor([3]), loss.memory.read(torch.tensor([4])))
            torch.distributed.barrier()
            assert torch.equal(*loss.memory.read(torch.tensor([3, 4])))
            found[f"{name}, host"] = loss.state_dict()
        placement.FOLDER = Path(folder) / "missing"
        with pytest.warns(UserWarning, match="no room") if rank == 0 else nullcontext():
            loss = remember_together("em-apl", [rank], "host")
        assert loss.memory.sharing is None
        found["em-apl, own"] = loss.state_dict()
        placement.FOLDER = Path(folder)
        # One of the two has too little memory: both must use host memory.
        table = Memory("float16", free=lambda device: 100 * rank)
        table.set_place(together=True)
        table.allocate(1, 6)
        assert table.sharing is not None
        return found
    finally:
        torch.distributed.destroy_process_group()


def second_process(_: int, folder: str) -> None:
    torch.save(process(1, folder), f"{folder}/second.pt")


def test_two_processes_remember_the_same_as_one(tmp_path: Path):
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
    for name in METHODS:
        alone = remember_together(name, [0, 1], "device").state_dict()
        alone["memory.values"][3] = alone["memory.values"][4]
        for key, value in alone.items():
            assert torch.equal(first[f"{name}, host"][key], value), (name, key)
            assert torch.equal(second[f"{name}, host"][key], value), (name, key)
    alone = remember_together("em-apl", [0, 1], "device").state_dict()
    assert torch.equal(first["em-apl, own"]["memory.values"], alone["memory.values"])
    assert not list(tmp_path.glob("halftruth-*")), "the file goes as soon as all have it"
