"""Files of a run folder: checkpoints, atomic writes, the lock, and the identity of a run.

A checkpoint is one safetensors file. Numbers, names and lists are in its JSON header. Reading a
checkpoint runs no code.
"""

import contextlib
import copy
import hashlib
import json
import math
import os
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from halftruth.data.remote import is_remote, upload
from halftruth.data.wide_matrix import WideMatrix
from halftruth.labels import SparseLabels
from halftruth.train.config import Config, ConfigError, read_settings
from halftruth.train.settings import FIXED, FREE, SETTINGS

if TYPE_CHECKING:
    from accelerate import Accelerator

    from halftruth.train.task import Task

LAST, BEST = "last.safetensors", "best.safetensors"
# The stage of a run whose model is the ensemble of auto.
ENSEMBLE = "ensemble"
# The best head of the first stage, before it is moved to the backbone.
HEAD = "head.safetensors"
RESULT = "result.json"
# The folder of fitted members of an ensemble; the run removes it when it is finished.
MEMBERS = "members"
# Logits of rows the model was not fitted on, for other rules of decisions and for estimates.
OUT_OF_SAMPLE = "out_of_sample.npz"
# The checksums of the files that predictions need, where a run has them. Written last.
MANIFEST = "manifest.json"
_NEEDED = (
    "config.yaml", BEST, RESULT, OUT_OF_SAMPLE, "encoder.json", "encoder.npz", "encoder/*",
    "image_network.safetensors",
)  # fmt: skip

_PARTS_OF_IDENTITY = {
    "classes": "class list",
    "inputs": "number of features",
    "features": "features (their values)",
    "labels": "label file (its rows, labels or split)",
}


class CheckpointError(RuntimeError):
    """A file of a run cannot be written, read, or used here."""


# ---------------------------------------------------------------------- writing and reading


@contextlib.contextmanager
def replace_file(path: Path, shared: bool = False) -> Iterator[Path]:
    """Yield a temporary path; on success it replaces `path`, on failure `path` is unchanged.

    `shared`: several processes may write the file at the same time.
    """
    if is_remote(path):
        with tempfile.TemporaryDirectory(prefix="halftruth-") as folder:
            yield (copy := Path(folder) / path.name)
            upload(copy, path)
        return
    target = Path(os.path.realpath(path))
    new = target.with_name(f".{os.getpid() if shared else 'new'}.{target.name}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield new
        with new.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(new, target)
        _sync_folder(target.parent)
    except (OSError, SafetensorError) as error:
        if isinstance(error, OSError) and not _is_about(error, new, target):
            raise
        kept = "; the old file is unchanged" if target.exists() else ""
        raise OSError(f"{path} cannot be written: {_explain_error(error)}{kept}") from error
    finally:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)


def _is_about(error: OSError, *paths: Path) -> bool:
    """Whether an error comes from writing these files, not from reading another one meanwhile."""
    named = error.filename is None or Path(os.fsdecode(error.filename)) in (
        *paths, *(path.parent for path in paths)
    )  # fmt: skip
    return error.errno is not None and named


def write_text(path: Path, text: str, shared: bool = False) -> None:
    """Write a text file completely or not at all; `shared`: see `replace_file`."""
    with replace_file(path, shared) as new:
        new.write_text(text, encoding="utf-8", newline="")


def append_line(path: Path, line: str) -> None:
    """Append a line to a text file and wait until it is on disk."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OSError(f"{path} cannot be written: {_explain_error(error)}") from error


def to_json(node: object, indent: int | None = None) -> str:
    """Return JSON text, with null instead of NaN and infinity, which JSON does not have."""
    return json.dumps(replace_nonfinite(node), indent=indent)


def replace_nonfinite(node: object) -> object:
    """Return the tree with every number that is not finite replaced by None."""
    if isinstance(node, float) and not math.isfinite(node):
        return None
    if isinstance(node, dict):
        return {key: replace_nonfinite(value) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return [replace_nonfinite(value) for value in node]
    return node


def read_result(folder: Path, classes: Sequence[str]) -> dict[str, object]:
    """Return the content of result.json of a run with these classes, checked."""
    path = folder / RESULT
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        thresholds = np.asarray(found["thresholds"], dtype=float)
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(
            f"cannot read {path}: {type(error).__name__}: {error}. It is written at the end of "
            f"training; `halftruth train --resume --out {folder}` writes it again"
        ) from error
    if thresholds.shape != (len(classes),) or not np.isfinite(thresholds).all():
        raise CheckpointError(
            f"{path}: expected one finite threshold for each of the {len(classes)} classes, got "
            f"{thresholds.size} values; `halftruth train --resume --out {folder}` writes it again"
        )
    if list(found.get("classes", ())) != list(classes):
        raise CheckpointError(f"{path}: its classes are not those of {BEST}; restore the folder")
    return dict(found)


def write_manifest(folder: Path) -> None:
    """Bind the files of a finished run to each other."""
    write_text(folder / MANIFEST, to_json(_list_checksums(folder), indent=1))


def check_manifest(folder: Path) -> None:
    """Refuse a finished run with files that are missing, damaged, or of another run."""
    if not (folder / RESULT).exists() and not (folder / MANIFEST).exists():
        # Training is not finished.
        return
    if not (folder / MANIFEST).exists():
        raise CheckpointError(
            f"{folder}: {MANIFEST} is missing: the run was continued and is not finished, or was "
            f"copied in part; `halftruth train --resume --out {folder}` finishes it"
        )
    with refuse_damage(folder / MANIFEST):
        written = dict(json.loads((folder / MANIFEST).read_text(encoding="utf-8")))
    found = _list_checksums(folder)
    told = [
        f"{', '.join(names)} {what}"
        for what, names in {
            "missing": sorted(written.keys() - found.keys()),
            "damaged or of another run": sorted(
                name for name in written.keys() & found.keys() if written[name] != found[name]
            ),
            "not of this run": sorted(found.keys() - written.keys()),
        }.items()
        if names
    ]
    if told:
        raise CheckpointError(
            f"{folder}: the files of the run do not belong together: {'; '.join(told)}. Restore "
            "the folder, or train again"
        )


def _list_checksums(folder: Path) -> dict[str, str]:
    """Return the CRC-32 of each file that predictions need."""
    files = sorted({path for pattern in _NEEDED for path in folder.glob(pattern)})
    found = {}
    for path in files:
        value = 0
        with path.open("rb") as file:
            while block := file.read(1 << 22):
                value = zlib.crc32(block, value)
        found[path.relative_to(folder).as_posix()] = f"{value:08x}"
    return found


@contextlib.contextmanager
def refuse_damage(path: Path) -> Iterator[None]:
    """Turn what wrong content of a file leads to into one sentence."""
    try:
        yield
    except (
        AttributeError, ArithmeticError, EOFError, LookupError, TypeError, ValueError, BadZipFile
    ) as error:  # fmt: skip
        raise CheckpointError(
            f"{path} is damaged: {type(error).__name__}: {error}. Restore the file, or train again"
        ) from error


def save_checkpoint(path: Path, tree: object) -> None:
    """Write a tree of dicts, lists, numbers and tensors; on failure the old file is kept."""
    tensors: dict[str, Tensor] = {}
    text = json.dumps(_pack(tree, tensors))
    header = {"format": "halftruth-1", "tree": text, "checksum": _compute_checksum(text, tensors)}
    try:
        with replace_file(path) as new:
            save_file(_copy_shared_memory(tensors), new, metadata=header)
            # safetensors makes files that only their owner can read.
            new.chmod(path.parent.stat().st_mode & 0o666)
    except OSError as error:
        raise CheckpointError(f"the checkpoint {error}") from error


def load_checkpoint(path: Path) -> Any:
    """Return the tree of a checkpoint, its tensors on the CPU."""
    if not path.is_file():
        raise CheckpointError(f"there is no checkpoint {path}")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if header.get("format") != "halftruth-1":
            raise CheckpointError(f"{path} was not written by halftruth (or by a newer version)")
        if header["checksum"] != _compute_checksum(header["tree"], tensors):
            raise ValueError("its bytes are not those that were written (the checksum differs)")
        tree = _unpack(json.loads(header["tree"]), tensors)
        if not isinstance(tree, dict):
            raise TypeError(f"expected a tree of names, got {type(tree).__name__}")
        return tree
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(
            f"cannot read the checkpoint {path}: {error}. The file is damaged or incomplete; "
            "start again in another folder (--out)"
        ) from error


def _compute_checksum(text: str, tensors: dict[str, Tensor]) -> str:
    """Return the CRC-32 of the content of a checkpoint, in hexadecimal digits."""
    found = zlib.crc32(text.encode())
    for name, tensor in sorted(tensors.items()):
        found = zlib.crc32(f"{name} {tensor.dtype} {list(tensor.shape)}".encode(), found)
        # As bytes, since NumPy has no bfloat16.
        found = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, found)
    return f"{found:08x}"


def _pack(node: object, tensors: dict[str, Tensor]) -> object:
    if isinstance(node, Tensor):
        name = f"t{len(tensors)}"
        tensors[name] = node.detach().cpu().contiguous()
        return {"tensor": name}
    if isinstance(node, dict):
        # Pairs, since the keys of an optimiser's state are numbers, and JSON keys are texts.
        return {"dict": [[key, _pack(value, tensors)] for key, value in node.items()]}
    if isinstance(node, (list, tuple)):
        return [_pack(value, tensors) for value in node]
    if node is None or isinstance(node, (str, int, float, bool)):
        return node
    raise TypeError(f"a checkpoint cannot hold {type(node).__name__}")


def _unpack(node: object, tensors: dict[str, Tensor]) -> object:
    if isinstance(node, list):
        return [_unpack(value, tensors) for value in node]
    if isinstance(node, dict):
        if "tensor" in node:
            return tensors[node["tensor"]]
        return {key: _unpack(value, tensors) for key, value in node["dict"]}
    return node


def _copy_shared_memory(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy the tensors that share memory, which the format forbids."""
    seen: set[int] = set()
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage()
        if memory.data_ptr() in seen or memory.nbytes() > tensor.nbytes:
            tensors[name] = tensor.clone()
        seen.add(memory.data_ptr())
    return tensors


def _explain_error(error: Exception) -> str:
    full = "No space left" in str(error) or getattr(error, "errno", None) == 28
    return "the disk is full" if full else str(getattr(error, "strerror", None) or error)


def _sync_folder(folder: Path) -> None:
    """Make sure that a renamed file survives a power failure, if the system supports that."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# ---------------------------------------------------------------------- one process per folder


def check_is_folder(path: Path) -> None:
    """Refuse a run folder that is a file, or is inside a file."""
    for part in (path, *path.parents):
        if part.exists() and not part.is_dir():
            raise ConfigError([f"out: expected a folder, got the file {part}"])


def check_is_free(folder: Path) -> None:
    """Refuse a new run in a folder with a finished run, or with files that no run has written."""
    names = ("config.yaml", RESULT, MANIFEST, "classes.csv", "metrics.jsonl", "report.html")
    found = [name for name in (*names, MEMBERS) if (folder / name).exists()]
    try:
        begun = "labels" in read_settings(folder)
    except (ConfigError, OSError):
        begun = False
    if begun and (folder / RESULT).exists():
        raise CheckpointError(
            f"{folder} already holds a run: continue it (--resume), or choose another folder "
            "(--out)"
        )
    if found and not begun:
        raise CheckpointError(
            f"{folder} holds {', '.join(found)}, which a run would replace; choose another folder "
            "(--out)"
        )


# Descriptors of the locks that this process holds.
_locks: set[int] = set()


def _close_locks() -> None:
    while _locks:
        os.close(_locks.pop())


# A forked worker may outlive its parent, and must not keep the folder locked.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_locks)


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Keep other processes from training in this folder, until this process ends.

    Without flock (on Windows, on some network disks) there is no lock.
    """
    try:
        import fcntl

        handle = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):
        yield
        return
    _locks.add(handle)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CheckpointError(
                f"another process is training in {folder}: wait until it ends, or choose another "
                "folder (--out)"
            ) from error
        except OSError:
            pass
        yield
    finally:
        if handle in _locks:
            _locks.remove(handle)
            os.close(handle)


class Checkpoints:
    """The checkpoints of a stage, in the run folder, or in memory without one.

    `last` has everything needed to continue, `best` the weights for predict and evaluate. The main
    process writes and the others wait, so that none reads a file before it is complete.
    """

    def __init__(
        self,
        folder: Path | None,
        accelerator: "Accelerator",
        identity: Mapping[str, object],
        best: str = BEST,
    ) -> None:
        self.folder, self.accelerator, self.identity = folder, accelerator, identity
        self.best_name = best
        self._best: dict[str, object] = {}

    def save_last(self, tree: Mapping[str, object]) -> None:
        """Replace the checkpoint that a run continues from."""
        self._write(LAST, tree)

    def save_best(
        self, model: nn.Module, stage: str, epoch: int, more: Mapping[str, object] | None = None
    ) -> None:
        """Replace the best weights; `more` is stored with them."""
        tree = {"stage": stage, "epoch": epoch, "model": model.state_dict(), **(more or {})}
        if self.folder is None:
            self._best = copy.deepcopy(tree)
        self._write(self.best_name, tree)

    def best(self) -> dict[str, Any]:
        """Return the best weights so far, with their stage and epoch."""
        if self.folder is None:
            return self._best
        found = load_checkpoint(self.folder / self.best_name)
        check_same_run(found.get("identity", {}), dict(self.identity), self.folder / self.best_name)
        return dict(found)

    def _write(self, name: str, tree: Mapping[str, object]) -> None:
        self.accelerator.wait_for_everyone()
        if self.folder is not None and self.accelerator.is_main_process:
            save_checkpoint(self.folder / name, {"identity": self.identity, **tree})
        self.accelerator.wait_for_everyone()


# ---------------------------------------------------------------------- identity of a run


def identify(config: Config, task: "Task") -> dict[str, Any]:
    """Return the identity of a run: its classes, data and the settings that affect the model."""
    settings = {k: v for k, v in config.to_dict().items() if SETTINGS[k].on_resume != FREE}
    features = task.features
    return {
        "classes": list(task.classes),
        "inputs": None if features is None else features.shape[1],
        "features": None if features is None else digest_features(features),
        "labels": digest_labels(task),
        "settings": settings,
    }


def digest_features(features: object) -> str:
    """Return a digest of the features of all rows."""
    parts = features.parts if isinstance(features, WideMatrix) else (features,)
    return digest(*(np.ascontiguousarray(part).data for part in parts))


def digest_labels(task: "Task") -> str:
    """Return a digest of the rows: their names, labels and parts."""
    if isinstance(given := task.labels.stored, SparseLabels):
        parts = [given.start.tobytes(), given.columns.tobytes(), given.codes.tobytes()]
    else:
        parts = [np.ascontiguousarray(given).tobytes()]
    if task.labels.items is not None:
        parts.append("\0".join(map(str, task.labels.items)).encode())
    for values in (task.labels.soft, task.labels.weights):
        if values is not None:
            parts.append(np.ascontiguousarray(values).tobytes())
    for part in (task.splits.train, task.splits.val, task.splits.test):
        parts.append(np.asarray(part, dtype=np.int64).tobytes() + b"|")
    return digest(*parts)


def digest(*parts: Any) -> str:
    """Return 16 hexadecimal digits of SHA-256."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()[:16]


def check_same_run(saved: dict[str, Any], here: dict[str, Any], path: Path) -> list[str]:
    """Refuse the checkpoint of another run; return notes about settings that have changed."""
    wrong = [
        f"its {text} is {_shorten(saved.get(name))}, here it is {_shorten(here[name])}"
        for name, text in _PARTS_OF_IDENTITY.items()
        if saved.get(name) != here[name]
    ]
    before, now = saved.get("settings", {}), here["settings"]
    notes: list[str] = []
    for name in sorted(now):
        old, new = before.get(name), now[name]
        if old != new:
            fixed = SETTINGS[name].on_resume == FIXED or (name == "ema" and 0 in (old, new))
            (wrong if fixed else notes).append(
                f"{name} was {_shorten(old)}, here it is {_shorten(new)}"
            )
    if wrong:
        lines = [f"{path} belongs to another run:", *(f"  - {text}" for text in wrong)]
        lines.append("Resume with the settings of that run, or choose another folder (--out)")
        raise CheckpointError("\n".join(lines))
    return notes


def _shorten(value: object) -> str:
    text = repr(value)
    if len(text) <= 100:
        return text
    return (
        f"{text[:80]}... ({len(value)} entries)" if isinstance(value, (list, dict)) else text[:100]
    )
