"""Storage of per-sample tables: bits, exchange between processes, and host memory.

A table that is too large for the training device lies in host memory. Its pages are locked, so that
a CUDA device reads and writes them directly and nothing waits for a copy; and the processes of one
machine share one such table, so that eight GPUs do not need eight times the memory.
"""

import mmap
import os
import platform
import secrets
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed
from torch.nn.functional import pad

T = TypeVar("T")
# Gathers equally shaped tensors of all processes along the first dimension.
Exchange = Callable[[Tensor], Tensor]
PLACES = ("auto", "device", "host")
# The largest share of the free device memory for a table: model and optimiser come later.
SHARE = 1 / 8
# Files here are memory. One is deleted as soon as all have opened it: a killed run leaves none.
FOLDER = Path("/dev/shm")


# Booleans as bits.


def pack_bits(bits: Tensor) -> Tensor:
    """Pack booleans as bits, eight per byte along the last dimension.

    >>> pack_bits(torch.tensor([[True, False, True, False, False, False, False, False, True]]))
    tensor([[5, 1]], dtype=torch.uint8)
    """
    if bits.dim() == 1:
        return bits.to(torch.uint8)
    whole = pad(bits.to(torch.uint8), (0, -bits.shape[-1] % 8))
    places = torch.arange(8, dtype=torch.uint8, device=bits.device)
    return (whole.unflatten(-1, (-1, 8)) << places).sum(dim=-1, dtype=torch.uint8)


def unpack_bits(values: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Unpack the booleans of `pack_bits`, for samples of the given shape."""
    if not shape:
        return values.bool()
    places = torch.arange(8, dtype=torch.uint8, device=values.device)
    bits = (values.unsqueeze(-1) >> places) & 1
    return bits.flatten(-2)[..., : shape[-1]].bool()


# Communication between processes.


def has_several_processes() -> bool:
    """Whether `torch.distributed` runs more than this process."""
    return (
        distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )


def gather_objects(own: T) -> list[T]:
    """The objects of all processes, ordered by rank; all processes must call this."""
    found: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(found, own)
    return found


def default_exchange() -> Exchange | None:
    """An exchange over `torch.distributed`, or None with one process."""
    if not has_several_processes():
        return None
    world = distributed.get_world_size()

    def gather(tensor: Tensor) -> Tensor:
        tensor = tensor.contiguous()
        parts = [torch.empty_like(tensor) for _ in range(world)]
        distributed.all_gather(parts, tensor)
        return torch.cat(parts)

    return gather


# Host memory.


def free_memory(device: torch.device) -> int | None:
    """The free memory of a device in bytes, or None if it is not known."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    if device.type == "cpu" and "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", {}):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


@dataclass(frozen=True)
class Sharing:
    """The role of this process among those that share one table.

    `leads`: it is the process of its machine that does the work for all of them. `all_here`: no
    process runs on another machine.
    """

    leads: bool
    all_here: bool


def host_table(nbytes: int, near: torch.device, together: bool) -> tuple[Tensor, Sharing | None]:
    """Allocate bytes in host memory, as a tensor of device `near`.

    Also returns the role of this process if several share them. The content is undefined.
    With `together`, all processes must call this at the same time.
    """
    pages, sharing = _shared_pages(nbytes) if together else (None, None)
    # Separate pages, not a part of the heap: locking a page twice is refused.
    block = torch.frombuffer(pages or mmap.mmap(-1, nbytes), dtype=torch.uint8)
    return (_seen_from(near, block) if near.type == "cuda" else block), sharing


# Processes of one machine.


def _shared_pages(nbytes: int) -> tuple[mmap.mmap | None, Sharing | None]:
    """The same pages in all processes of a machine; None if each machine has one process."""
    here, rank = platform.node(), distributed.get_rank()
    names = gather_objects((here, f"halftruth-{secrets.token_hex(8)}"))
    if len({node for node, _ in names}) == len(names):
        return None, None
    local = [other for other, (node, _) in enumerate(names) if node == here]
    path, leads = FOLDER / names[local[0]][1], local[0] == rank
    pages = _open_pages(path, nbytes, new=True) if leads else None
    # In this order: the file exists before it is opened, and is opened before it is deleted.
    gather_objects(None)
    pages = pages if leads else _open_pages(path, nbytes, new=False)
    opened = all(gather_objects(pages is not None))
    if leads:
        path.unlink(missing_ok=True)
    if opened:
        return pages, Sharing(leads, all_here=len(local) == len(names))
    if leads:
        warnings.warn(
            f"{FOLDER} has no room for a table of {nbytes / 1e9:.2f} GB that the {len(local)} "
            "processes of this machine could share: each keeps its own copy. In a container, "
            "increase --shm-size",
            stacklevel=2,
        )
    return None, None


def _open_pages(path: Path, nbytes: int, new: bool) -> mmap.mmap | None:
    """Map a file, reserved if new: a write to a missing page would kill the process."""
    try:
        handle = os.open(path, os.O_RDWR | (os.O_CREAT | os.O_EXCL if new else 0), 0o600)
        try:
            if new:
                os.posix_fallocate(handle, 0, nbytes)
            return mmap.mmap(handle, nbytes)
        finally:
            os.close(handle)
    except (OSError, ValueError):
        return None


# A CUDA device.


class _Locked:
    """Locked pages. Tensors over them hold a reference to this object; it unlocks at the end."""

    def __init__(self, block: Tensor) -> None:
        self.block = block
        # 1: for every device, 2: mapped into its address space.
        status = int(torch.cuda.cudart().cudaHostRegister(block.data_ptr(), block.nbytes, 1 | 2))
        self.locked = status == 0
        if not self.locked:
            raise MemoryError(f"CUDA error {status} on locking {block.nbytes:,} bytes")
        self.__cuda_array_interface__ = {
            "shape": (block.nbytes,),
            "typestr": "|u1",
            "data": (block.data_ptr(), False),
            "version": 2,
        }

    def __del__(self) -> None:
        # At the end of the program CUDA may already be shut down.
        with suppress(Exception):
            if self.locked:
                torch.cuda.synchronize()
                torch.cuda.cudart().cudaHostUnregister(self.block.data_ptr())


def _seen_from(device: torch.device, block: Tensor) -> Tensor:
    """The same bytes as a tensor of the device, which its kernels read and write directly."""
    with torch.cuda.device(device):
        try:
            seen = torch.as_tensor(_Locked(block), device=device)
            if seen.data_ptr() == block.data_ptr():
                return seen
            why = "the device maps it to another address"
        except (MemoryError, RuntimeError, TypeError) as error:
            why = str(error)
            # Clear the error, or the next kernel would report it.
            with suppress(RuntimeError):
                torch.zeros(1, device=device)
    warnings.warn(
        f"a table in host memory cannot be reached from {device} ({why}): the rows of a batch "
        "are copied, which waits for the device",
        stacklevel=2,
    )
    return block
