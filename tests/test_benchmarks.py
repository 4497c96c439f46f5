"""Every script of benchmarks/ runs in its small form, `--tiny`, and prints results."""

import re
import runpy
import sys
import warnings
from pathlib import Path

import pytest
import torch

pytest.importorskip("accelerate", reason="a part of the extra 'train'")

FOLDER = Path(__file__).parents[1] / "benchmarks"
# What the scripts share; the others have to be started with --tiny.
SHARED = {"common", "published"}
SCRIPTS = [path for path in sorted(FOLDER.glob("*.py")) if path.stem not in SHARED]
# Its floor is a compiled kernel.
ON_GPU = {"kernels"}
# It measures the server of the review.
OF_FLASK = {"review_time"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_benchmark_runs_in_its_tiny_form(script, tmp_path, monkeypatch, capfd):
    if script.stem in ON_GPU and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    if script.stem in OF_FLASK:
        pytest.importorskip("flask")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(sys, "argv", [str(script), "--tiny"])
    before = set(sys.modules)
    try:
        with warnings.catch_warnings():
            runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if end.code:
            pytest.fail(f"{end.code}\n{capfd.readouterr()}")
    finally:
        # Other tests may have modules of these names.
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).parent == FOLDER:
                del sys.modules[name]
    assert re.search(r"\d", capfd.readouterr().out)


def test_a_document_names_every_script():
    documents = [*FOLDER.parent.glob("*.md"), *FOLDER.parent.glob("docs/**/*.md")]
    text = "".join(path.read_text(encoding="utf-8") for path in [*documents, FOLDER / "README.md"])
    assert not [path.name for path in SCRIPTS if path.name not in text]
