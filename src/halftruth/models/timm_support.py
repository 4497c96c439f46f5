"""timm backbones, also where torchvision's compiled operators or the network are missing."""

import difflib
import functools
import importlib
import importlib.util
import json
import re
import socket
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlparse

import torch
from torch import nn

from halftruth.extras import import_torchvision
from halftruth.models.weights import ModelError, load_backbone

_COMPILER = "torch._dynamo.utils"
_HUB_FILES = ("model.safetensors", "pytorch_model.bin")
_INSTALL = 'pip install "halftruth[train]"'


def import_timm() -> ModuleType:
    """Import timm; where timm or torchvision is missing, the error names what to install.

    A torchvision wheel built for another torch fails with "operator torchvision::nms does not
    exist". Backbones use none of its operators, so their schemas are declared and the import is
    tried again.
    """
    for package in ("timm", "torchvision"):
        if package not in sys.modules and importlib.util.find_spec(package) is None:
            raise ImportError(f"image backbones need {package}: {_INSTALL}", name=package)
    with _compiler_on_demand():
        import_torchvision()
        return importlib.import_module("timm")


@contextmanager
def _compiler_on_demand() -> Iterator[None]:
    """Let torchvision and timm import torch's compiler when they use it, not when they load.

    Importing it takes seconds. torchvision asks it one question in `roi_align`, and timm marks
    functions that must not be compiled; both mean the same when it is imported at the first call.
    """
    if "torch._dynamo" in sys.modules:
        yield
        return

    def is_compile_supported(device_type: str) -> bool:
        return importlib.import_module(_COMPILER).is_compile_supported(device_type)

    def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> object:
        return torch._disable_dynamo(fn, recursive)

    stand_in = ModuleType(_COMPILER)
    stand_in.is_compile_supported = is_compile_supported  # type: ignore[attr-defined]
    sys.modules[_COMPILER] = stand_in
    before, torch.compiler.disable = torch.compiler.disable, disable
    try:
        yield
    finally:
        torch.compiler.disable = before
        if sys.modules.get(_COMPILER) is stand_in:
            del sys.modules[_COMPILER]


@functools.cache
def _declared_names() -> frozenset[str]:
    """The models that timm's files declare, found without importing them."""
    spec = importlib.util.find_spec("timm")
    if spec is None or spec.origin is None:
        raise ImportError(f"image backbones need timm: {_INSTALL}", name="timm")
    found: set[str] = set()
    for path in (Path(spec.origin).parent / "models").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        found |= set(re.findall(r"^@register_model\s+def (\w+)", text, re.MULTILINE))
        for block in re.findall(r"^register_model_deprecations\((.*?)^\}", text, re.M | re.S):
            found |= set(re.findall(r"^\s*['\"]([\w.]+)['\"]\s*:", block, re.MULTILINE))
    return frozenset(found)


def backbone_names() -> frozenset[str]:
    """The names of timm's models; importing timm takes seconds, reading its files does not."""
    # Once timm is imported, programs may have registered their own models.
    timm = sys.modules.get("timm")
    return _declared_names() | frozenset(timm.list_models() if timm else ())


def create_backbone(
    name: str,
    weights: str | Path = "pretrained",
    *,
    image_size: int | None = None,
    drop_path: float = 0.0,
) -> nn.Module:
    """A timm model without its classifier, so that it returns pooled features.

    `weights`: "pretrained" (timm's download), "none", or a file. Only "pretrained" downloads.
    """
    timm = import_timm()
    _check_name(timm, name)
    options: dict[str, object] = {"num_classes": 0}
    if ":" in name and str(weights) != "pretrained":
        name, more = _read_architecture(name)
        options |= more
    if drop_path:
        options["drop_path_rate"] = drop_path
    if image_size is not None:
        options |= _size_option(timm, name, image_size)
    if str(weights) == "pretrained":
        return _pretrained(timm, name, options)
    backbone = _create(timm, name, options)
    if str(weights) != "none":
        load_backbone(backbone, weights, name=name)
    return backbone


def _read_architecture(name: str) -> tuple[str, dict[str, object]]:
    """Return the architecture and the options behind hf-hub:user/name or local-dir:folder.

    They are read from this machine: the name may come from the run of a stranger.
    """
    from huggingface_hub import try_to_load_from_cache

    scheme, _, place = name.partition(":")
    path = Path(place) / "config.json"
    if scheme.replace("_", "-") == "hf-hub":
        repository, _, revision = place.partition("@")
        path = Path(str(try_to_load_from_cache(repository, path.name, revision=revision or None)))
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        options = {"pretrained_cfg": found["pretrained_cfg"], **found.get("model_args", {})}
        return str(found["architecture"]), options
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ModelError(
            f"backbone {name}: is not on this machine, and only pretrained weights are downloaded; "
            f"if you trust it, get it first: hf download {place}"
        ) from error


def _check_name(timm: ModuleType, name: str) -> None:
    architecture, _, tag = name.partition(".")
    if ":" in name:
        return
    if timm.is_model(architecture):
        tags = [full.partition(".")[2] for full in timm.list_pretrained(f"{architecture}.*")]
        if tag and tag not in tags:
            raise ModelError(f"{architecture} has no weights tagged {tag!r}; the tags are {tags}")
        return
    close = difflib.get_close_matches(architecture, timm.list_models(), n=3)
    hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
    raise ModelError(f"timm has no model called {name!r}: {hint}timm.list_models() lists all names")


def _size_option(timm: ModuleType, name: str, image_size: int) -> dict[str, object]:
    """Return the option for models with a fixed input size; the others take any size."""
    if image_size < 1:
        raise ModelError(f"expected an image size of at least 1, got {image_size}")
    cfg = timm.get_pretrained_cfg(name) if ":" not in name else None
    fixed = cfg is not None and cfg.fixed_input_size and cfg.input_size[-1] != image_size
    return {"img_size": image_size} if fixed else {}


def _create(timm: ModuleType, name: str, options: dict[str, object], **more: object) -> nn.Module:
    try:
        return timm.create_model(name, **options, **more)
    except TypeError as error:
        for option, words in (("drop_path_rate", "drop_path"), ("img_size", "another image size")):
            if option in options and option in str(error):
                raise ModelError(f"{name} does not take {words}; leave it out") from error
        raise


def _pretrained(timm: ModuleType, name: str, options: dict[str, object]) -> nn.Module:
    advice = "give a weights file, or weights='none' (--weights none) to start from random ones"
    cfg = timm.get_pretrained_cfg(name) if ":" not in name else None
    if cfg is not None and not cfg.has_weights:
        raise ModelError(f"timm has no pretrained weights for {name}; {advice}")
    if cfg is not None and cfg.hf_hub_id and not _hub_answers():
        # The hub client would retry for most of a minute before it looks into its cache.
        cached = _cached(cfg.hf_hub_id)
        if cached is None:
            raise ModelError(f"no network to download the weights of {name}; {advice}")
        backbone = _create(timm, name, options)
        load_backbone(backbone, cached, name=name)
        return backbone
    try:
        return _create(timm, name, options, pretrained=True)
    except ModelError:
        raise
    except Exception as error:  # the type depends on the version of the download client
        raise ModelError(
            f"the pretrained weights of {name} could not be loaded ({error}); {advice}"
        ) from error


def _hub_answers() -> bool:
    """Whether the name of the hub resolves; a proxy resolves it for us."""
    from huggingface_hub import constants

    if urllib.request.getproxies():
        return True
    try:
        socket.getaddrinfo(urlparse(constants.ENDPOINT).hostname, 443)
    except OSError:
        return False
    return True


def _cached(repository: str) -> str | None:
    from huggingface_hub import try_to_load_from_cache

    found = (try_to_load_from_cache(repository, file) for file in _HUB_FILES)
    return next((path for path in found if isinstance(path, str)), None)
