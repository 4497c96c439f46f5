"""The `halftruth` command."""

import sys

try:
    from halftruth.cli.app import app, main
except ModuleNotFoundError as error:
    if error.name not in ("typer", "rich"):
        raise
    sys.exit('error: the command needs more packages: pip install "halftruth[train]"')

__all__ = ["app", "main"]
