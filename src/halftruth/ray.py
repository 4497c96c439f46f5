"""Ray: `Predictor` for `map_batches` of Ray Data, the parts of `predict`, the folds of `audit`.

Ray repeats what fails with a task, an actor or a node. A part of predictions has one name, and a
fold one folder, so that a repeated one replaces itself.
"""

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from halftruth.extras import needs_extras

with needs_extras("halftruth.ray"):
    import numpy as np
    import pandas as pd
    import ray
    import ray.data

    from halftruth.data import DataError
    from halftruth.data.images import GivenImages
    from halftruth.train.results.trained_run import TrainedRun
    from halftruth.train.results.write_parts import PartsFolder

# Columns of Ray Data that hold an image (bytes of a file, or pixels), and those that name it.
_IMAGES = ("image", "bytes", "jpg", "jpeg", "png", "webp")
_NAMES = ("item", "path", "__key__", "image_path", "name", "id")


class Predictor:
    """A run that predicts batches of Ray Data, in an actor that loads it once.

        rows = ray.data.read_parquet("s3://bucket/features/")
        rows.map_batches(
            halftruth.ray.Predictor, fn_constructor_args=("runs/first",),
            batch_format="pandas", batch_size=4096, concurrency=8, num_gpus=0.5,
        ).write_parquet("s3://bucket/predictions/")

    A batch is a DataFrame. Images are a column `image`, `bytes` or the ending of a WebDataset
    (`jpg`), named by `path` or `__key__`; features and texts have their columns of training. The
    result is the table of `predict`, from which images that cannot be read are left out.
    """

    def __init__(self, run: str | Path, *, device: str = "auto", **options: Any) -> None:
        """`options`: decide, raw and top of `predict`."""
        self.run, self.options = TrainedRun(run, device=device), options

    def __call__(self, batch: pd.DataFrame) -> pd.DataFrame:
        """Return one row per row of the batch."""
        blocks = self.run.open_parts(self._find_input(batch.reset_index(drop=True)))
        tables = [self.run.make_table(scores, **self.options) for scores in blocks]
        return pd.concat(tables, ignore_index=True)

    def _find_input(self, rows: pd.DataFrame) -> Any:
        if self.run.inputs is not None:
            # A column of vectors alone is a matrix.
            values: list[Any] = rows.iloc[:, 0].tolist()
            alone = rows.shape[1] == 1 and np.ndim(values[0]) == 1
            return np.stack(values) if alone else rows
        column = next((name for name in _IMAGES if name in rows), None)
        if column is None:
            got = ", ".join(map(str, rows.columns))
            raise DataError(f"expected a column of images ({', '.join(_IMAGES)}), got {got}")
        named = next((name for name in _NAMES if name in rows), None)
        names = [str(name) for name in (range(len(rows)) if named is None else rows[named])]
        images = [one if isinstance(one, bytes) else np.asarray(one) for one in rows[column]]
        return GivenImages(images, names)


class _PartWriter:
    """An actor that writes parts of a folder of predictions."""

    def __init__(self, data: dict[str, Any]) -> None:
        _enter(data["home"])
        run = TrainedRun(data["run"], device=data["device"], flip=data["flip"])
        run.level = data["level"]
        parts = run.open_parts(**data["given"], listed=False)
        own = {name: data[name] for name in ("folder", "given", "shown", "half")}
        self.data = PartsFolder(run=run, parts=parts, **own)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, list[int]]:
        units = zip(batch["number"], batch["unit"], strict=True)
        return {"rows": [self.data.write_part(int(k), pickle.loads(unit)) for k, unit in units]}


def connect(address: str | None = None) -> None:
    """Join a Ray cluster, or start Ray on this machine; do nothing if this process has joined."""
    if not ray.is_initialized():
        # Workers on this machine find the same package.
        variables = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        ray.init(address, log_to_driver=False, runtime_env={"env_vars": variables})


def write_missing(
    data: PartsFolder, missing: Sequence[int], *, address: str | None = None, device: str = "auto"
) -> Iterator[int]:
    """Write parts on a Ray cluster, one actor per GPU or else per core; yield rows of each part."""
    if not missing:
        return
    connect(address)
    found = ray.cluster_resources()
    gpus = 0 if device == "cpu" else int(found.get("GPU", 0))
    actors = max(min(gpus or int(found["CPU"]), len(missing)), 1)
    cores = max(int(found["CPU"]) // actors, 1) if gpus else 1
    facts = {
        "run": data.run.folder, "device": device, "flip": data.run.flip, "level": data.run.level,
        "given": data.given, "folder": data.folder, "shown": data.shown, "half": data.half,
        "home": os.getcwd(),
    }  # fmt: skip
    units = [{"number": k, "unit": pickle.dumps(data.parts.units[k])} for k in missing]
    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = ray.data.from_items(units, override_num_blocks=len(units)).map_batches(
        _PartWriter, fn_constructor_args=(facts,), batch_size=1, num_cpus=cores,
        num_gpus=1 if gpus else None, concurrency=(1, actors),
    )  # fmt: skip
    for row in rows.iter_rows():
        yield int(row["rows"])


def run_tasks(
    function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], *, address: str | None = None
) -> list[Any]:
    """Return `function(*task)` of every task, in order, as tasks of Ray."""
    connect(address)
    home = os.getcwd()

    def go(*task: Any) -> Any:
        _enter(home)
        return function(*task)

    remote = ray.remote(max_retries=-1)(go)
    return list(ray.get([remote.remote(*task) for task in tasks]))


def _enter(folder: str) -> None:
    """Go to the folder of the command, where it is shared, since paths may be relative to it."""
    if os.path.isdir(folder):
        os.chdir(folder)
