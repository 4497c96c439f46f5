"""The packages that an import loads, and the public names."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

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


def block(packages: str) -> str:
    """Code after which an import of these packages fails as if they were not installed."""
    return f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {packages.split()!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""


def test_the_core_works_without_the_extras():
    """As after `pip install halftruth`: an import of anything else fails."""
    code = f"""
{block(EXTRAS)}
{CORE}
{USE}
print("fine")
"""
    assert python(code).strip() == "fine"


@pytest.mark.parametrize("missing", [EXTRAS, "pandas", "accelerate timm"])
def test_every_public_name_says_what_it_needs(missing):
    """The sentence names the missing package and the command; a name that works is fine."""
    pytest.importorskip("accelerate", reason="a part of the extra 'train'")
    code = f"""
{block(missing)}
import importlib, pkgutil, halftruth
rooms = [room.name for room in pkgutil.iter_modules(halftruth.__path__)]
rooms = [name for name in rooms if name not in ("__main__", "api", "cli")]
names = [(halftruth, name) for name in halftruth.__all__]
def use(what, load):
    try:
        return load()
    except ImportError as error:
        print(what, "|", error)
for name in [*rooms, "bench.datasets", "plots.loss_figures"]:
    room = use(name, lambda: importlib.import_module("halftruth." + name))
    names += [(room, one) for one in getattr(room, "__all__", ())]
for room, name in names:
    use(name, lambda: getattr(room, name))
"""
    pattern = rf'.* needs ({"|".join(missing.split())}|ray): pip install "halftruth\[(train|ray)\]"'
    said = [line.split(" | ") for line in python(code).splitlines()]
    assert {"fit", "load", "TrainedRun", "HalftruthClassifier"} <= {name for name, _ in said}
    for name, sentence in said:
        assert re.fullmatch(pattern, sentence), (name, sentence)
    if "pandas" in missing.split():
        assert {"audit", "serve", "plots", "hub"} <= {name for name, _ in said}


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


def test_the_supported_systems_are_stated_once():
    """What is promised is what CI runs: Linux."""
    root = Path(__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    systems = [text for text in project["classifiers"] if text.startswith("Operating System")]
    assert systems == ["Operating System :: POSIX :: Linux"]
    for file in (root / ".github" / "workflows").glob("*.yml"):
        used = set(re.findall(r"(?:ubuntu|macos|windows)-[\w.]+", file.read_text(encoding="utf-8")))
        assert used == {"ubuntu-latest"}, file
    for name in ("README.md", "docs/get-started.md"):
        assert re.search(r"newer[.,] Linux", (root / name).read_text(encoding="utf-8")), name


@pytest.mark.parametrize(
    "code",
    [
        "from halftruth.serve import Service; Service('run')",
        "from halftruth.audit.review_server import Review; Review('audit')",
        "from halftruth.bench.tune import import_optuna; import_optuna()",
    ],
)
def test_what_needs_a_package_says_how_to_install_it(code):
    pytest.importorskip("accelerate", reason="a part of the extra 'train'")
    missing = "import sys\nfor name in ('flask', 'werkzeug', 'werkzeug.serving', 'optuna'):\n"
    code = f"{missing}    sys.modules[name] = None\n{code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert 'pip install "halftruth[train]"' in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("method", "without"),
    [("em", "torch._dynamo torch._inductor scipy.stats matplotlib"), ("ensemble", "torch._dynamo")],
)
def test_training_loads_neither_a_compiler_nor_what_it_does_not_need(method, without, tmp_path):
    """Torch's compiler alone takes one to two seconds."""
    rows = "\n".join(f"r{i},{i % 2},{i % 3 == 0:d}" for i in range(40))
    (tmp_path / "y.csv").write_text(f"item,a,b\n{rows}\n")
    values = "\n".join(f"r{i},{i % 2 + i / 50},{i % 3}" for i in range(40))
    (tmp_path / "x.csv").write_text(f"item,f,g\n{values}\n")
    loaded = python(f"""
import sys, halftruth
halftruth.fit(
    {str(tmp_path / "y.csv")!r}, features={str(tmp_path / "x.csv")!r}, method="{method}",
    out={str(tmp_path / "run")!r}, quiet=True, report=False,
)
print(*(name for name in "{without}".split() if name in sys.modules))
""")
    assert loaded.splitlines()[-1] == ""
