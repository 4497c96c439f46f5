"""timm comes in, with a working torchvision, a broken one, or none."""

import importlib.util
import subprocess
import sys
import textwrap

import pytest

from halftruth.models import import_timm


def run(code: str) -> str:
    """In a fresh interpreter: an import can be tried once only."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_calling_twice_gives_the_same_module():
    timm = import_timm()
    assert timm.is_model("test_resnet")
    assert import_timm() is timm


def test_a_torchvision_without_its_compiled_operators_does_not_matter():
    # After a failed import by somebody else, which leaves modules half-loaded.
    out = run(
        """
        import torch
        def refuse(path):
            raise OSError("built for another torch")
        torch.ops.load_library = refuse
        try:
            import timm
        except RuntimeError as error:
            print("broken:", "torchvision::nms" in str(error))
        from halftruth.models import build_image_model, import_timm
        import_timm()
        print(build_image_model("test_resnet", 3, weights="none")(torch.zeros(2, 3, 32, 32)).shape)
        import torchvision
        print(import_timm() is __import__("timm"))
        """
    )
    assert out.splitlines() == ["broken: True", "torch.Size([2, 3])", "True"]


@pytest.mark.parametrize("package", ["timm", "torchvision"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(package, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else found(name)
    )
    with pytest.raises(ImportError, match=rf'need {package}: pip install "halftruth\[train\]"'):
        import_timm()


def test_models_over_features_do_not_need_timm():
    out = run(
        """
        import sys
        sys.modules["timm"] = sys.modules["torchvision"] = None
        import torch
        from halftruth.models import EMA, build_feature_model
        print(EMA(build_feature_model(4, 2)).module(torch.zeros(1, 4)).shape)
        """
    )
    assert out.strip() == "torch.Size([1, 2])"
