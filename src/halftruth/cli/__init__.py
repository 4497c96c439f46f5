"""The `halftruth` command."""

from halftruth.cli.app import app, main

__all__ = ["app", "main"]
