"""Show the doctests of docstrings as code in the API reference (an extension of Griffe)."""

import re
from typing import Any

import griffe

# From a line that begins with >>> to the next blank line.
BLOCK = re.compile(r"^( *)>>> .*(?:\n *\S.*)*", re.MULTILINE)


class DoctestBlocks(griffe.Extension):
    """Put every doctest into a code block; Markdown would show it as a quotation."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of one function, class or module."""
        if obj.docstring is not None:
            text = obj.docstring.value
            obj.docstring.value = BLOCK.sub(lambda m: f"{m[1]}```pycon\n{m[0]}\n{m[1]}```", text)
