"""Memory of a loss: a table with one row per training sample.

The table is part of the loss, so it is saved and resumed with it. It lies on the device or in host
memory, and is the same in every process after `merge`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from halftruth.losses._engine.table_storage import (
    PLACES,
    SHARE,
    Exchange,
    Sharing,
    default_exchange,
    free_memory,
    gather_objects,
    has_several_processes,
    host_table,
    pack_bits,
    unpack_bits,
)

# Entries per block in loops over all samples: the temporary copies of a block of four million
# take about 0.1 GB, whatever the size of the table.
BLOCK = 1 << 22
State = dict[str, Tensor]


class Memory(nn.Module):
    """A table with one row per training sample, read and written by index.

    `dtype` is a torch type or its name; bool is stored as bits, eight entries per byte.

    `place`: "device", "host", or "auto": the training device, or host memory if the table would
    need more than an eighth of the memory that is `free` there. For a CUDA device the pages in host
    memory are locked, and its kernels read and write the rows of a batch over the bus: without a
    copy of the table, and without waiting. The values do not depend on the place.

    Several processes: on devices, each process has its own table, since a row is needed where it is
    computed. In host memory, the processes of one machine share one table if the trainer builds it
    in all of them at once (`together`): this saves eight copies of 2 GB, and their exchange after
    each epoch. A row is written by one process per epoch, so there are no conflicts. Work on all
    samples is done inside `whole`, by one process, since repeated relabelling would start from
    rows that another process has already changed.

    >>> memory = Memory("float32")
    >>> memory.allocate(4, 3, fill=0.5)
    >>> memory.write(torch.tensor([2]), torch.tensor([[1.0, 2.0, 3.0]]))
    >>> memory.read(torch.tensor([2, 0]))
    tensor([[1.0000, 2.0000, 3.0000],
            [0.5000, 0.5000, 0.5000]])
    >>> memory.nbytes
    52
    """

    values: Tensor
    touched: Tensor
    sharing: Sharing | None

    def __init__(
        self,
        dtype: str | torch.dtype = "float16",
        *,
        place: str = "auto",
        free: Callable[[torch.device], int | None] = free_memory,
    ) -> None:
        super().__init__()
        kind = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
        if not isinstance(kind, torch.dtype):
            raise ValueError(f'expected a type such as "float16" or "int8", got {dtype!r}')
        self.dtype, self.free = kind, free
        self.near = torch.device("cpu")
        self.in_host, self.sharing = False, None
        self.set_place(place)
        self.shape: tuple[int, ...] = ()
        self.register_buffer("values", torch.empty(0, dtype=self._stored))
        self.register_buffer("touched", torch.empty(0, dtype=torch.bool), persistent=False)

    def set_place(self, place: str = "auto", together: bool = False) -> None:
        """Set the place of the next table, and whether all processes build it at the same time."""
        if place not in PLACES:
            raise ValueError(f"expected a place for the memory in {PLACES}, got {place!r}")
        self.place, self.together = place, together

    @property
    def _stored(self) -> torch.dtype:
        return torch.uint8 if self.dtype == torch.bool else self.dtype

    def allocate(self, rows: int, *shape: int, fill: float = 0) -> None:
        """Allocate `rows` samples of the given shape, all entries set to `fill`."""
        self.shape = shape
        if self.dtype == torch.bool:
            fill = 255 if fill else 0
            shape = (*shape[:-1], -(-shape[-1] // 8)) if shape else ()
        self._make_room((rows, *shape))
        with self.whole() as may_write:
            if may_write:
                self.values.fill_(fill)

    @property
    def nbytes(self) -> int:
        """Bytes of the table and of the marks per row for `merge`."""
        return self.values.nbytes + self.touched.nbytes

    def __len__(self) -> int:
        return len(self.values)

    def read(self, index: Tensor) -> Tensor:
        """The rows of these samples, on the index's device."""
        rows = self.values[self._at(index)]
        if self.dtype == torch.bool:
            rows = unpack_bits(rows, self.shape)
        return rows.to(index.device)

    def write(self, index: Tensor, rows: Tensor) -> None:
        """Replace the rows of these samples; an index may occur once."""
        at = self._at(index)
        if rows.shape != (len(at), *self.shape):
            raise ValueError(
                f"expected rows of shape {(len(at), *self.shape)} for {len(at)} samples, "
                f"got {tuple(rows.shape)}"
            )
        if self.dtype == torch.bool:
            rows = pack_bits(rows)
        self.values[at] = rows.detach().to(self.values)
        self.touched.index_fill_(0, at, True)

    def _at(self, index: Tensor) -> Tensor:
        return checked_index(index, len(self.values)).to(self.values.device)

    # All samples, in blocks.

    def row_blocks(self) -> Iterator[slice]:
        """Slices of rows that together cover the table."""
        width = max(torch.Size(self.shape).numel(), 1)
        return _slices(len(self.values), max(BLOCK // width, 1))

    def column_blocks(self) -> Iterator[slice]:
        """Slices of columns that together cover the table."""
        return _slices(self.shape[0], max(BLOCK // max(len(self.values), 1), 1))

    def sample_blocks(self, scores: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (scores, index) of some samples at a time, from the scores (N, K) of all."""
        expected = (len(self), *self.shape)
        if scores.shape != expected:
            raise ValueError(
                f"expected scores of shape {expected}, the logits of all training samples by "
                f"index, got {tuple(scores.shape)}"
            )
        index = torch.arange(len(scores), device=scores.device)
        for rows in self.row_blocks():
            yield scores[rows], index[rows]

    # Several processes.

    @contextmanager
    def whole(self) -> Iterator[bool]:
        """Work on all samples while no other process writes rows.

        Yields whether this process may write: True in one of the processes that share a table,
        and in each process that has its own. Afterwards all tables are the same, so `merge` has
        nothing to exchange.
        """
        self._wait()
        yield self.sharing is None or self.sharing.leads
        self.touched.zero_()
        self._wait()

    def _wait(self) -> None:
        """Wait for all processes that share this table, and for their devices."""
        if self.sharing is not None:
            if self.near.type == "cuda":
                torch.cuda.synchronize(self.near)
            torch.distributed.barrier()

    def merge(self, exchange: Exchange | None = None) -> None:
        """Give every process the rows that any of them has written since the last merge.

        `exchange` gathers equally shaped tensors of all processes along the first dimension, in
        the order of their ranks, as `Accelerator.gather` does; without it `torch.distributed` is
        used where it runs. If several processes have written a row, that of the lowest rank
        counts. Processes that share a table have nothing to exchange, and wait for each other.
        """
        exchange = exchange or default_exchange()
        if exchange is not None and not (self.sharing and self.sharing.all_here):
            self._take_all(exchange)
        self.touched.zero_()
        self._wait()

    def _take_all(self, exchange: Exchange) -> None:
        home = self.values.device
        touched = exchange(self.touched.to(self.near, torch.uint8)).to(home)
        written = touched.view(-1, len(self.values)).bool()
        places = [mask.nonzero().squeeze(1) for mask in written]
        own = self.touched.nonzero().squeeze(1)
        # Whether a rank is the lowest that has written a row; rows of higher ranks are dropped.
        first = written & (written.cumsum(dim=0, dtype=torch.int16) == 1)
        longest = max(len(place) for place in places)
        step = max(BLOCK // max(self.values[:1].numel(), 1), 1)
        for part in _slices(longest, step):
            rows = self.values.new_zeros((part.stop - part.start, *self.values.shape[1:]))
            rows[: len(own[part])] = self.values[own[part]]
            # As bytes, which every kind of exchange accepts.
            sent = rows.reshape(len(rows), -1).view(torch.uint8)
            arrived = exchange(sent.to(self.near)).to(home).view(len(places), *sent.shape)
            for rank, place in enumerate(places):
                at = place[part]
                theirs = arrived[rank, : len(at)].contiguous().view(self._stored)
                kept = first[rank, at]
                self.values[at[kept]] = theirs.view(-1, *self.values.shape[1:])[kept]

    # Placement and saving.

    def _make_room(self, size: tuple[int, ...]) -> None:
        """Allocate a table of this size at its place; the content is undefined."""
        nbytes = torch.Size(size).numel() * self._stored.itemsize
        self.sharing, together = None, self.together and has_several_processes()
        self.in_host = nbytes > 0 and self._goes_to_host(nbytes, together)
        if self.in_host:
            table, self.sharing = host_table(nbytes, self.near, together)
            self.values = table.view(self._stored).view(size)
        else:
            self.values = torch.empty(size, dtype=self._stored, device=self.near)
        self.touched = torch.zeros(size[0], dtype=torch.bool, device=self.values.device)

    def _goes_to_host(self, nbytes: int, together: bool) -> bool:
        if self.place != "auto":
            return self.place == "host"
        free = self.free(self.near)
        too_large = free is not None and nbytes > SHARE * free
        # One device may have less free memory, and a table is shared by all processes or by none.
        return any(gather_objects(too_large)) if together else too_large

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Memory":
        # A change of the floating-point dtype of the module does not apply to the table: an integer
        # tensor shows the new device only.
        near = fn(torch.empty(0, dtype=torch.uint8, device=self.near)).device
        if near != self.near:
            self.near, values, touched = near, self.values, self.touched
            self._make_room(tuple(values.shape))
            with self.whole() as may_write:
                if may_write:
                    self.values.copy_(values)
            self.touched.copy_(touched)
        return self

    def __getstate__(self) -> dict[str, object]:
        # A copy has its own table.
        return {**self.__dict__, "sharing": None}

    def get_extra_state(self) -> Tensor:
        """The shape of a row, which packed bits do not show."""
        return torch.tensor(self.shape, dtype=torch.int64)

    def set_extra_state(self, state: Tensor) -> None:
        self.shape = tuple(int(size) for size in state)

    def _load_from_state_dict(self, state_dict: State, prefix: str, *rest: object) -> None:
        saved = state_dict.get(prefix + "values")
        if saved is not None and len(self.values) == 0:
            self.allocate(len(saved), *state_dict[prefix + "_extra_state"].tolist())
        # Each process loads the same saved table, so all may copy it.
        with self.whole():
            super()._load_from_state_dict(state_dict, prefix, *rest)


def _slices(count: int, step: int) -> Iterator[slice]:
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


def checked_index(index: Tensor, samples: int) -> Tensor:
    """Check the index of a batch against the number of samples, and return it as int64."""
    if samples == 0:
        raise ValueError(
            "the memory is empty: call begin(labels of the training set) once before training, "
            "which creates one row per sample"
        )
    if index.dim() != 1 or index.is_floating_point() or index.dtype == torch.bool:
        raise ValueError(
            "expected index to hold an integer per row of the batch, its sample number, got "
            f"shape {tuple(index.shape)} of {index.dtype}"
        )
    # On an accelerator this check would wait; an index that is too large fails there anyway.
    if index.device.type == "cpu" and not torch.compiler.is_compiling():
        wrong = (index < 0) | (index >= samples)
        if bool(wrong.any()):
            first = int(wrong.int().argmax())
            raise IndexError(
                f"index[{first}] is {int(index[first])}; expected 0 to {samples - 1}, the rows of "
                "the labels given to begin()"
            )
    return index.long()


def take_sizes(module: nn.Module, state_dict: State, prefix: str) -> None:
    """Resize tensors that are empty before `begin` to their size in a saved state."""
    for name, tensor in (*module._parameters.items(), *module._buffers.items()):
        saved = state_dict.get(prefix + name)
        if tensor is not None and tensor.numel() == 0 and saved is not None:
            tensor.data = torch.empty(saved.shape, dtype=tensor.dtype, device=tensor.device)
