"""Predictions as a folder of Parquet files, written by any number of processes.

A part has the same rows and the same name for any number of processes. It appears when it is
complete, so that whoever starts again scores only the parts that are missing.
"""

import json
import pickle
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from halftruth.data import DataError
from halftruth.data.memory import format_bytes
from halftruth.data.remote import (
    describe_file,
    is_remote,
    list_folder,
    list_remote,
    mask,
    open_remote,
    read_bytes,
    remove_file,
    to_url,
)  # fmt: skip
from halftruth.data.shards import expand_shards
from halftruth.train.results.row_parts import RowParts
from halftruth.train.results.trained_run import Scores, TrainedRun, refuse_bad
from halftruth.train.run_folder import BEST, RESULT, digest, replace_file, to_json, write_text

# Readers of a folder of Parquet files pass over names that begin with an underscore.
MANIFEST = "_manifest.json"
# Seconds between two looks at the parts of others, and without a new part until an error.
_LOOK, _PATIENCE = 1.0, 1800.0
# Seconds between two lines about progress, where there is no bar.
_SAY = 60.0


@dataclass
class PartsFolder:
    """The folder of a data set of parts: what belongs to it, and which parts are there."""

    folder: Path
    run: TrainedRun
    parts: RowParts[Scores]
    # Arguments of `make_table`.
    shown: dict[str, Any] = field(default_factory=dict)
    half: bool = False
    # Arguments of `open_parts`.
    given: dict[str, Any] = field(default_factory=dict)

    def name(self, number: int) -> str:
        """Return the name of a part; names have the order of the parts."""
        return f"part-{number:07d}.parquet"

    def list_missing(self) -> list[int]:
        """Return the numbers of the parts that are not there."""
        there = list_folder(self.folder)
        return [k for k in range(len(self.parts.units)) if self.name(k) not in there]

    def begin(self, overwrite: bool = False) -> None:
        """Write the manifest; refuse a folder of other inputs, options or run."""
        facts = {
            "version": 1,
            "run": digest_run(self.run),
            "inputs": {
                name: describe_input(value)
                for name, value in self.given.items()
                if name != "bad_images"
            },
            "options": self._describe_options(),
            "parts": len(self.parts.units),
            "rows": self.parts.count,
        }
        there = list_folder(self.folder)
        if overwrite:
            for name in there:
                if name == MANIFEST or (name.startswith("part-") and name.endswith(".parquet")):
                    remove_file(join(self.folder, name))
            there = list_folder(self.folder)
        if MANIFEST in there:
            found = json.loads(read_bytes(join(self.folder, MANIFEST)))
            known = json.loads(to_json(facts))
            if other := [name for name in known if found.get(name) != known[name]]:
                raise DataError(
                    f"{mask(to_url(self.folder))}: holds predictions of another command, with "
                    f"other {' and '.join(other)}; choose another folder, or --overwrite"
                )
            return
        if there:
            raise DataError(
                f"{mask(to_url(self.folder))}: is not empty, and has no {MANIFEST} of predictions; "
                "choose another folder"
            )
        write_text(join(self.folder, MANIFEST), to_json(facts, indent=1))

    def _describe_options(self) -> dict[str, object]:
        level, shares = self.run.level
        known: dict[str, object] = {
            "flip": self.run.flip,
            "labels_per_row": level,
            "float16": self.half,
        }
        known |= {**self.shown, "prevalence": {str(k): v for k, v in shares.items()}}
        return {name: value for name, value in known.items() if value}

    def write_part(self, number: int, unit: Any = None) -> int:
        """Score a part and write it; return its rows. `unit`: as another process listed it."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        tables, bad = [], list[tuple[str, str]]()
        for scores in self.parts.read(self.parts.units[number] if unit is None else unit):
            tables.append(self._shrink(self.run.make_table(scores, **self.shown)))
            bad += scores.bad
        table = pa.concat_tables(tables)
        # The footer says it again when nobody knows this process any more.
        notes = {**(table.schema.metadata or {}), b"bad_images": json.dumps(bad).encode()}
        with replace_file(join(self.folder, self.name(number)), shared=True) as new:
            pq.write_table(table.replace_schema_metadata(notes), new)
        return len(table)

    def _shrink(self, table: pd.DataFrame) -> Any:
        """The table with probabilities in 32 or 16 bits; what is decided stays as it was."""
        import pyarrow as pa

        number = pa.float16() if self.half else pa.float32()
        kinds = [
            (name, number if pd.api.types.is_float_dtype(kind) else pa.string())
            for name, kind in table.dtypes.items()
        ]
        if self.half:
            floats = table.select_dtypes("float").columns
            table = table.astype(dict.fromkeys(floats, np.float16))
        return pa.Table.from_pandas(table, pa.schema(kinds), preserve_index=False)

    def finish(self, bad_images: str) -> tuple[int, list[tuple[str, str]]]:
        """Count the rows of all parts; return (rows, bad images)."""
        names = [self.name(k) for k in range(len(self.parts.units))]
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(self._read_notes, names))
        rows = sum(count for count, _ in found)
        bad = [(name, why) for _, some in found for name, why in some]
        refuse_bad(bad, rows + len(bad), bad_images)
        return rows, bad

    def _read_notes(self, name: str) -> tuple[int, list[list[str]]]:
        import pyarrow.parquet as pq

        path = join(self.folder, name)
        found = pq.ParquetFile(open_remote(path) if is_remote(path) else path)
        notes = found.schema_arrow.metadata or {}
        return found.metadata.num_rows, json.loads(notes.get(b"bad_images", b"[]"))


def join(folder: Path, name: str) -> Path:
    """Return the path of a file in a folder, which may be an address."""
    return folder / name


def write_parts(
    run: TrainedRun,
    folder: Path,
    source: object = None,
    *,
    half: bool = False,
    overwrite: bool = False,
    engine: Any = None,
    **options: Any,
) -> tuple[int, list[tuple[str, str]]] | None:
    """Write the table of `predict` as a folder of Parquet files; return (rows, bad images).

    The processes of a launcher write a share of the parts each; all but the main one return None.
    engine: writes the missing parts instead, see `halftruth.ray.write_missing`.
    """
    accelerator = run.accelerator
    shown = {name: options.pop(name, None) for name in ("decide", "raw", "top")}
    parts = run.alone.open_parts(source, **options)
    given = {
        name: value for name, value in (options | {"source": source}).items() if value is not None
    }
    data = PartsFolder(folder, run.alone, parts, shown, half, given)
    missing = [list[int]()]
    world, error = accelerator.num_processes, None
    if accelerator.is_main_process:
        try:
            data.begin(overwrite)
            missing = [data.list_missing()]
        except DataError as found:
            missing, error = [None], found  # type: ignore[list-item]
    if world > 1:
        from accelerate.utils import broadcast_object_list

        broadcast_object_list(missing)
    if missing[0] is None:
        if error is None:
            return None
        raise error
    share = np.array_split(np.array(missing[0], dtype=int), world)[accelerator.process_index]
    mine = (data.write_part(int(number)) for number in share)
    if not accelerator.is_main_process:
        for _ in mine:
            pass
        parts.warn()
        return None
    say = Progress(data, missing[0], world)
    say.watch(mine if engine is None else engine(data, missing[0]))
    parts.warn()
    say.wait()
    return data.finish(options.get("bad_images", "skip"))


class Progress:
    """What the work costs, said before it starts and from its first parts on."""

    def __init__(self, data: PartsFolder, missing: Sequence[int], workers: int) -> None:
        self.data, self.total, self.left = data, len(data.parts.units), len(missing)
        self.log, self.bar = data.run.logger.log, data.run.logger.progress
        self.started = self.said = time.monotonic()
        self.first, self.own, self.rows = len(missing), 0, 0
        parts = data.parts
        there = self.total - len(missing)
        counted = "" if parts.count is None else f"{parts.count:,} rows in "
        self.log(
            f"{counted}{self.total:,} parts"
            + (f" ({there:,} are there already)" if there else "")
            + (f", about {format_bytes(parts.size)} to read" if parts.size else "")
            + f"; {workers:,} process{'es' if workers > 1 else ''}, about "
            f"{format_bytes(get_peak_memory() + 2 * parts.block)} of memory each"
        )

    def watch(self, written: Iterator[int]) -> None:
        """Count parts while they are written; their number of rows arrives."""
        with self.bar("parts", self.first) as advance:
            for rows in written:
                self.own, self.rows = self.own + 1, self.rows + rows
                now = self._count_missing()
                advance(self.left - now)
                self.left = now
                self.say()

    def _count_missing(self) -> int:
        # A look at a folder behind an address takes a while.
        return len(self.data.list_missing()) if self.own < 100 or self.own % 10 == 0 else self.left

    def say(self) -> None:
        """Say the rate and the time that is left, after the first part and then every minute."""
        now = time.monotonic()
        done = self.first - self.left
        if not done or not (self.own == 1 or now - self.said > _SAY):
            return
        self.said = now
        rate = done / (now - self.started)
        self.log(
            f"{done:,} of {self.first:,} parts, about {rate * self.rows / self.own:,.0f} rows/s in "
            f"all; about {describe_seconds(self.left / rate)} left; up to "
            f"{format_bytes(get_peak_memory())} of memory here"
        )

    def wait(self) -> None:
        """Wait until the parts of all processes are there."""
        last = time.monotonic()
        while self.left:
            now = len(self.data.list_missing())
            last = time.monotonic() if now < self.left else last
            self.left = now
            self.say()
            if time.monotonic() - last > _PATIENCE:
                names = ", ".join(self.data.name(k) for k in self.data.list_missing()[:3])
                raise DataError(
                    f"{mask(to_url(self.data.folder))}: no part was written for "
                    f"{describe_seconds(_PATIENCE)}, and {now:,} are missing ({names}); another "
                    "process may have ended. Start the same command again: it writes these only"
                )
            if now:
                time.sleep(_LOOK)


def describe_seconds(seconds: float) -> str:
    """Return a time in words.

    >>> describe_seconds(40), describe_seconds(5000), describe_seconds(300_000)
    ('40 s', '83 min', '83.3 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def get_peak_memory() -> float:
    """Return the most bytes that this process has used."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(size) if sys.platform == "darwin" else 1024.0 * size


def digest_run(run: TrainedRun) -> str:
    """Return a checksum of what a run predicts with."""
    files = [run.folder / name for name in (BEST, RESULT, "encoder.json", "encoder.npz")]
    return digest(*(file.read_bytes() for file in files if file.exists()))


def describe_input(value: Any) -> object:
    """Return what names an input, and changes with its files; secrets are left out."""
    if isinstance(value, list | tuple) and all(isinstance(one, str | Path) for one in value):
        if len(value) == 1:
            return describe_input(value[0])
        return [describe_input(one) for one in value]
    if not isinstance(value, str | Path):
        return [type(value).__name__, digest(pickle.dumps(value))]
    if is_remote(value):
        facts = list_remote(value)
        return [mask(to_url(value)), digest(json.dumps(sorted(facts.values())).encode())]
    files = [path for path in expand_shards(value) if path.exists()]
    if not files:
        return str(value)
    return [str(Path(value)), digest(json.dumps([describe_file(path) for path in files]).encode())]
