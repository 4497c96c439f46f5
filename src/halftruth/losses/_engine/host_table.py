"""Host memory for a table that is too large for the training device.

Two things make it as good as the device's own: its pages are locked, so that a CUDA device reads
and writes them by itself and nothing waits for a copy; and the processes of a machine hold one
such table together, so that eight GPUs do not need eight times the room.
"""

import mmap
import os
import platform
import secrets
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, distributed

from halftruth.losses._engine.distributed import everyone

PLACES = ("auto", "device", "host")
# Of what is free on the training device before the model, its optimiser and activations come.
SHARE = 1 / 8
# Files here are memory. One is removed as soon as all have opened it: a killed run leaves none.
FOLDER = Path("/dev/shm")


def free_memory(device: torch.device) -> int | None:
    """Bytes a device has left, or None where it does not tell."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    if device.type == "cpu" and "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", {}):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


@dataclass(frozen=True)
class Sharing:
    """This process among those that hold one table.

    `leads`: it is the one of its machine that does what has to be done once. `all_here`: there is
    no process on any other machine.
    """

    leads: bool
    all_here: bool


def host_table(nbytes: int, near: torch.device, together: bool) -> tuple[Tensor, Sharing | None]:
    """Bytes in host memory as `near` sees them, and who else has them; what is in them is open.

    With `together` all processes have to call this at once.
    """
    pages, sharing = _shared_pages(nbytes) if together else (None, None)
    # Pages of its own, not a corner of the heap: locking one twice is refused.
    block = torch.frombuffer(pages or mmap.mmap(-1, nbytes), dtype=torch.uint8)
    return (_seen_from(near, block) if near.type == "cuda" else block), sharing


# Processes of one machine.


def _shared_pages(nbytes: int) -> tuple[mmap.mmap | None, Sharing | None]:
    """The same pages in all processes of a machine; none where each is alone on its own."""
    here, rank = platform.node(), distributed.get_rank()
    said = everyone((here, f"halftruth-{secrets.token_hex(8)}"))
    if len({node for node, _ in said}) == len(said):
        return None, None
    local = [other for other, (node, _) in enumerate(said) if node == here]
    path, leads = FOLDER / said[local[0]][1], local[0] == rank
    pages = _opened(path, nbytes, new=True) if leads else None
    # One after the other: the file is there before it is opened, and opened before it goes.
    everyone(None)
    pages = pages if leads else _opened(path, nbytes, new=False)
    opened = all(everyone(pages is not None))
    if leads:
        path.unlink(missing_ok=True)
    if opened:
        return pages, Sharing(leads, all_here=len(local) == len(said))
    if leads:
        warnings.warn(
            f"{FOLDER} has no room for a table of {nbytes / 1e9:.2f} GB that the {len(local)} "
            "processes here could share: each keeps one of its own, with the same content. In a "
            "container --shm-size makes room",
            stacklevel=2,
        )
    return None, None


def _opened(path: Path, nbytes: int, new: bool) -> mmap.mmap | None:
    """The pages of a file, reserved when it is new: writing to some that are missing would kill."""
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
    """Pages that stay where they are; a tensor over them keeps this, and the last one frees it."""

    def __init__(self, block: Tensor) -> None:
        self.block = block
        # 1: for every device, 2: within its reach.
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
        # At the end of the program CUDA may be gone before this is.
        with suppress(Exception):
            if self.locked:
                torch.cuda.synchronize()
                torch.cuda.cudart().cudaHostUnregister(self.block.data_ptr())


def _seen_from(device: torch.device, block: Tensor) -> Tensor:
    """The same bytes as a tensor of the device, whose kernels reach into them."""
    with torch.cuda.device(device):
        try:
            seen = torch.as_tensor(_Locked(block), device=device)
            if seen.data_ptr() == block.data_ptr():
                return seen
            why = "the device has another address for it"
        except (MemoryError, RuntimeError, TypeError) as error:
            why = str(error)
            # What was refused would be reported by the next kernel, which has no part in it.
            with suppress(RuntimeError):
                torch.zeros(1, device=device)
    warnings.warn(
        f"a table in host memory cannot be reached from {device} ({why}): the rows of a batch "
        "travel by copies, which wait for the device",
        stacklevel=2,
    )
    return block
