"""A second device made of CPU memory, which refuses to be mixed with the CPU as CUDA does.

A tensor of it wraps a tensor of the CPU. Every operation runs on what is inside, after a check that
all its tensors lie on one device. So a test without a GPU finds what would end a run on one.

    with strict_device.as_accelerator():     # runs of halftruth take it for their GPU
        ...
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import accelerate
import pytest
import torch
import torch.utils._device
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _DummyPrivateUse1Hook,
    _setup_privateuseone_for_python_backend,
)

NAME = "strict"
DEVICE = torch.device("privateuseone", 0)
# What may move data from one device to the other.
_MOVES = ("copy_", "_to_copy", "_copy_from", "_copy_from_and_resize")
# CUDA takes indices of the CPU; the CPU does not take those of CUDA.
_INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index")


class StrictTensor(torch.Tensor):
    """A tensor on the device; `inner` is its content."""

    inner: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "StrictTensor":
        strided = inner.layout == torch.strided
        place = (inner.stride(), inner.storage_offset()) if strided else (None, None)
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, *place, dtype=inner.dtype, device=DEVICE
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(op, *args, **(kwargs or {}))

    @property
    def layout(self) -> torch.layout:
        return self.inner.layout

    def tolist(self) -> Any:
        return self.inner.tolist()

    def numpy(self, **_: Any) -> Any:
        raise TypeError(f"can't convert {NAME}:0 device type tensor to numpy; use Tensor.cpu()")

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.numpy()

    def __repr__(self, **_: Any) -> str:
        return f"{self.inner!r} on {NAME}"


def is_strict(value: Any) -> bool:
    return isinstance(value, StrictTensor)


def check(op: Any, args: Any, kwargs: Any) -> None:
    """Raise what CUDA raises where devices are mixed."""
    name, leaves = op._schema.name.split("::")[1], tree_leaves((args, kwargs))
    tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
    if name in _MOVES:
        return
    if name in _INDEXING:
        if not is_strict(args[0]) and any(map(is_strict, args[1])):
            raise RuntimeError("indices should be on the same device as the indexed tensor (cpu)")
        if is_strict(args[0]):
            tensors = [args[0], *args[2:3]]
    # A tensor without dimensions is a number, and may stand beside any tensor.
    if len({is_strict(x) for x in tensors if is_strict(x) or x.dim()}) > 1:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{NAME}:0 and cpu! ({op})"
        )
    if any(isinstance(x, torch.Generator) for x in leaves):
        raise RuntimeError(f"Expected a '{NAME}' device type for generator but found 'cpu'")


def compute(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operation on what is inside, and wrap its results."""
    check(op, args, kwargs)
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    there = any(map(is_strict, tensors))
    if kwargs.get("device") is not None:
        there = torch.device(kwargs["device"]).type == DEVICE.type
        kwargs["device"] = torch.device("cpu")
    kwargs.pop("pin_memory", None)
    args, kwargs = tree_map(lambda x: x.inner if is_strict(x) else x, (args, kwargs))
    out = op(*args, **kwargs)
    for x in filter(is_strict, tensors):
        assert x.shape == x.inner.shape, f"{op} changes the size of a tensor in place"
    # What was changed in place is the same tensor as before.
    known = {id(x.inner if is_strict(x) else x): x for x in tensors}

    def wrap(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        return known.get(id(x)) if id(x) in known else StrictTensor(x) if there else x

    return tree_map(wrap, out)


class _Backend(_DummyBackendModule):
    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]


class _Hook(_DummyPrivateUse1Hook):
    """Not offered to programs that look for an accelerator."""

    def is_available(self) -> bool:
        return False


def register() -> list[Any]:
    """Make the device known to torch, once per process."""
    _setup_privateuseone_for_python_backend(NAME, _Backend(), _Hook())
    everything, factories = (
        torch.library.Library("_", "IMPL"),
        torch.library.Library("aten", "IMPL"),
    )
    everything.fallback(compute, "PrivateUse1")
    # Their default makes an empty tensor and changes its size, which a wrapper cannot follow.
    for packet in map(torch.ops.aten.__getattr__, ("arange", "linspace", "eye", "randperm")):
        for op in (getattr(packet, name) for name in packet.overloads() if "out" not in name):
            if not torch._C._dispatch_has_kernel_for_dispatch_key(
                op.name(), "CompositeImplicitAutograd"
            ):
                factories.impl(op.name(), functools.partial(compute, op), "PrivateUse1")
    # torch counts devices once, when a process differentiates for the first time.
    StrictTensor(torch.ones(1)).requires_grad_().sum().backward()
    # torch.tensor copies behind the back of Python. `with torch.device(...)` must still know it.
    torch.utils._device._device_constructors()
    return [everything, factories]


# When tests are collected: no test has differentiated anything yet. Not beside CUDA: torch then
# differentiates for a second kind of device in the same process, and fails.
_LIBRARIES = [] if torch.cuda.is_available() else register()


@contextmanager
def as_accelerator() -> Iterator[torch.device]:
    """Within the block, every run of halftruth in this process takes the device for its GPU."""
    make = torch.tensor

    def tensor(data: Any, *, device: Any = None, **more: Any) -> torch.Tensor:
        made = make(data, **more)
        return made if device is None else made.to(device)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "tensor", tensor)
        patch.setattr(accelerate.Accelerator, "device", property(lambda self: DEVICE))
        yield DEVICE
