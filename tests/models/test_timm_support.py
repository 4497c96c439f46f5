"""Importing timm, with a working torchvision, a broken one, or none."""

import importlib.util
import subprocess
import sys
import textwrap

import pytest

from halftruth.models import import_timm, timm_support


def run(code: str) -> str:
    """Run code in a new process, since a module is imported only once."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_second_call_returns_the_same_module():
    timm = import_timm()
    assert timm.is_model("test_resnet")
    assert import_timm() is timm


def test_torchvision_without_its_compiled_operators_is_enough():
    # A failed import before leaves partly loaded modules behind.
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


def test_the_compiler_of_torch_is_imported_on_demand():
    """It takes seconds, and neither predictions nor fits of the ensemble need it."""
    out = run(
        """
        import sys
        import torch
        from halftruth.models import build_image_model
        disable = torch.compiler.disable
        model = build_image_model("test_resnet", 3, weights="none").eval()
        model(torch.zeros(1, 3, 32, 32))
        from halftruth.train.ensemble.solver import minimise
        x = torch.zeros(2, requires_grad=True)
        minimise([x], lambda: (x - 1).square().sum(), steps=5)
        print("torch._dynamo" in sys.modules, torch.compiler.disable is disable or "changed")
        ask = sys.modules["torchvision.ops.roi_align"].__dict__.get("is_compile_supported")
        print(ask is None or ask("cpu") in (True, False))
        import torch._dynamo
        print(torch._dynamo.utils.__file__ is not None, torch.compile(lambda x: x + 1) is not None)
        """
    )
    assert out.splitlines() == ["False True", "True", "True True"]


def test_names_read_from_files_are_those_of_the_registry():
    timm = import_timm()
    from timm.models import _registry

    assert timm_support._declared_names() >= set(timm.list_models())
    assert timm_support._declared_names() <= set(_registry._model_entrypoints)
