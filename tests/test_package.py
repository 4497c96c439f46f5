"""The packages that an import loads, and the public names."""

import subprocess
import sys

import pytest

import halftruth

CORE = "from halftruth import labels, losses, metrics"
USE = """
import torch
loss = losses.create("any-class", base="splc")
logits = torch.randn(4, 3, requires_grad=True)
loss(logits, torch.tensor([[1, 0, -1]] * 4)).backward()
"""
EXTRAS = (
    "accelerate flask matplotlib optuna pandas PIL pyarrow rich safetensors scipy sklearn timm "
)
EXTRAS += "torchvision typer yaml"


def python(code: str) -> str:
    """The output of a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_by(code: str, after: str = "") -> str:
    """The packages outside the standard library that `code` loads after `after` has run."""
    return python(f"""
import sys
{after}
before = set(sys.modules)
{code}
new = {{name.split(".")[0] for name in set(sys.modules) - before}}
print(*sorted(new - set(sys.stdlib_module_names)))
""").strip()


def test_import_loads_nothing():
    assert loaded_by("import halftruth") == "halftruth"


def test_the_core_loads_torch_and_numpy_only():
    # torch and numpy load parts of themselves when they are used.
    loaded = loaded_by(CORE + USE, after="import numpy, torch")
    assert set(loaded.split()) <= {"halftruth", "numpy", "torch"}


def test_the_core_works_without_the_extras():
    """As after `pip install halftruth`: an import of anything else fails."""
    code = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {EXTRAS.split()!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
{CORE}
{USE}
print("fine")
"""
    assert python(code).strip() == "fine"


@pytest.mark.parametrize("name", halftruth.__all__)
def test_public_name(name):
    if name not in ("__version__", "labels", "losses", "metrics"):
        pytest.importorskip("accelerate", reason="a part of the extra 'train'")
    assert getattr(halftruth, name) is not None
    assert name in dir(halftruth)


def test_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'loses'"):
        _ = halftruth.loses


@pytest.mark.parametrize("part", ["labels", "losses", "metrics"])
def test_public_names_of_the_core(part):
    module = getattr(halftruth, part)
    for name in getattr(module, "__all__", []):
        assert getattr(module, name) is not None


def test_the_command_without_the_extras_says_what_to_install():
    code = """
import sys
sys.modules["typer"] = None
import halftruth.cli
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip().endswith('pip install "halftruth[train]"')
    assert "Traceback" not in done.stderr
