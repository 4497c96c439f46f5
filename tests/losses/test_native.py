"""The compiled C loops against the curves they were generated from."""

import pytest
import torch

from cases import CASES
from halftruth import losses
from halftruth.losses._engine import native
from halftruth.losses._engine.one_pass import walk

needs_compiler = pytest.mark.skipif(native.compiler() is None, reason="no C compiler")
# The first shape is for cases with one count per class.
SHAPES = ((9, 5), (11, 33), (3, 1100))


def batch(rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(rows)
    z = torch.randn(rows, columns, generator=draw) * 4
    y = torch.randint(-1, 2, (rows, columns), generator=draw).to(torch.int8)
    # Extremes in separate rows: the mean of a row with 1e30 and -1e30 is not well defined.
    z[0], z[1], y[0], y[2] = 1e30, -1e30, -1, 0
    return z, y


@needs_compiler
@pytest.mark.parametrize("name", sorted(CASES))
def test_the_c_loop_equals_the_curves(name):
    case = CASES[name]()
    loss = case.build()
    shapes = SHAPES[:1] if name == "class-balanced" else SHAPES
    for z, y in (batch(*shape) for shape in shapes):
        loss.begin(y)
        case.remember(loss, y)
        # Twice: the second time, the memory must be read for the second batch.
        for index in (torch.arange(len(z)), torch.arange(len(z)).flip(0)):
            context = loss.prepare(z, y, index)
            value, slope = native.run(loss, z, y, context, 0.5, True)
        alone, none = native.run(loss, z, y, context, 0.5, False)
        wanted_value, wanted_slope = walk(loss, z, y, context, "all", True)
        torch.testing.assert_close(
            value.double(), wanted_value.double() * 0.5, rtol=2e-6, atol=1e-6
        )
        torch.testing.assert_close(slope, wanted_slope * 0.5, rtol=4e-6, atol=1e-6)
        assert none is None
        torch.testing.assert_close(alone, value, rtol=2e-6, atol=1e-6)


@needs_compiler
def test_the_c_loop_is_exact_to_float32():
    z = torch.linspace(-87, 87, 1 << 16).view(256, 256)
    for label in (1, -1):
        y = torch.full(z.shape, label, dtype=torch.int8)
        loss = losses.create("bce", reduction="sum")
        _, slope = native.run(loss, z, y, None, 1.0, True)
        _, exact = walk(loss, z.double(), y, None, "all", True)
        # Down to the smallest normal numbers.
        torch.testing.assert_close(slope.double(), exact, rtol=3e-7, atol=1e-38)
        values = torch.stack(
            [native.run(loss, z[i : i + 1], y[:1], None, 1.0, False)[0] for i in range(256)]
        )
        exact_values = walk(loss, z.double(), y, None, "row", False)[0]
        torch.testing.assert_close(values.double(), exact_values, rtol=1e-6, atol=1e-36)


@needs_compiler
@pytest.mark.parametrize("name", ["hill", "any-class"])
def test_threads_change_rounding_only(name, monkeypatch):
    z, y = batch(64, 300)
    loss = losses.create(name)
    monkeypatch.setattr(native.torch, "get_num_threads", lambda: 5)
    alone = native.run(loss, z, y, None, 1.0, True)
    monkeypatch.setattr(native, "A_THREAD", 100)
    shared = native.run(loss, z, y, None, 1.0, True)
    # Threads start at other entries, so other entries are in the scalar rest of a vector loop,
    # where a compiler may contract to other fused operations.
    torch.testing.assert_close(alone[1], shared[1], rtol=2e-6, atol=1e-7)
    torch.testing.assert_close(alone[0], shared[0], rtol=1e-6, atol=0)


@needs_compiler
def test_a_nan_logit_gives_a_nan_loss():
    z, y = batch(8, 8)
    z[5, 3] = torch.nan
    for name in ("bce", "asl", "hill", "gr", "splc", "em", "lasd", "any-class"):
        value, slope = native.run(losses.create(name), z, y, None, 1.0, True)
        assert value.isnan(), name
        assert slope[5, 3].isnan(), name


@pytest.mark.parametrize("compiler", [None, "/bin/false"])
def test_without_a_compiler_the_curves_are_computed(compiler, monkeypatch):
    native.load_or_compile.cache_clear()
    monkeypatch.setattr(native, "programs", native.Programs(native.programs.build))
    monkeypatch.setattr(native, "compiler", lambda: compiler)
    z, y = batch(130, 130)
    loss = losses.create("hill", reduction="sum")
    wanted = walk(loss, z, y, None, "all", True)[0].float()
    assert torch.equal(loss(z, y), wanted)
    native.load_or_compile.cache_clear()


@needs_compiler
def test_large_batches_go_through_the_loop(monkeypatch):
    calls = []
    real = native.run
    monkeypatch.setattr(native, "run", lambda *given: calls.append(1) or real(*given))
    loss = losses.create("hill", reduction="sum")
    for rows, dtype in ((130, torch.float32), (2, torch.float32), (130, torch.float64)):
        z, y = batch(130, 130)
        loss(z[:rows].to(dtype), y[:rows])
    assert len(calls) == 1


@needs_compiler
def test_inputs_that_are_not_contiguous():
    z, y = batch(140, 140)
    loss = losses.create("asl", reduction="sum")
    turned = z.t().requires_grad_()
    (grad,) = torch.autograd.grad(loss(turned, y.t()), turned)
    _, slope = walk(loss, z, y, None, "all", True)
    torch.testing.assert_close(grad, slope.t(), rtol=4e-6, atol=1e-6)
