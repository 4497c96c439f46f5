"""A cell of a grid and its runs: their settings, their ids, and what the trials selected."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from halftruth.bench.results import Record
from halftruth.bench.search_space import Space, spread

# Placeholder for the mean number of positives per validation row.
PRIOR = "from-validation"
# Where a result belongs in a table; without influence on the result.
_NO_PART = ("data", "column", "method", "published", "setup")
# Readers of features; other data sets are images, or have `features` or `frozen`.
_OF_FEATURES = ("yeast", "scene", "corel5k", "bibtex", "tabular", "features", "coco2014-features")


def is_on_features(source: Mapping[str, object]) -> bool:
    """Whether a data set is a matrix of features, not images."""
    return "frozen" in source or "features" in source or source["reader"] in _OF_FEATURES


@dataclass(frozen=True)
class _Place:
    """A method on a data set under a label setting, and how it is trained."""

    data: str
    source: dict[str, Any]
    labels: str
    column: str
    method: str
    loss: str
    options: dict[str, Any]
    training: dict[str, Any]
    threshold: float | str
    # Of the grid: settings and cut of all methods.
    setup: dict[str, object]


@dataclass(frozen=True)
class Job(_Place):
    """A run. A `trial` is evaluated on validation rows only, other runs also on test rows."""

    seed: int
    label_seed: int
    trial: bool

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @cached_property
    def id(self) -> str:
        """A digest of everything that determines the result: equal settings are never run twice."""
        parts = {key: value for key, value in self.to_dict().items() if key not in _NO_PART}
        source = {k: v for k, v in parts["source"].items() if k not in _NO_PART}
        text = json.dumps({**parts, "source": source}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def describe(self) -> str:
        kind = "trial" if self.trial else f"seed {self.seed}"
        return f"{self.data} {self.column} {self.method} {kind}"


@dataclass(frozen=True)
class BenchCell(_Place):
    """A method on a data set under a label setting: trials, then one run per seed."""

    search: dict[str, Space] = field(default_factory=dict)
    label_seed: int | str | list[int] = 1200
    choose: str = "mAP"
    seeds: tuple[int, ...] = (0,)
    count: int = 1

    def jobs(self, done: Mapping[str, Record]) -> list[Job]:
        """The jobs that are known: the trials, and with their results the run of each seed."""
        trials = self.own_trials
        if any(job.id not in done for job in trials):
            return trials
        best = best_trial([done[job.id] for job in trials], self.choose)
        if trials and best is None:
            return trials
        chosen = {} if best is None else {key: best[key] for key in ("training", "options")}
        places = [(seed, at) for at in self.samples for seed in self.seeds]
        return [*trials, *(self.job(seed, sample=at, changed=chosen) for seed, at in places)]

    @property
    def samples(self) -> list[int | str]:
        """The label samples, each of which is trained with every seed."""
        return list(self.label_seed) if isinstance(self.label_seed, list) else [self.label_seed]

    @cached_property
    def own_trials(self) -> list[Job]:
        return self.trials(self.count, self.seeds[0])

    def trials(self, count: int, seed: int) -> list[Job]:
        """The settings to try: those of the grid, then points spread over the search space.

        Empty if there is nothing to choose from.
        """
        if count <= 1 or not any(self.search.values()):
            return []
        joined = {
            (part, key): axis for part, space in self.search.items() for key, axis in space.items()
        }
        named = {f"{part}/{key}": axis for (part, key), axis in joined.items()}
        found = {job.id: job for job in [self.job(seed, trial=True)]}
        for point in spread(named, count):
            values: dict[str, dict[str, Any]] = {}
            for (part, key), value in zip(joined, point.values(), strict=True):
                values.setdefault(part, {})[key] = value
            job = self.job(seed, trial=True, changed=values)
            found.setdefault(job.id, job)
        return list(found.values())[:count]

    def job(
        self,
        seed: int,
        *,
        trial: bool = False,
        sample: int | str | None = None,
        changed: Mapping[str, Mapping[str, object]] | None = None,
    ) -> Job:
        """A run of this cell; `changed` replaces some of its `training` settings and `options`.

        sample: the seed of the shown labels, the first of the cell by default.
        """
        own = {one.name: getattr(self, one.name) for one in dataclasses.fields(_Place)}
        own |= {part: {**own[part], **values} for part, values in (changed or {}).items()}
        sample = self.samples[0] if sample is None else sample
        label_seed = seed if sample == "seed" else int(sample)
        return Job(**own, seed=seed, label_seed=label_seed, trial=trial)


def best_trial(trials: Iterable[Record], metric: str = "mAP") -> Record | None:
    """Return the best trial on validation (the first of equals), or None if all failed."""
    scored = [trial for trial in trials if (trial.get("val") or {}).get(metric) is not None]
    return max(scored, key=lambda trial: float(trial["val"][metric]), default=None)


def start_from(cells: list[BenchCell], records: Iterable[Record]) -> list[BenchCell]:
    """Cells with the best options of another grid's trials, which they do not search again.

    Cells and trials are matched by method, label setting and published data set.
    """
    trials: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        if record["trial"]:
            trials.setdefault(_place(record), []).append(record)
    found = []
    for cell in cells:
        best = best_trial(trials.get(_place(vars(cell)), ()), cell.choose)
        if best is not None:
            rates = {key: best["training"][key] for key in ("head_lr",) if key in best["training"]}
            cell = dataclasses.replace(
                cell,
                options=best["options"],
                training={**cell.training, **rates},
                search={**cell.search, "options": {}},
            )
        found.append(cell)
    return found


def _place(about: Mapping[str, Any]) -> tuple[str, str, str]:
    data = about["source"].get("published", about["data"])
    return str(data), about["column"], about["method"]


def records_of(cells: Iterable[BenchCell], records: Iterable[Record]) -> list[Record]:
    """The records of the runs of these cells, with the names of their columns.

    Another command or column may have made them: equal runs are never run twice.
    """
    done, found = {record["id"]: record for record in records}, []
    for job in (job for cell in cells for job in cell.jobs(done)):
        names = {name: getattr(job, name) for name in _NO_PART[:3]}
        if job.id in done:
            found.append({**done[job.id], **names, "source": job.source, "setup": job.setup})
    return found
