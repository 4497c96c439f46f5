"""Backbone weights from a file: read without running code, matched by name."""

import pickle
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from halftruth.extras import needs_extras

SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")
# Keys under which training scripts store weights, and prefixes that wrappers add to names.
_CONTAINERS = ("state_dict_ema", "model_ema", "state_dict", "model")
_PREFIXES = ("module.", "model.", "_orig_mod.", "backbone.")
State = dict[str, Tensor]


class ModelError(ValueError):
    """A model that cannot be built, or weights that do not fit it."""


def read_weights(path: str | Path) -> State:
    """The tensors of a .safetensors, .pth, .pt or .bin file, on the CPU, fp16 turned into fp32."""
    path = Path(path)
    if not path.is_file():
        raise ModelError(
            f"{path}: there is no such file of weights; give a file, 'pretrained' or 'none'"
        )
    if path.suffix not in SUFFIXES:
        raise ModelError(f"{path}: expected a weights file ending in {', '.join(SUFFIXES)}")
    state = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)
    half = (torch.float16, torch.bfloat16)
    state = {key: t.float() if t.dtype in half else t for key, t in state.items()}
    broken = [k for k, t in state.items() if t.is_floating_point() and not t.isfinite().all()]
    if broken:
        raise ModelError(f"{path}: holds values that are not finite in {_some(broken)}")
    return state


def load_backbone(backbone: nn.Module, path: str | Path, *, name: str = "the backbone") -> None:
    """Fill a timm backbone from a file, which must fit it exactly apart from the old classifier.

    Prefixes of wrappers (`module.`, `model.`) are dropped, and so is the head of a halftruth model.
    Where names or shapes differ, timm's own conversion for this family is tried (other layouts,
    position embeddings of another image size).
    """
    expected = backbone.state_dict()
    state = _without_classifier(bare_names(read_weights(path), expected), backbone)
    problems = mismatches(state, expected)
    if problems:
        converted = _converted(state, backbone)
        if converted is not None and not mismatches(converted, expected):
            state, problems = converted, ""
    if problems:
        raise ModelError(f"{path} does not fit {name}:\n{problems}")
    backbone.load_state_dict(state, strict=False)  # only batch counters may be missing by now


def bare_names(state: State, expected: Iterable[str]) -> State:
    """The tensors under the names a model expects, without the prefixes of wrappers.

    >>> sorted(bare_names({"module.model.fc.bias": torch.zeros(1)}, ["fc.bias"]))
    ['fc.bias']
    """
    expected = set(expected)
    of_halftruth = any(key.startswith("backbone.") and key not in expected for key in state)
    bare: State = {}
    for key, tensor in state.items():
        if of_halftruth and key.startswith("head."):
            continue
        name = key
        while name not in expected:
            prefix = next((p for p in _PREFIXES if name.startswith(p)), None)
            if prefix is None:
                break
            name = name.removeprefix(prefix)
        if name in bare:
            raise ModelError(f"{name!r} is in the weights twice, once as {key!r}; keep one copy")
        bare[name] = tensor
    return bare


def mismatches(state: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str:
    """Describe why `state` does not fit a model, in at most four lines; empty if it fits.

    >>> print(mismatches({"a": torch.zeros(2), "b": torch.zeros(1)}, {"a": torch.zeros(3)}))
      1 unexpected: 'b'
      1 of another shape: 'a' is (2,) in the file, (3,) in the model
    """
    missing = [k for k in expected if k not in state and not k.endswith("num_batches_tracked")]
    unexpected = [k for k in state if k not in expected]
    shapes = [
        f"{k!r} is {tuple(state[k].shape)} in the file, {tuple(expected[k].shape)} in the model"
        for k in expected
        if k in state and state[k].shape != expected[k].shape
    ]
    lines = []
    if not any(key in state for key in expected):
        lines.append("  none of its names occurs in the model: these are another model's weights")
    if missing:
        lines.append(f"  {len(missing)} missing: {_some(missing)}")
    if unexpected:
        lines.append(f"  {len(unexpected)} unexpected: {_some(unexpected)}")
    if shapes:
        more = f", and {len(shapes) - 2} more" if len(shapes) > 2 else ""
        lines.append(f"  {len(shapes)} of another shape: {', '.join(shapes[:2])}{more}")
    return "\n".join(lines)


def _without_classifier(state: State, backbone: nn.Module) -> State:
    """Without the layers timm names as this backbone's classifier, which num_classes=0 removed."""
    names = getattr(backbone, "pretrained_cfg", {}).get("classifier") or ()
    old = tuple(f"{name}." for name in ([names] if isinstance(names, str) else names))
    kept = backbone.state_dict()
    return {key: t for key, t in state.items() if key in kept or not key.startswith(old)}


def _converted(state: State, backbone: nn.Module) -> State | None:
    """The state after the family's own converter, or None where there is none or it fails."""
    family = sys.modules[type(backbone).__module__]
    converter = getattr(family, "checkpoint_filter_fn", None)
    if converter is None:
        return None
    try:
        return _without_classifier(dict(converter(dict(state), backbone)), backbone)
    except Exception:  # foreign weights can break it anywhere; the caller reports the mismatch
        return None


def _read_safetensors(path: Path) -> State:
    with needs_extras(str(path)):
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}: is not a complete safetensors file: {error}") from error


def _read_torch(path: Path) -> State:
    try:
        loaded: object = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ModelError(
            f"{path}: is damaged or holds more than tensors, which could run code when loaded; "
            "save its state_dict() alone, best as .safetensors"
        ) from error
    except Exception as error:  # arbitrary bytes can break a pickle reader anywhere
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ModelError(f"{path}: is not a complete torch file: {reason}") from error
    for container in _CONTAINERS:
        if isinstance(loaded, Mapping) and isinstance(loaded.get(container), Mapping):
            loaded = loaded[container]
    if not isinstance(loaded, Mapping):
        raise ModelError(f"{path}: expected named tensors, got {type(loaded).__name__}")
    others = [str(key) for key, value in loaded.items() if not isinstance(value, Tensor)]
    if others or not loaded:
        raise ModelError(f"{path}: expected named tensors only, got others in {_some(others)}")
    return dict(loaded)


def _some(names: list[str], limit: int = 3) -> str:
    shown = ", ".join(map(repr, names[:limit])) or "nothing at all"
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown
