"""Checkpoints: one file, written whole or not at all, read without running any code.

Tensors go into safetensors; everything around them (numbers, names, lists) into its JSON header.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written, read, or used here."""


def save(path: Path, tree: Any) -> None:
    """Write a tree of dicts, lists, numbers and tensors; the old file stays until this is safe."""
    tensors: dict[str, Tensor] = {}
    header = {"format": "halftruth-1", "tree": json.dumps(_pack(tree, tensors))}
    try:
        with replace_file(path) as new:
            try:
                save_file(_apart(tensors), new, metadata=header)
            except SafetensorError as error:
                raise OSError(str(error)) from error
            # safetensors makes files for their owner only; those who can use the folder read them.
            new.chmod(path.parent.stat().st_mode & 0o666)
    except OSError as error:
        kept = "the last good one is untouched" if path.exists() else "there was none before"
        raise CheckpointError(f"the checkpoint {error}; {kept}") from error


def load(path: Path) -> Any:
    """The tree of a checkpoint, its tensors on the CPU."""
    if not path.is_file():
        raise CheckpointError(f"there is no checkpoint {path}")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot read the checkpoint {path}: {error}") from error
    if header.get("format") != "halftruth-1":
        raise CheckpointError(f"{path} was not written by halftruth (or by a newer one)")
    return _unpack(json.loads(header["tree"]), tensors)


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`; the file written there then takes its place.

    It is on the disk before it gets its name: a full disk, an error or a kill leaves the old file
    or none, never a part of the new one. An OSError names the file.
    """
    target = Path(os.path.realpath(path))
    new = target.with_name(f".{target.name}.new")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield new
        with new.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(new, target)
        _sync_folder(target.parent)
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file whole or not at all; line ends stay as they are in `text`."""
    with replace_file(path) as new:
        new.write_text(text, encoding="utf-8", newline="")


def _pack(node: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(node, Tensor):
        name = f"t{len(tensors)}"
        tensors[name] = node.detach().cpu().contiguous()
        return {"tensor": name}
    if isinstance(node, dict):
        # Pairs, since the keys of an optimiser's state are numbers, which JSON does not have.
        return {"dict": [[key, _pack(value, tensors)] for key, value in node.items()]}
    if isinstance(node, (list, tuple)):
        return [_pack(value, tensors) for value in node]
    if node is None or isinstance(node, (str, int, float, bool)):
        return node
    raise TypeError(f"a checkpoint cannot hold {type(node).__name__}")


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, copied only where they share memory, which the format forbids."""
    seen: set[int] = set()
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage()
        if memory.data_ptr() in seen or memory.nbytes() > tensor.nbytes:
            tensors[name] = tensor.clone()
        seen.add(memory.data_ptr())
    return tensors


def _unpack(node: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(node, list):
        return [_unpack(value, tensors) for value in node]
    if isinstance(node, dict):
        if "tensor" in node:
            return tensors[node["tensor"]]
        return {key: _unpack(value, tensors) for key, value in node["dict"]}
    return node


def _sync_folder(folder: Path) -> None:
    """Make the renaming itself survive a power cut, where the system allows it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
