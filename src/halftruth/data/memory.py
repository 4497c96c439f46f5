"""How much memory data needs, and a refusal with advice where there is not enough."""

from __future__ import annotations

from halftruth.data.errors import DataError


def get_free_memory() -> float:
    """Return the bytes that this machine can still give out; infinity if that is not known."""
    try:
        import psutil
    except ImportError:
        return float("inf")
    return float(psutil.virtual_memory().available)


def check_memory(size: float, what: str, advice: str, free: float | None = None) -> None:
    """Refuse to make something of `size` bytes that does not fit into the free memory.

    `free`: the bytes that are free, if it is not about the memory of this machine.
    """
    free = get_free_memory() if free is None else free
    if size > free:
        raise DataError(
            f"{what} would take {format_bytes(size)}, and {format_bytes(free)} of memory are free; "
            f"{advice}"
        )


def format_bytes(size: float) -> str:
    """Return a size in words.

    >>> format_bytes(2_600_000), format_bytes(3e9)
    ('3 MB', '3.0 GB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
