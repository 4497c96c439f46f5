"""Methods with a memory: published series of states, resuming, and errors.

The published values hold losses and counts of every step, and the table after the last one. A
pseudo-label of em-apl is the prediction of the epoch that gave it, so the last table also tells
which entries each epoch has chosen.
"""

import copy
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from halftruth import losses
from halftruth.losses import curves
from halftruth.losses.memory import Memory
from halftruth.losses.memory_loss import lowest, up_to
from halftruth.models.heads import compute_kl_from_normal

FOLDER = Path(__file__).parents[1] / "golden" / "memory"
EXACT = {"rtol": 1e-12, "atol": 1e-14}
EVERY_METHOD = {
    "em-apl": {"warmup": 1},
    "ll-cp": {"delta": 0.05},
    "mime": {"warmup": 1, "theta": 0.6},
    "smile": {},
    "en": {"expected_positives": 1.5},
    "role": {"expected_positives": 1.5, "light": True, "rate": 0.01},
}
SAMPLES, CLASSES = 12, 5


@cache
def read(file: str) -> dict[str, Tensor]:
    with np.load(FOLDER / f"{file}.npz") as stored:
        return {key: torch.from_numpy(stored[key]) for key in stored.files}


def published_logits(epoch: int) -> Tensor:
    """The logits of the reference series in an epoch, counted from 1."""
    return read("inputs")["logits"] + read("inputs")["drift"][epoch]


def everyone(count: int = 64) -> Tensor:
    return torch.arange(count)


def begun(name: str, labels: Tensor, **settings: Any) -> losses.Loss:
    loss = losses.create(name, **settings)
    loss.begin(labels)
    return loss


def gradients(loss: losses.Loss, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    leaf = logits.clone().requires_grad_()
    value = loss(leaf, labels, index=everyone(len(labels)))
    value.backward()
    assert leaf.grad is not None
    return value.detach(), leaf.grad


# em-apl


@pytest.mark.parametrize("warmup", [5, 3])
def test_em_apl_gives_the_published_pseudo_labels_epoch_by_epoch(warmup: int):
    stored, labels = read("em_apl"), read("inputs")["single"]
    final = stored[f"warmup {warmup}/labels"]
    loss = begun("em-apl", labels, warmup=warmup, memory_dtype="float64")
    given = torch.zeros_like(final, dtype=torch.bool)
    for epoch in range(1, 11):
        loss.start_epoch(epoch - 1, 10)
        assert loss.needs_scores == (warmup <= epoch < 10), "the last epoch's are never used"
        logits = published_logits(epoch)
        loss.end_epoch(logits)
        fresh = (final < 0) & ((-final - torch.sigmoid(logits)).abs() < 1e-12)
        given |= fresh if epoch >= warmup else False
        assert torch.equal(loss.pseudo_labels(everyone()), -given.to(torch.int8))
        counts = given.sum(dim=0).to(torch.int16)
        assert torch.equal(counts, stored[f"warmup {warmup}/counts"][epoch - 1])
    remembered = loss.memory.values
    torch.testing.assert_close(remembered[given], -final[given], **EXACT)
    assert torch.equal(remembered[labels == 1], torch.full((64,), 2.0, dtype=torch.float64))


@pytest.mark.parametrize(
    ("data", "alpha", "beta"),
    [("pascal", 0.2, 0.02), ("coco", 0.1, 0.9), ("nuswide", 0.1, 0.2), ("cub", 0.01, 0.4)],
)
def test_em_apl_equals_the_published_loss(data: str, alpha: float, beta: float):
    stored, labels = read("em_apl"), read("inputs")["single"]
    loss = begun("em-apl", labels, alpha=alpha, beta=beta, memory_dtype="float64", eps=1e-5)
    soft = stored["targets"] < 0
    loss.memory.values[soft] = -stored["targets"][soft]
    value, gradient = gradients(loss, read("inputs")["logits"], labels)
    torch.testing.assert_close(value, stored[f"{data}/loss"], **EXACT)
    torch.testing.assert_close(gradient[:8], stored[f"{data}/grad"], **EXACT)


def test_em_apl_scores_in_parts_equal_scores_at_once(monkeypatch):
    monkeypatch.setattr("halftruth.losses.memory.BLOCK", 100)
    labels = read("inputs")["single"]
    whole, streamed = begun("em-apl", labels), begun("em-apl", labels)
    for epoch in (5, 6):
        logits = published_logits(epoch)
        for loss in (whole, streamed):
            loss.start_epoch(epoch - 1, 10)
        whole.end_epoch(logits)
        for part in everyone().flip(0).split(17):
            streamed.observe(logits[part], part)
        streamed.end_epoch()
    # A vectorised sigmoid may differ in the last bit of float64 between shapes, which may move a
    # stored half-precision number to its neighbour.
    half = {"rtol": 2**-10, "atol": 2**-24}
    torch.testing.assert_close(whole.memory.values, streamed.memory.values, **half)
    assert torch.equal(*(loss.pseudo_labels(everyone()) for loss in (whole, streamed)))
    assert int(whole.pseudo_labels(everyone()).abs().sum()) == 416


def test_em_apl_names_missing_scores():
    loss = begun("em-apl", read("inputs")["single"])
    loss.start_epoch(4, 10)
    loss.observe(published_logits(5)[:60], everyone(60))
    with pytest.raises(ValueError, match=r"after epoch 5, but 4 have no scores \(the first is 60"):
        loss.end_epoch()
    with pytest.raises(ValueError, match=r"expected scores of shape \(64, 20\).*got \(3, 20\)"):
        loss.end_epoch(published_logits(5)[:3])


def test_em_apl_warns_if_no_epoch_gives_pseudo_labels():
    loss = begun("em-apl", read("inputs")["single"])
    with pytest.warns(UserWarning, match=r"warmup=5 gives no pseudo-labels in 5 epochs"):
        loss.start_epoch(0, 5)
    loss.end_epoch(published_logits(5))
    assert not loss.pseudo_labels(everyone()).any()


def test_em_apl_distinguishes_a_prediction_of_zero_from_none():
    """Half precision rounds below 6e-8 to zero, which must still count as a pseudo-label."""
    labels = torch.zeros(4, 1, dtype=torch.int8)
    loss = begun("em-apl", labels, warmup=1, theta=1.0)
    loss.start_epoch(0, 3)
    loss.end_epoch(torch.tensor([[-60.0], [-40.0], [0.0], [1.0]]))
    assert loss.pseudo_labels(everyone(4)).flatten().tolist() == [-1, -1, 0, 0]


# ll-cp


@pytest.mark.parametrize("strict", [True, False], ids=["first code", "corrected code"])
def test_ll_cp_corrects_what_the_published_code_corrects(strict: bool):
    stored, labels = read("ll_cp"), read("inputs")["single"]
    key = "strict" if strict else "default"
    loss = begun("ll-cp", labels, delta=0.01, strict=strict)
    for epoch in range(1, 7):
        loss.start_epoch(epoch - 1, 6)
        logits = published_logits(epoch)
        for number, batch in enumerate(everyone().split(16)):
            value = loss(logits[batch], labels[batch], index=batch)
            # The code computes the cost of a corrected entry in float32.
            expected = stored[f"{key}/loss"][epoch - 1, number]
            torch.testing.assert_close(value, expected, rtol=1e-7, atol=0)
        found = loss.pseudo_labels(everyone())
        assert int((labels + found).sum()) == stored[f"{key}/positives"][epoch - 1]
    assert torch.equal(labels + found, stored[f"{key}/labels"])


def test_ll_cp_never_changes_a_verified_absence():
    logits = torch.linspace(-3, 3, SAMPLES * CLASSES).view(SAMPLES, CLASSES)
    labels = torch.full((SAMPLES, CLASSES), -1, dtype=torch.int8)
    labels[:2] = 0
    loss = begun("ll-cp", labels, delta=0.5)
    loss.start_epoch(1, 2)
    loss(logits, labels, index=everyone(SAMPLES))
    assert torch.equal(loss.pseudo_labels(everyone(SAMPLES)), (labels == 0).to(torch.int8))


# mime and smile


def test_mime_gives_the_published_labels_epoch_by_epoch():
    stored, labels = read("mime"), read("inputs")["single"]
    loss = begun("mime", labels)
    for epoch in range(1, 6):
        loss.start_epoch(epoch - 1, 6)
        assert loss.needs_scores == (epoch >= 2)
        loss.end_epoch(published_logits(epoch) if loss.needs_scores else None)
        now = torch.maximum(labels, loss.pseudo_labels(everyone()))
        assert int(now.sum()) == stored["positives"][epoch - 1]
    assert torch.equal(now, stored["labels"])


def test_mime_equals_the_published_loss_with_its_head():
    """Before any pseudo-label: the loss is one part, the head's penalty the other."""
    stored, labels = read("mime"), read("inputs")["single"]
    value, gradient = gradients(begun("mime", labels, eps=1e-5), read("inputs")["logits"], labels)
    torch.testing.assert_close(gradient[:8], stored["grad"], **EXACT)
    mean, log_std = (stored[key].clone().requires_grad_() for key in ("mean", "log_std"))
    penalty = 1e-4 * compute_kl_from_normal(mean, log_std)
    torch.testing.assert_close(penalty.detach(), stored["penalty"], **EXACT)
    torch.testing.assert_close(value + penalty.detach(), stored["loss"], **EXACT)
    penalty.backward()
    torch.testing.assert_close(mean.grad[:4], stored["grad_mean"], **EXACT)
    torch.testing.assert_close(log_std.grad[:4], stored["grad_log_std"], **EXACT)


def test_mime_names_missing_scores():
    loss = begun("mime", read("inputs")["single"])
    loss.start_epoch(1, 4)
    with pytest.raises(ValueError, match="after epoch 2: call end_epoch"):
        loss.end_epoch()
    with pytest.raises(ValueError, match=r"expected scores of shape \(64, 20\).*got \(3, 20\)"):
        loss.end_epoch(published_logits(5)[:3])
    for part in everyone().split(20):
        loss.observe(published_logits(5)[part], part)
    loss.end_epoch()


@pytest.mark.parametrize(
    ("data", "prior", "mu", "rate"),
    [
        ("yeast", 0.05, 0.5, 0.1),
        ("CAL500", 0.01, 0.01, 0.1),
        ("Image", 0.1, 0.9, 0.7),
        ("scene", 0.075, 0.3, 0.5),
        ("corel5k", 0.025, 0.1, 0.1),
        ("Corel16k001", 0.001, 0.01, None),
        ("script defaults", 0.5, 0.5, None),
    ],
)
def test_smile_equals_the_published_loss(data, prior, mu, rate):
    stored, labels = read("smile"), read("inputs")["single"]
    settings = {"prior": prior, "mu": mu, "rate": rate, "decay": 1.0, "memory_dtype": "float64"}
    loss = begun("smile", labels, **settings, eps=1e-5)
    loss.load_degrees(everyone(), stored["degrees"])
    value, gradient = gradients(loss, read("inputs")["logits"], labels)
    torch.testing.assert_close(value, stored[f"{data}/loss"], **EXACT)
    torch.testing.assert_close(gradient[:8], stored[f"{data}/grad"], **EXACT)
    assert torch.equal(loss.memory.values, stored["degrees"]), "decay 1 does not change them"


def test_smile_learns_its_degrees_from_the_predictions():
    labels = torch.tensor([[1, 0], [0, -1]], dtype=torch.int8)
    loss = begun("smile", labels, decay=0.75, memory_dtype="float64")
    assert (loss.memory.values == -1).all()
    p = [torch.tensor([[0.5, 0.25]]).double(), torch.tensor([[0.75, 0.5]]).double()]
    for seen in p:
        loss(torch.logit(seen), labels[:1], index=torch.tensor([0]))
    torch.testing.assert_close(loss.memory.values[:1], 0.75 * p[0] + 0.25 * p[1], **EXACT)
    assert (loss.memory.values[1] == -1).all()
    with pytest.raises(ValueError, match=r"expected degrees in \[0, 1\]"):
        loss.load_degrees(torch.tensor([0]), torch.tensor([[0.5, 1.5]]))


# en


def test_en_ranks_as_published():
    """The mask of an epoch comes from the averages up to the epoch before."""
    stored, labels = read("en"), read("inputs")["single"]
    settings = {"expected_positives": stored["expected_positives"], "memory_dtype": "float64"}
    loss = begun("en", labels, **settings)
    averages = {1: 0, 2: 1, 5: 2}
    for epoch in range(1, 6):
        loss.start_epoch(epoch - 1, 5)
        logits = published_logits(epoch)
        for batch in everyone().flip(0).split(16):
            loss(logits[batch], labels[batch], index=batch)
        loss.end_epoch()
        if epoch in averages:
            torch.testing.assert_close(loss.memory.values, stored["ema"][averages[epoch]], **EXACT)
        mask = (loss.pseudo_labels(everyone()) < 0) & (labels == 0)
        assert torch.equal(mask, stored["mask"][epoch - 1])
        # The reference has the loss of the same epoch, computed without changing the memory.
        loss.eval()
        before = loss.memory.values.clone()
        value, gradient = gradients(loss, logits, labels)
        assert torch.equal(loss.memory.values, before)
        loss.train()
        torch.testing.assert_close(value, stored["loss"][epoch - 1], **EXACT)
        slopes = gradient[:8] * labels.numel()
        torch.testing.assert_close(slopes, stored["grad"][epoch - 1], rtol=0, atol=1e-7)


def test_en_assumes_negatives_in_the_first_epoch():
    logits, labels = read("inputs")["logits"], read("inputs")["single"]
    first = begun("en", labels, expected_positives=3.0)(logits, labels, index=everyone())
    # en computes the negatives as a smaller tensor, whose last bits depend on the vector length.
    torch.testing.assert_close(first, losses.create("bce")(logits, labels), rtol=1e-14, atol=0)


def test_en_distributes_an_average_over_the_classes_by_their_labels():
    labels = torch.zeros(20, 3, dtype=torch.int8)
    labels[:6, 0] = 1
    labels[:3, 1] = 1
    loss = begun("en", labels, expected_positives=0.6)
    assert (20 - loss.expected_negatives).tolist() == [8, 4, 0]
    many = begun("en", labels, expected_positives=2.0)
    assert (20 - many.expected_negatives).tolist() == [20, 13, 0], "no more than there are"


def test_en_has_the_expected_number_of_negatives_even_with_ties(monkeypatch):
    monkeypatch.setattr("halftruth.losses.memory.BLOCK", 70)
    labels = torch.zeros(30, 4, dtype=torch.int8)
    loss = begun("en", labels, expected_positives=[3, 0, 30, 7])
    loss(torch.full((30, 4), -2.0), labels, index=everyone(30))
    loss.end_epoch()
    assert (-loss.pseudo_labels(everyone(30))).sum(dim=0).tolist() == [27, 30, 0, 23]


def test_en_warns_if_end_epoch_was_not_called():
    labels = torch.zeros(4, 2, dtype=torch.int8)
    loss = begun("en", labels, expected_positives=0.5)
    loss.start_epoch(1, 3)
    with pytest.warns(UserWarning, match=r"epoch 2 begins and end_epoch\(\) has not been called"):
        loss(torch.zeros(4, 2), labels, index=everyone(4))


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ([1.0, 2.0], "for each of the 3 classes, got 2"),
        ([1.0, 9.0, 2.0], r"expected_positives\[1\] is 9; expected at most 4"),
        (5.0, "expected_positives <= 3, got 5.0"),
        (-1.0, ">= 0"),
    ],
)
def test_en_refuses_impossible_numbers(expected: Any, message: str):
    with pytest.raises(ValueError, match=message):
        begun("en", torch.zeros(4, 3, dtype=torch.int8), expected_positives=expected)


# role


@pytest.mark.parametrize("k", ["3.0", "1.5"])
def test_role_equals_the_published_loss(k: str):
    stored, logits, labels = read("role"), read("inputs")["logits"], read("inputs")["single"]
    settings = {"expected_positives": float(k), "memory_dtype": "float64", "eps": 1e-5}
    loss = begun("role", labels, **settings)
    loss.estimator.data.copy_(stored["fixed/start"])
    value, gradient = gradients(loss, logits, labels)
    torch.testing.assert_close(value, stored[f"k={k}/loss"], **EXACT)
    torch.testing.assert_close(gradient[:8], stored[f"k={k}/grad"], **EXACT)
    torch.testing.assert_close(loss.estimator.grad[:8], stored[f"k={k}/grad_g_logits"], **EXACT)
    entries = begun("role", labels, reduction="none", **settings)
    entries.load_state_dict(loss.state_dict())
    each = entries(logits, labels, index=everyone()) - stored[f"k={k}/reg"]
    torch.testing.assert_close(each[:8], stored[f"k={k}/loss_matrix"], rtol=1e-12, atol=1e-13)


def test_role_trains_step_by_step_as_published():
    """A linear model and its estimates under Adam: all rows of the table change at every step."""
    stored, labels = read("role"), read("inputs")["single"]
    model = nn.Linear(32, 20, dtype=torch.float64)
    model.load_state_dict({"weight": stored["steps/weight0"], "bias": stored["steps/bias0"]})
    loss = begun("role", labels, expected_positives=3.0, memory_dtype="float64", eps=1e-5)
    loss.estimator.data.copy_(stored["steps/g0"])
    groups = [{"params": model.parameters()}, *loss.parameter_groups(1e-3)]
    optimizer = torch.optim.Adam(groups, lr=1e-3)
    assert [group["lr"] for group in optimizer.param_groups] == [1e-3, 1e-2]
    step = 0
    for order in stored["steps/order"].long():
        for batch in order.split(16):
            optimizer.zero_grad()
            value = loss(model(stored["steps/features"][batch]), labels[batch], index=batch)
            value.backward()
            before = loss.estimator.detach().clone()
            optimizer.step()
            torch.testing.assert_close(value, stored["steps/loss"][step], **EXACT)
            moved = (loss.estimator.detach() != before).all(dim=1)
            assert int(moved.sum()) == min(16 * (step + 1), 64)
            step += 1
    torch.testing.assert_close(model.weight.detach(), stored["steps/weight8"], **EXACT)
    torch.testing.assert_close(model.bias.detach(), stored["steps/bias8"], **EXACT)
    torch.testing.assert_close(loss.estimator.detach(), stored["steps/g8"], **EXACT)
    torch.testing.assert_close(loss.estimates(), stored["steps/estimates8"], **EXACT)


@pytest.mark.parametrize("light", [False, True])
def test_role_starts_where_the_published_code_starts(light: bool):
    labels = read("inputs")["single"].clone()
    labels[5] = -1
    loss = begun("role", labels, expected_positives=3.0, light=light, seed=7)
    start, known = read("role")["fixed/start"], labels != 0
    tolerance = {"rtol": 1e-3 if light else 1e-7, "atol": 1e-7}
    torch.testing.assert_close(loss.table[~known].double(), start[~known], **tolerance)
    sure = labels[known].double() * math.log(0.995 / 0.005)
    torch.testing.assert_close(loss.table[known].double(), sure, **tolerance)


def test_role_loads_estimates():
    q, expected = read("role")["linear_init/q"], read("role")["linear_init/g"]
    for light in (False, True):
        loss = begun("role", torch.zeros(1, 8), expected_positives=1.0, light=light)
        loss.load_estimates(q)
        torch.testing.assert_close(loss.table, expected.to(loss.table.dtype))
        with pytest.raises(ValueError, match=r"expected estimates of shape \(1, 8\).*got \(8, 1\)"):
            loss.load_estimates(q.T)


def test_one_light_step_is_one_visit_under_adam():
    """Between two visits, Adam's averages continue to move a row of a large table."""
    random = torch.Generator().manual_seed(0)
    labels = torch.randint(-1, 2, (8, 6), generator=random, dtype=torch.int8)
    logits = torch.randn(8, 6, generator=random, dtype=torch.float64)
    settings = {"expected_positives": 2.0, "memory_dtype": "float64"}
    light = begun("role", labels, light=True, rate=1e-4, **settings)
    dense = begun("role", labels, **settings)
    start = dense.estimator.detach().clone()
    assert torch.equal(light.table, start)
    optimizer = torch.optim.Adam(dense.parameter_groups(1e-5))
    dense.estimator.grad = torch.zeros_like(start)
    optimizer.step()
    # The visit comes late in training: Adam's correction of its first steps is over by then.
    optimizer.state[dense.estimator]["step"].fill_(20_000)
    dense(logits, labels, index=everyone(8)).backward()
    for _ in range(200):
        optimizer.step()
        dense.estimator.grad.zero_()
    light(logits, labels, index=everyone(8))
    moved = light.table - start
    torch.testing.assert_close(moved, dense.estimator.detach() - start, rtol=0.01, atol=1e-7)
    assert moved.abs().max() > 3e-3


def test_light_role_updates_the_rows_of_the_batch_only_and_needs_a_rate():
    labels = torch.zeros(6, 3, dtype=torch.int8)
    loss = begun("role", labels, expected_positives=1.0, light=True)
    batch = torch.tensor([4, 1])
    with pytest.raises(ValueError, match="parameter_groups"):
        loss(torch.randn(2, 3), labels[batch], index=batch)
    assert loss.parameter_groups(1e-3) == []
    assert loss.rate == pytest.approx(1e-2)
    before = loss.table.clone()
    loss(torch.randn(2, 3), labels[batch], index=batch)
    changed = (loss.table != before).any(dim=1)
    assert changed.nonzero().flatten().tolist() == [1, 4]


def test_role_keeps_four_large_tables_only_if_asked(monkeypatch):
    monkeypatch.setattr(losses.role, "MOST_BYTES", 4 * 4 * 8 * 3 - 1)
    labels = torch.zeros(8, 3, dtype=torch.int8)
    message = r"role would keep four tables for 8 samples, .* give light=True.* or light=False"
    with pytest.raises(ValueError, match=message):
        begun("role", labels, expected_positives=1.5)
    for light in (False, True):
        assert len(begun("role", labels, expected_positives=1.5, light=light).table) == 8
    loss = losses.create("role", expected_positives=1.5)
    with pytest.raises(ValueError, match="call begin"):
        loss.parameter_groups(1e-3)


# The base class


class LowestPrediction(losses.MemoryLoss):
    """A toy: unknown labels are weighted by the lowest prediction so far."""

    initial = 1.0

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.memory = Memory("float64")

    def update(self, rows: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        return torch.minimum(rows, torch.sigmoid(logits))

    def terms(self, s: Any, labels: Tensor, context: Any, rows: slice) -> Any:
        weight = torch.where(labels == 0, context[rows].to(s.z.dtype), 1.0)
        return curves.scaled(super().terms(s, labels, context, rows), weight)


def test_a_loss_with_memory_is_one_class():
    labels, index = torch.tensor([[1, 0], [0, -1], [0, 0]]), torch.tensor([2, 0])
    logits = torch.tensor([[0.5, -1.0], [2.0, 0.25]], dtype=torch.float64)
    loss = LowestPrediction()
    with pytest.raises(ValueError, match="needs the index"):
        loss(logits, labels[index])
    loss.begin(labels)
    first = loss(logits, labels[index], index=index)
    torch.testing.assert_close(first, losses.create("bce")(logits, labels[index]))
    expected = torch.ones(3, 2, dtype=torch.float64)
    expected[index] = torch.sigmoid(logits)
    torch.testing.assert_close(loss.memory.read(everyone(3)), expected)
    loss.eval()
    second = loss(logits, labels[index], index=index)
    assert second < first
    resumed = LowestPrediction().eval()
    resumed.load_state_dict(loss.state_dict())
    assert torch.equal(resumed(logits, labels[index], index=index), second)
    wrapped = losses.create("any-class", base=resumed, alpha=0.0).eval()
    torch.testing.assert_close(wrapped(logits, labels[index], index=index), second)


# All of them


def batches(epoch: int, labels: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    random = torch.Generator().manual_seed(epoch)
    order = torch.randperm(SAMPLES, generator=random)
    logits = torch.randn(SAMPLES, CLASSES, generator=random) * 2
    return [(logits[part], labels[part], part) for part in order.split(5)]


def some_labels() -> Tensor:
    random = torch.Generator().manual_seed(99)
    labels = torch.randint(-1, 2, (SAMPLES, CLASSES), generator=random, dtype=torch.int8)
    return labels * (torch.rand(labels.shape, generator=random) < 0.4)


def trained(loss: losses.Loss, epochs: int, stop: tuple[int, int] | None = None) -> list[Tensor]:
    """The values of every step up to `stop` (epoch, step), or of all."""
    values = []
    for epoch in range(epochs):
        loss.start_epoch(epoch, epochs)
        for step, (logits, labels, index) in enumerate(batches(epoch, some_labels())):
            if (epoch, step) == stop:
                return values
            values.append(loss(logits, labels, index=index))
        loss.merge()
        loss.end_epoch(
            torch.randn(SAMPLES, CLASSES, generator=torch.Generator().manual_seed(epoch))
        )
    return values


def rest(loss: losses.Loss, epochs: int, start: tuple[int, int]) -> list[Tensor]:
    values = []
    for epoch in range(start[0], epochs):
        loss.start_epoch(epoch, epochs)
        for step, (logits, labels, index) in enumerate(batches(epoch, some_labels())):
            if (epoch, step) >= start:
                values.append(loss(logits, labels, index=index))
        loss.merge()
        loss.end_epoch(
            torch.randn(SAMPLES, CLASSES, generator=torch.Generator().manual_seed(epoch))
        )
    return values


@pytest.mark.parametrize("begin_again", [True, False])
@pytest.mark.parametrize("name", EVERY_METHOD)
def test_a_run_resumed_in_the_middle_of_an_epoch_equals_one_without_a_stop(
    name: str, begin_again: bool
):
    settings, stop = EVERY_METHOD[name], (2, 1)
    whole = begun(name, some_labels(), **settings)
    expected = trained(whole, 4)
    stopped = begun(name, some_labels(), **settings)
    first = trained(stopped, 4, stop)
    state = copy.deepcopy(stopped.state_dict())
    assert all(isinstance(value, Tensor) for value in state.values()), "a checkpoint of tensors"
    resumed = losses.create(name, **settings)
    if begin_again:
        resumed.begin(some_labels())
    resumed.load_state_dict(state)
    assert torch.equal(torch.stack(first + rest(resumed, 4, stop)), torch.stack(expected))
    for key, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[key], value), key


@pytest.mark.parametrize("name", EVERY_METHOD)
def test_a_method_in_a_wrapper_remembers_the_same(name: str):
    settings = EVERY_METHOD[name]
    plain = begun(name, some_labels(), **settings)
    wrapped = begun("any-class", some_labels(), base={"name": name, **settings})
    assert wrapped.needs_index
    trained(plain, 3)
    trained(wrapped, 3)
    for key, value in plain.memory.state_dict().items():
        assert torch.equal(wrapped.base.memory.state_dict()[key], value), key
    index = everyone(SAMPLES)
    if plain.pseudo_labels(index) is not None:
        assert torch.equal(wrapped.pseudo_labels(index), plain.pseudo_labels(index))


@pytest.mark.parametrize("light", [True, False])
@pytest.mark.parametrize("name", EVERY_METHOD)
def test_missing_or_invalid_arguments_are_named(name: str, light: bool):
    settings = dict(EVERY_METHOD[name])
    if name == "role" and not light:
        settings = {"expected_positives": 1.5}
    logits, labels = torch.zeros(2, CLASSES), torch.zeros(2, CLASSES)
    loss = losses.create(name, **settings)
    with pytest.raises(ValueError, match=r"needs the index.*index=index"):
        loss(logits, labels)
    with pytest.raises(ValueError, match=r"call begin\(labels of the training set\)"):
        loss(logits, labels, index=everyone(2))
    loss.begin(some_labels())
    with pytest.raises(IndexError, match=r"index\[1\] is 12; expected 0 to 11"):
        loss(logits, labels, index=torch.tensor([0, SAMPLES]))
    with pytest.raises(IndexError, match=r"index\[0\] is -1"):
        loss(logits, labels, index=torch.tensor([-1, 0]))
    with pytest.raises(ValueError, match=r"index tensor of 2 entries.*got \(3,\)"):
        loss(logits, labels, index=everyone(3))
    with pytest.raises(ValueError, match="an integer per row"):
        loss(logits, labels, index=torch.tensor([0.0, 1.0]))
    with pytest.raises(ValueError, match=r"labels\[0, 0\].* is 2"):
        loss.begin(torch.full((2, CLASSES), 2))


@pytest.mark.parametrize("name", EVERY_METHOD)
def test_nothing_is_remembered_in_evaluation(name: str):
    loss = begun(name, some_labels(), **EVERY_METHOD[name])
    trained(loss, 2)
    before = copy.deepcopy(loss.state_dict())
    loss.eval()
    logits, labels, index = batches(7, some_labels())[0]
    loss(logits, labels, index=index)
    for key, value in loss.state_dict().items():
        assert torch.equal(before[key], value), key


@pytest.mark.parametrize(
    ("name", "per_entry"),
    [("em-apl", 2), ("ll-cp", 1 / 8), ("mime", 1 / 8), ("en", 2), ("smile", 2), ("role", 2)],
)
def test_bytes_at_the_size_of_open_images(name: str, per_entry: float):
    """All tables for 1,742,125 samples of 567 classes take at most 2.5 GB."""
    samples, classes = 48, 40
    loss = begun(name, torch.zeros(samples, classes), **EVERY_METHOD[name])
    kept = sum(t.nbytes for t in (*loss.buffers(), *loss.parameters()))
    per_class = kept - samples * (classes * per_entry + 1)
    assert 0 <= per_class <= 24 * classes
    assert 1_742_125 * (567 * per_entry + 1) + 24 * 567 < 2.5e9


def test_lowest_finds_the_exact_count_in_each_column():
    random = torch.Generator().manual_seed(1)
    values = torch.randint(0, 4, (50, 7), generator=random).double()
    counts = torch.tensor([0, 1, 5, 25, 49, 50, 13])
    rows = everyone(50)
    chosen = up_to(values, rows, *lowest(values, counts))
    assert torch.equal(chosen.sum(dim=0), counts)
    for column in range(7):
        by_hand = sorted(range(50), key=lambda row: (values[row, column], row))[: counts[column]]
        assert chosen[:, column].nonzero().flatten().tolist() == sorted(by_hand)
