"""torch.compile: one graph, the same numbers, and no new compilation per epoch."""

import shutil
from collections.abc import Iterator

import pytest
import torch
import torch._inductor.config
from torch._dynamo.testing import CompileCounterWithBackend

from halftruth import losses
from loss_batches import every_method, fresh, mixed, value_and_gradient

CLOSE = {"rtol": 1e-6, "atol": 1e-7}
# Plain loops and no precompiled headers: half the time of the C++ compiler.
QUICK = {"cpp.simdlen": 1, "cpp_cache_precompile_headers": False}


@pytest.fixture(autouse=True)
def nothing_compiled_yet() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


# What every release of torch does with tensors, but not every one with numbers: what changes from
# one epoch to the next is an input of the compiled code, and nothing is compiled again.
STRICT = {"specialize_float": True, "error_on_recompile": True}


@every_method()
def test_compiled_equals_eager_in_every_epoch(name):
    _, labels = mixed()
    loss, twin = fresh(name, labels), fresh(name, labels)
    logits = mixed(loss.views)[0].float()
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    for epoch in range(loss.epoch, loss.epoch + 4):
        for one in (loss, twin):
            one.start_epoch(epoch, 10)
        want = value_and_gradient(twin, logits, labels)
        with torch._dynamo.config.patch(STRICT):
            got = value_and_gradient(compiled, logits, labels)
        torch.testing.assert_close(got, want, **CLOSE)


@pytest.mark.parametrize("name", ["bce", "any-class", "epr"])
def test_compiled_values_of_each_entry_or_row(name):
    logits, labels = mixed()
    loss = fresh(name, labels, reduction="none")
    values = loss(logits, labels)
    upstream = torch.rand(values.shape, generator=torch.Generator().manual_seed(0)).double()
    want = value_and_gradient(loss, logits, labels, upstream)
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    got = value_and_gradient(compiled, logits, labels, upstream)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "what",
    [
        {"name": "gr"},
        {"name": "splc"},
        {"name": "ll-r", "delta": 0.03},
        {"name": "ll-ct", "delta": 0.03},
        {"name": "any-class", "base": {"name": "splc", "base": "gr"}},
    ],
    ids=lambda what: what["name"],
)
def test_a_schedule_is_compiled_once(what):
    """Or twice, where the method itself changes: splc corrects nothing in the first epoch."""
    logits, labels = mixed(rows=12)
    loss = losses.create(what)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(loss, backend=counter, fullgraph=True)
    seen = set()
    for epoch in range(10):
        loss.start_epoch(epoch, 10)
        want = value_and_gradient(loss, logits, labels)
        with torch._dynamo.config.patch(specialize_float=True):
            got = value_and_gradient(compiled, logits, labels)
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-14)
        seen.add(want[0].item())
    assert counter.frame_count <= 2
    assert len(seen) >= (2 if what["name"] == "splc" else 9), "the schedule does nothing"


@pytest.mark.parametrize("kind", [torch.bool, torch.int64, torch.float32], ids=str)
def test_compiled_with_labels_of_another_type(kind):
    logits, labels = mixed()
    labels = labels.clamp(min=0)
    loss = losses.create("lasd", tau=0.6)
    want = value_and_gradient(loss, logits, labels)
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    got = value_and_gradient(compiled, logits, labels.to(kind))
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-14)


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
@pytest.mark.parametrize(
    "what",
    [
        {"name": "class-balanced", "base": {"name": "any-class", "base": "gr"}},
        {"name": "splc", "base": "hill"},
    ],
    ids=lambda what: what["name"],
)
def test_inductor_equals_eager(what):
    logits, labels = mixed(rows=11)
    logits = logits.float()
    logits[3, 0], logits[4, 1] = 1e30, -1e30
    loss = losses.create(what)
    loss.begin(labels)
    loss.start_epoch(2, 10)
    want = value_and_gradient(loss, logits, labels)
    compiled = torch.compile(loss, fullgraph=True)
    with torch._inductor.config.patch(QUICK):
        got = value_and_gradient(compiled, logits, labels)
    torch.testing.assert_close(got, want, **CLOSE)
