"""Predictions as a folder of Parquet files, written by any number of processes.

A part has the same rows and the same name for any number of processes. It appears when it is
complete, so that whoever starts again scores only the parts that are missing.
"""

import json
import pickle
import resource
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from halftruth.data import DataError
from halftruth.data.errors import mask
from halftruth.data.memory import format_bytes
from halftruth.data.remote import (
    describe_file,
    is_remote,
    list_folder,
    list_remote,
    open_remote,
    read_bytes,
    remove_file,
    to_url,
)  # fmt: skip
from halftruth.data.shards import expand_shards
from halftruth.train.results.row_parts import RowParts
from halftruth.train.results.trained_run import Scores, TrainedRun, refuse_bad
from halftruth.train.run_folder import BEST, RESULT, digest, replace_file, to_json, write_text
from halftruth.train.run_logger import format_time

# Readers of a folder of Parquet files pass over names that begin with an underscore.
MANIFEST = "_manifest.json"
# Seconds between two looks at the parts of others, and without a new part until an error.
_LOOK, _PATIENCE = 1.0, 1800.0
# Seconds between two lines about progress.
_SAY = 60.0

Written = tuple[int, list[tuple[str, str]]]


@dataclass
class PartsFolder:
    """The folder of a data set of parts: what belongs to it, and which parts are there."""

    folder: Path
    run: TrainedRun
    parts: RowParts[Scores]
    # Arguments of `open_parts` and of `make_table`.
    given: dict[str, Any] = field(default_factory=dict)
    shown: dict[str, Any] = field(default_factory=dict)
    # Probabilities in 16 bits, not 32.
    half: bool = False

    def name(self, number: int) -> str:
        """Return the name of a part; names have the order of the parts."""
        return f"part-{number:07d}.parquet"

    def list_missing(self) -> list[int]:
        """Return the numbers of the parts that are not there."""
        there = list_folder(self.folder)
        return [k for k in range(len(self.parts.units)) if self.name(k) not in there]

    def begin(self, overwrite: bool = False) -> None:
        """Write the manifest; refuse a folder of other inputs, options or run."""
        there, shown = list_folder(self.folder), to_url(self.folder)
        own = {name for name in there if name == MANIFEST or name.startswith("part-")}
        if overwrite:
            for name in own:
                remove_file(self.folder / name)
            there -= own
        facts = json.loads(to_json(self._describe()))
        if MANIFEST in there:
            found = json.loads(read_bytes(self.folder / MANIFEST))
            if other := [name for name in facts if found.get(name) != facts[name]]:
                raise DataError(
                    f"{shown}: holds predictions of another command, with other "
                    f"{' and '.join(other)}; choose another folder, or --overwrite"
                )
        elif there:
            raise DataError(
                f"{shown}: is not empty, and has no {MANIFEST} of predictions; choose another one"
            )
        else:
            write_text(self.folder / MANIFEST, to_json(facts, indent=1))

    def _describe(self) -> dict[str, object]:
        """What two commands must have in common to write the same parts."""
        files = [self.run.folder / name for name in (BEST, RESULT, "encoder.json", "encoder.npz")]
        level, shares = self.run.level
        options = {**self.shown, "flip": self.run.flip, "float16": self.half}
        options |= {"labels_per_row": level, "prevalence": {str(k): v for k, v in shares.items()}}
        inputs = {k: describe_input(v) for k, v in self.given.items() if k != "bad_images"}
        return {
            "run": digest(*(file.read_bytes() for file in files if file.exists())),
            "inputs": inputs,
            "options": {name: value for name, value in options.items() if value},
            "parts": len(self.parts.units),
            "rows": self.parts.count,
        }

    def write_part(self, number: int, unit: Any = None) -> int:
        """Score a part and write it; return its rows. `unit`: as another process listed it."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        tables, bad = [], list[tuple[str, str]]()
        for scores in self.parts.read(self.parts.units[number] if unit is None else unit):
            tables.append(self._to_arrow(self.run.make_table(scores, **self.shown)))
            bad += scores.bad
        table = pa.concat_tables(tables)
        # They are in the part, since its process may not live until all parts are there.
        notes = {**(table.schema.metadata or {}), b"bad_images": json.dumps(bad).encode()}
        with replace_file(self.folder / self.name(number), shared=True) as new:
            pq.write_table(table.replace_schema_metadata(notes), new)
        return len(table)

    def _to_arrow(self, table: pd.DataFrame) -> Any:
        """The table with probabilities in 32 or 16 bits; decisions stay as they were."""
        import pyarrow as pa

        # By name: the columns of a table without rows have no kind.
        floats = [name for name in self.run.classes if name in table]
        kinds = dict.fromkeys(table.columns, pa.string())
        kinds |= dict.fromkeys(floats, pa.float16() if self.half else pa.float32())
        number = np.float16 if self.half else np.float32
        table = table.astype({**dict.fromkeys(table, object), **dict.fromkeys(floats, number)})
        return pa.Table.from_pandas(table, pa.schema(list(kinds.items())), preserve_index=False)

    def finish(self, bad_images: str) -> Written:
        """Count the rows of all parts; return (rows, bad images)."""
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(self._read_notes, range(len(self.parts.units))))
        rows = sum(count for count, _ in found)
        bad = [(name, why) for _, some in found for name, why in some]
        refuse_bad(bad, rows + len(bad), bad_images)
        return rows, bad

    def _read_notes(self, number: int) -> tuple[int, list[list[str]]]:
        import pyarrow.parquet as pq

        path = self.folder / self.name(number)
        found = pq.ParquetFile(open_remote(path) if is_remote(path) else path)
        notes = found.schema_arrow.metadata or {}
        return found.metadata.num_rows, json.loads(notes.get(b"bad_images", b"[]"))


def write_parts(
    run: TrainedRun,
    folder: Path,
    source: object = None,
    *,
    half: bool = False,
    overwrite: bool = False,
    engine: Callable[[PartsFolder, list[int]], Iterator[int]] | None = None,
    **options: Any,
) -> Written | None:
    """Write the table of `predict` as a folder of Parquet files; return (rows, bad images).

    The processes of a launcher write a share of the parts each; all but the main one return None.
    engine: writes the missing parts instead, see `halftruth.ray.write_missing`.
    """
    accelerator, alone = run.accelerator, run.alone
    shown = {name: options.pop(name, None) for name in ("decide", "raw", "top")}
    given = {name: v for name, v in {**options, "source": source}.items() if v is not None}
    parts = alone.open_parts(**given)
    data = PartsFolder(folder, alone, parts, given, shown, half)
    missing: list[Any] = [None]
    world, error = accelerator.num_processes, None
    if accelerator.is_main_process:
        try:
            data.begin(overwrite)
            missing = [data.list_missing()]
        except DataError as found:
            error = found
    if world > 1:
        from accelerate.utils import broadcast_object_list

        # All divide the same list, whatever is written meanwhile.
        broadcast_object_list(missing)
    if error is not None:
        raise error
    if missing[0] is None:
        return None
    share = np.array_split(np.array(missing[0], dtype=int), world)[accelerator.process_index]
    mine = (data.write_part(int(number)) for number in share)
    if not accelerator.is_main_process:
        for _ in mine:
            pass
        parts.warn()
        return None
    follow(data, missing[0], world, mine if engine is None else engine(data, missing[0]))
    parts.warn()
    return data.finish(options.get("bad_images", "skip"))


def follow(data: PartsFolder, missing: list[int], world: int, written: Iterator[int]) -> None:
    """Say what the missing parts cost and when they will be there; return when all are.

    written: the rows of each part that this process or the engine writes, while it is written.
    """
    log, parts, total, left = data.run.logger.log, data.parts, len(data.parts.units), len(missing)
    counted = "" if parts.count is None else f"{parts.count:,} rows in "
    there = f" ({total - left:,} are there already)" if left < total else ""
    size = f", about {format_bytes(parts.size)} to read" if parts.size else ""
    log(
        f"{counted}{total:,} part{'s' * (total != 1)}{there}{size}; {world:,} "
        f"process{'es' * (world > 1)}, about "
        f"{format_bytes(get_peak_memory() + 2 * parts.block)} of memory each"
    )
    started = said = news = time.monotonic()
    own = rows = 0
    with data.run.logger.progress("parts", left) as advance:
        while left:
            count = next(written, None)
            if count is None:
                # The parts of the other processes.
                time.sleep(_LOOK)
            else:
                own, rows = own + 1, rows + count
                if world == 1:
                    now = left - 1
            if world > 1 or count is None:
                now = len(data.list_missing())
            clock = time.monotonic()
            news = clock if now < left else news
            advance(left - now)
            left = now
            if left and own and (own == 1 or clock - said > _SAY) and (done := len(missing) - left):
                said, rate = clock, done / (clock - started)
                log(
                    f"{done:,} of {len(missing):,} parts, about {rate * rows / own:,.0f} rows/s; "
                    f"about {format_time(left / rate)} left; up to "
                    f"{format_bytes(get_peak_memory())} of memory in this process"
                )
            if clock - news > _PATIENCE:
                raise DataError(
                    f"{to_url(data.folder)}: no part was written for "
                    f"{format_time(_PATIENCE)}, and {left:,} are missing: another process may "
                    "have ended. The same command writes only these"
                )


def get_peak_memory() -> float:
    """Return the most bytes that this process has used."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(size) if sys.platform == "darwin" else 1024.0 * size


def describe_input(value: Any) -> object:
    """Return what names an input and changes with its files, without secrets."""
    if isinstance(value, list | tuple) and all(isinstance(one, str | Path) for one in value):
        found = [describe_input(one) for one in value]
        return found[0] if len(found) == 1 else found
    if not isinstance(value, str | Path):
        return [type(value).__name__, digest(pickle.dumps(value))]
    facts: Any = [describe_file(path) for path in expand_shards(value) if path.exists()]
    if is_remote(value):
        facts = sorted(list_remote(value).values())
    return [mask(to_url(value)), digest(json.dumps(facts).encode())]
