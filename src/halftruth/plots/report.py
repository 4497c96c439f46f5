"""report.html: a run on one page."""

from pathlib import Path

from halftruth.page import document, table
from halftruth.train.checkpoint import write_text
from halftruth.train.config import Config
from halftruth.train.measuring import Measured
from halftruth.train.settings import to_yaml
from halftruth.train.task import Task


def write_report(config: Config, task: Task, measured: Measured, seconds: float) -> Path:
    """Write the report of a run into its folder."""
    body = table(
        ["setting", ""],
        [tuple(line.split(": ", 1)) for line in to_yaml(config).split("\n") if ": " in line],
    )
    path = measured.result.folder / "report.html"
    write_text(path, document(f"halftruth: {config.method}", body))
    return path
