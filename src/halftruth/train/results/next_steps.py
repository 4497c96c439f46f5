"""What to do after a run: the commands that people need next, filled with its paths."""

import shlex
from typing import NamedTuple

from halftruth.reading import list_options
from halftruth.train.config import GIVEN, Config
from halftruth.train.results.run_result import ESTIMATED, Result
from halftruth.train.scored_rows import HELD_OUT


class Step(NamedTuple):
    """A command to copy, and what it does."""

    what: str
    command: str


def list_next_steps(result: Result, config: Config) -> list[Step]:
    """Return the next commands of a finished run: predict, and for incomplete labels more.

    The audit of a run with out-of-sample scores uses them; a network is trained again by folds.
    """
    run, inputs = str(result.folder), _list_inputs(config)
    new = "new_photos/" if config.images else "new_texts.csv" if config.text else "new_rows.csv"
    new = "new_scores.csv" if config.method == GIVEN else new
    predictions = str(result.folder / "predictions.csv")
    steps = [Step("predict new rows", _join("predict", run, new, "--out", predictions))]
    if ESTIMATED not in result.basis.values():
        return steps
    audit = str(result.folder / "audit")
    if HELD_OUT in result.basis:
        found = _join("audit", run, config.labels, *inputs, "--out", audit)
    else:
        found = _join(
            "audit", config.labels, *inputs, *list_options(config.reading), "--out", audit
        )
    return [
        *steps,
        Step("list the labels that are probably missing", found),
        Step("accept or reject them in a browser", _join("review", audit)),
        Step("choose the labels to collect next", _join("plan", audit, "--budget", "500")),
        Step(
            "verify 200 labels, to know the scores better",
            _join("review", run, "--purpose", "evaluate"),
        ),
    ]


def _list_inputs(config: Config) -> list[str]:
    """Return the options of the inputs of a run."""
    named = [("--images", path) for path in config.images]
    named += [("--features", path) for path in config.features]
    named += [("--text", config.text)] if config.text else []
    return [part for pair in named for part in pair]


def _join(*parts: str) -> str:
    return shlex.join(["halftruth", *parts])
