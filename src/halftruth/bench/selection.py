"""Which settings are taken on: by validation alone, records of trials hold nothing else."""

import dataclasses
from collections.abc import Iterable

from halftruth.bench.job import Cell
from halftruth.bench.results import Record


def best_trial(trials: Iterable[Record], metric: str = "mAP") -> Record | None:
    """The trial that is best on validation, the first of equals; None where none has a number."""
    scored = [trial for trial in trials if (trial.get("val") or {}).get(metric) is not None]
    return max(scored, key=lambda trial: float(trial["val"][metric]), default=None)


def started(cells: list[Cell], records: Iterable[Record]) -> list[Cell]:
    """Cells that start where the trials of another grid ended, and search no options again.

    Cells and trials belong together by method, label setting and the published data set.
    """
    trials: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        if record["trial"]:
            trials.setdefault(_place(record["source"], record), []).append(record)
    found = []
    for cell in cells:
        best = best_trial(trials.get(_place(cell.source, vars(cell)), ()), cell.choose)
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


def _place(source: Record, about: Record) -> tuple[str, str, str]:
    return str(source.get("published", about["data"])), about["column"], about["method"]
