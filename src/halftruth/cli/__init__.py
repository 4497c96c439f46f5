"""The `halftruth` command."""

import sys

from halftruth.extras import needs_extras

try:
    with needs_extras("the command"):
        from halftruth.cli.app import app, main
except ImportError as error:
    if "pip install" not in str(error):
        raise
    sys.exit(f"error: {error}")

__all__ = ["app", "main"]
