"""The results file: one JSON line per finished run, only ever appended to."""

import contextlib
import json
import os
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from halftruth.data import DataError
from halftruth.train.run_folder import replace_nonfinite

Record = dict[str, Any]


def append(path: Path, record: Record) -> None:
    """Append a line in one write, so that a crash leaves a whole line or none."""
    line = (json.dumps(replace_nonfinite(record), ensure_ascii=False) + "\n").encode()
    with path.open("ab+", buffering=0) as file:
        if file.tell():
            # The last write was incomplete, after a full disk or a power failure.
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else b"\n" + line
        file.write(line)
        with contextlib.suppress(OSError):
            os.fsync(file.fileno())


def read_results(paths: str | Path | Iterable[str | Path]) -> list[Record]:
    """Read the records of one or several files, each run once."""
    several = [paths] if isinstance(paths, (str, Path)) else paths
    found: dict[str, Record] = {}
    for path in map(Path, several):
        if not path.is_file():
            raise DataError(f"{path}: there is no such results file")
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                found.setdefault(record["id"], record)
            except (ValueError, KeyError, TypeError):
                warnings.warn(f"{path}, line {number}: not a result; ignored", stacklevel=2)
    return list(found.values())
