"""Run all notebooks of docs/tutorials, each in an empty folder, and store their outputs.

python docs/run_notebooks.py [name ...]
"""

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient


def run(path: Path) -> None:
    """Run one notebook and store it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=600, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        # Times of execution would change in every run; warnings name folders of this machine.
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [part for part in cell.outputs if part.get("name") != "stderr"]
            for part in cell.outputs:
                if part.output_type == "stream":
                    part.text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", part.text)
    nbformat.write(notebook, path)


if __name__ == "__main__":
    # Commands print plain lines, without colours and progress bars.
    os.environ |= {"TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "100"}
    for path in sorted((Path(__file__).parent / "tutorials").glob("*.ipynb")):
        if not sys.argv[1:] or path.stem in sys.argv[1:]:
            print(path.name)
            run(path)
