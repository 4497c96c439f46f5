"""Fold frozen batch norms into the convolutions in front of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from halftruth.models.classifier import apply_frozen, bare_forward, is_frozen

Pair = tuple[_ConvNd, _BatchNorm]
Scales = tuple[Tensor, Tensor]
# Larger relative differences between the two forms of a network are not rounding.
_ROUNDING = 1e-3


@contextmanager
def folded(model: nn.Module, example: Tensor) -> Iterator[list[Scales]]:
    """Fold frozen batch norms inside the `with` block; yield the scale and shift of each.

    A CUDA graph captured inside reads these tensors at every replay: keep them as long as it.

        bn(conv(x)) = conv'(x),   w' = s·w,  b' = s·b + t,   s = γ/√(σ²+ε),  t = β − s·μ

    This saves the passes of a batch norm over all pixels, forward and backward. The weights of the
    convolution are scaled at every step and get their gradients through the scale. Pairs are found
    by running the model once on an example; where the outputs then differ (another module reads
    the output of the convolution), nothing is folded.
    """
    pairs = _pairs(model, example)
    scales = [_scale_and_shift(norm) for _, norm in pairs]
    with _in_place(pairs, scales):
        same = bool(pairs) and _agree(model, example, pairs)
    if not same:
        pairs, scales = [], []
    with _in_place(pairs, scales):
        yield scales


@contextmanager
def _in_place(pairs: list[Pair], scales: list[Scales]) -> Iterator[None]:
    try:
        for (conv, norm), (scale, shift) in zip(pairs, scales, strict=True):
            conv.forward = partial(_scaled, conv, scale, shift)  # type: ignore[method-assign]
            norm.forward = partial(_rest_of, norm)  # type: ignore[method-assign]
        yield
    finally:
        for pair in pairs:
            for module in pair:
                module.__dict__.pop("forward", None)


def _pairs(model: nn.Module, example: Tensor) -> list[Pair]:
    """Return every frozen batch norm whose input is the output of a convolution."""
    made: dict[int, tuple[_ConvNd, Tensor]] = {}
    found: list[Pair] = []

    def note(conv: nn.Module, _: object, out: Tensor) -> None:
        assert isinstance(conv, _ConvNd)
        # The tensor is kept, since Python reuses the id of a deleted object.
        made[id(out)] = (conv, out)

    def look(norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(norm, _BatchNorm)
        if id(inputs[0]) in made:
            found.append((made[id(inputs[0])][0], norm))

    handles = []
    for module in model.modules():
        if isinstance(module, _ConvNd):
            handles.append(module.register_forward_hook(note))
        elif isinstance(module, _BatchNorm) and is_frozen(module) and _is_known(module):
            handles.append(module.register_forward_pre_hook(look))
    try:
        _forward_in_eval_mode(model, example)
    finally:
        for handle in handles:
            handle.remove()
    convs, norms = ({id(pair[i]) for pair in found} for i in (0, 1))
    return found if len(convs) == len(norms) == len(found) else []


def _is_known(norm: _BatchNorm) -> bool:
    """Whether it is a plain batch norm, or timm's with an activation."""
    return type(norm) is nn.BatchNorm2d or type(norm).__name__ == "BatchNormAct2d"


def _agree(model: nn.Module, example: Tensor, pairs: list[Pair]) -> bool:
    ours = _forward_in_eval_mode(model, example)
    kept = [(module, module.__dict__.pop("forward")) for pair in pairs for module in pair]
    theirs = _forward_in_eval_mode(model, example)
    for module, forward in kept:
        module.forward = forward  # type: ignore[method-assign]
    return bool((ours - theirs).abs().max() <= _ROUNDING * theirs.abs().max().clamp_min(1e-6))


@torch.no_grad()
def _forward_in_eval_mode(model: nn.Module, example: Tensor) -> Tensor:
    """Return the output in the precision of the weights, in evaluation mode."""
    training, dtype = model.training, next(model.parameters()).dtype
    model.eval()
    try:
        with torch.autocast(example.device.type, enabled=False), _exact_convolutions():
            return bare_forward(model)(example.to(dtype))  # type: ignore[no-any-return]
    finally:
        model.train(training)
        apply_frozen(model)


@contextmanager
def _exact_convolutions() -> Iterator[None]:
    """Switch TF32 off: its rounding is larger than the allowed difference."""
    cudnn: Any = torch.backends.cudnn
    before = cudnn.allow_tf32
    cudnn.allow_tf32 = False
    try:
        yield
    finally:
        cudnn.allow_tf32 = before


@torch.no_grad()
def _scale_and_shift(norm: _BatchNorm) -> Scales:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = (norm.running_var + norm.eps).rsqrt()
    if norm.weight is not None:
        scale = scale * norm.weight
    shift = -norm.running_mean * scale
    if norm.bias is not None:
        shift = shift + norm.bias
    return scale, shift


def _scaled(conv: _ConvNd, scale: Tensor, shift: Tensor, x: Tensor) -> Tensor:
    """Run the forward pass of the convolution's class with scaled weights."""
    weight, bias = conv._parameters["weight"], conv._parameters["bias"]
    assert weight is not None
    own: Any = conv._parameters
    own["weight"] = weight * scale.view(-1, *[1] * (weight.dim() - 1))
    own["bias"] = shift if bias is None else bias * scale + shift
    try:
        return type(conv).forward(conv, x)
    finally:
        own["weight"], own["bias"] = weight, bias


def _rest_of(norm: Any, x: Tensor) -> Tensor:
    return x if type(norm) is nn.BatchNorm2d else norm.act(norm.drop(x))
