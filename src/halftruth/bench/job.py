"""One run of a grid: what it is, and the name that its settings give it."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from halftruth.bench.search_space import Space, spread

# An option that is to be the mean number of positives in the validation rows.
PRIOR = "from-validation"
# What says where a number belongs in a table, and decides none.
_NO_PART = ("data", "column", "method", "published")


@dataclass(frozen=True)
class Job:
    """A run: with `trial` measured on validation only, else on test too."""

    data: str
    source: dict[str, Any]
    labels: str
    column: str
    method: str
    loss: str
    options: dict[str, Any]
    training: dict[str, Any]
    seed: int
    label_seed: int
    threshold: float | str
    trial: bool

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @cached_property
    def id(self) -> str:
        """A digest of all that decides the result: the same settings are never run twice."""
        parts = {key: value for key, value in self.to_dict().items() if key not in _NO_PART}
        source = {k: v for k, v in parts["source"].items() if k not in _NO_PART}
        text = json.dumps({**parts, "source": source}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def describe(self) -> str:
        kind = "trial" if self.trial else f"seed {self.seed}"
        return f"{self.data} {self.column} {self.method} {kind}"


@dataclass(frozen=True)
class Cell:
    """A method on a data set under a label setting: trials, then a run for each seed."""

    data: str
    source: dict[str, Any]
    labels: str
    column: str
    method: str
    loss: str
    options: dict[str, Any]
    training: dict[str, Any]
    search: dict[str, Space] = field(default_factory=dict)
    label_seed: int | str = 1200
    choose: str = "mAP"
    threshold: float | str = "fit"

    def trials(self, count: int, seed: int) -> list[Job]:
        """The settings to try: those of the grid, then points spread over the search space.

        None where there is nothing to choose between.
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
            job = self.job(seed, trial=True, **values)  # type: ignore[arg-type]
            found.setdefault(job.id, job)
        return list(found.values())[:count]

    def job(
        self,
        seed: int,
        *,
        trial: bool = False,
        training: dict[str, Any] | None = None,
        options: dict[str, Any] | None = None,
    ) -> Job:
        """A run of this cell, with some settings overruled."""
        return Job(
            data=self.data,
            source=self.source,
            labels=self.labels,
            column=self.column,
            method=self.method,
            loss=self.loss,
            options={**self.options, **(options or {})},
            training={**self.training, **(training or {})},
            seed=seed,
            label_seed=seed if self.label_seed == "seed" else int(self.label_seed),
            threshold=self.threshold,
            trial=trial,
        )
