"""The MLPs of the ensemble: those trained side by side are the ones that autograd trains alone."""

import copy

import numpy as np
import pytest
import torch

from halftruth import losses
from halftruth.train.ensemble import mlp as module
from halftruth.train.ensemble.mlp import MlpTask, fit_mlps
from halftruth.train.step import compute_learning_rate_factor

STEPS, ROWS = 40, 90


def make_task(parts, **more):
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, 6)).astype(np.float32)
    labels = np.where(random.random((ROWS, 4)) < 0.3, 1, random.choice([0, -1], size=(ROWS, 4)))
    return MlpTask(torch.from_numpy(x), torch.from_numpy(labels.astype(np.int8)), parts, **more)


def halves():
    return [torch.arange(60), torch.arange(30, ROWS), torch.arange(ROWS)]


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    monkeypatch.setattr(module, "_STEPS", STEPS)


@pytest.fixture
def no_dropout(monkeypatch):
    monkeypatch.setattr(module, "_KEPT", 1.0)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_network_beside_others_is_the_one_that_autograd_trains_alone(
    no_dropout, monkeypatch, weighted
):
    """The same rows in the same order, by the loss of `swan`, torch's Adam and a moving average."""
    orders = []
    draw = module._draw

    def remember(*given):
        orders.append(draw(*given))
        return orders[-1]

    monkeypatch.setattr(module, "_draw", remember)
    weights = 0.5 + torch.rand(ROWS, 4, generator=torch.Generator().manual_seed(3))
    task = make_task(halves(), weights=weights if weighted else None)
    found = fit_mlps(task, seed=7)
    random = torch.Generator().manual_seed(7)
    (start,) = module._Networks(6, 4, 1, random, torch.device("cpu")).split()
    for part, order in enumerate(orders):
        model = copy.deepcopy(start).requires_grad_(True)
        average = [one.detach().clone() for one in model.parameters()]
        loss = losses.create("swan")
        if weighted:
            loss = losses.LabelValues(loss, None, weights)
        optimizer = torch.optim.Adam(model.parameters())
        for step, rows in enumerate(order.view(STEPS, -1)):
            rate = compute_learning_rate_factor("one-cycle", step, STEPS, 0.2)
            optimizer.param_groups[0]["lr"] = 1e-3 * rate
            given = (rows,) if weighted else ()
            optimizer.zero_grad()
            loss(model(task.x[rows]), task.labels[rows], *given).backward()
            optimizer.step()
            share = 1 - min(0.99, (1 + step) / (10 + step))
            for mean, now in zip(average, model.parameters(), strict=True):
                mean.lerp_(now.detach(), share)
        for mean, now in zip(average, found[part].parameters(), strict=True):
            assert torch.allclose(mean, now, atol=2e-5)


def test_rows_outside_of_a_part_have_no_part_in_its_network():
    first = fit_mlps(make_task(halves()), seed=1)
    task = make_task(halves())
    task.x[60:], task.labels[60:] = 5.0, 1
    again = fit_mlps(task, seed=1)
    same = [
        all(torch.equal(a, b) for a, b in zip(x.parameters(), y.parameters(), strict=True))
        for x, y in zip(first, again, strict=True)
    ]
    assert same == [True, False, False]


def test_unknown_labels_count_by_the_class_that_a_row_shows():
    """A table of pairs is the same as weights of labels; one row shows one class."""
    random = np.random.default_rng(4)
    shown = torch.from_numpy(random.integers(0, 4, ROWS))
    labels = torch.nn.functional.one_hot(shown, 4).to(torch.int8)
    table = torch.from_numpy(random.random((1, 4, 4)).astype(np.float32))
    table[0].fill_diagonal_(1)
    x, parts = make_task([]).x, [torch.arange(ROWS)]
    pairs = fit_mlps(MlpTask(x, labels, parts, pairs=table), seed=0)[0]
    weights = fit_mlps(MlpTask(x, labels, parts, weights=table[0][shown]), seed=0)[0]
    plain = fit_mlps(MlpTask(x, labels, parts), seed=0)[0]
    a, b, c = (model(x) for model in (pairs, weights, plain))
    assert torch.allclose(a, b, atol=1e-5)
    assert not torch.allclose(a, c, atol=1e-2)


@pytest.mark.parametrize("rows", [1, 3, ROWS])
def test_any_number_of_rows(rows):
    (found,) = fit_mlps(make_task([torch.arange(rows)]), seed=2**31 - 1)
    assert found(torch.zeros(2, 6)).isfinite().all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_trains_the_same_networks():
    task = make_task(halves())
    there = MlpTask(task.x.cuda(), task.labels.cuda(), task.parts)
    for one, other in zip(fit_mlps(task, 0), fit_mlps(there, 0), strict=True):
        assert torch.allclose(one(task.x), other(task.x), atol=1e-2)
