"""Experiment trackers (TensorBoard, MLflow, Weights & Biases, ...), through Accelerate."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from halftruth.train.config import ConfigError
from halftruth.train.run_folder import to_json

PROJECT = "halftruth"


def check_trackers(names: str | None) -> list[str]:
    """Return the names of a list such as "tensorboard,mlflow"; an unusable one is an error."""
    if not names:
        return []
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers

    known = sorted(str(name) for name in LOGGER_TYPE_TO_CLASS)
    usable = {str(getattr(name, "value", name)) for name in get_available_trackers()}
    problems, asked = [], [name.strip() for name in names.split(",")]
    for name in asked:
        if name not in known:
            problems.append(f"track: expected one or more of {', '.join(known)}, got {name!r}")
        elif name not in usable:
            problems.append(f"track: {name} is not installed: pip install {name.replace('_', '-')}")
    if problems:
        raise ConfigError(problems)
    return list(dict.fromkeys(asked))


class Trackers:
    """The open trackers of a run; the main process writes one record per epoch to each."""

    def __init__(self, names: str | None, folder: Path, settings: Mapping[str, object]) -> None:
        from accelerate.tracking import LOGGER_TYPE_TO_CLASS

        self._open: list[Any] = []
        for name in check_trackers(names):
            kind = LOGGER_TYPE_TO_CLASS[name]
            if name == "tensorboard":
                # Event files are in tensorboard/ of the run folder.
                tracker = kind("tensorboard", folder)
            elif kind.requires_logging_directory:
                tracker = kind(PROJECT, folder)
            else:
                tracker = kind(PROJECT, **_title(name, folder.name))
            try:
                tracker.start()
            except Exception as error:
                raise ConfigError([f"track: {name} cannot start: {error}"]) from error
            tracker.store_init_configuration(_plain(settings))
            self._open.append(tracker)

    def log(self, record: Mapping[str, float]) -> None:
        """Write the numbers of an epoch, by stage."""
        values = {
            f"{record['stage']}/{key}": value
            for key, value in record.items()
            if isinstance(value, float)
        }
        for tracker in self._open:
            tracker.log(values, step=record["epoch"])

    def close(self) -> None:
        """Finish the runs of the trackers."""
        while self._open:
            self._open.pop().finish()


def _title(name: str, run: str) -> dict[str, str]:
    """Return the argument with which a tracker names the run, where it has one."""
    key = {"mlflow": "run_name", "wandb": "name", "trackio": "name"}.get(name)
    return {key: run} if key else {}


def _plain(settings: Mapping[str, object]) -> dict[str, object]:
    """Return the settings as numbers and texts, which every tracker stores."""
    return {
        name: value if isinstance(value, str | int | float) else to_json(value)
        for name, value in settings.items()
    }
