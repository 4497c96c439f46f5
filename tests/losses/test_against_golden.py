"""Agreement with the published code and with an independent implementation of the papers.

`peer` values were computed by the authors' code; `paper` values (gradients by central differences)
by a separate float64 implementation of the equations. Gradients are kept for the first rows only.
Where the published code guards its logarithms, so does the loss here, through `eps`.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cases import CASES, Golden
from cases.class_balanced import COUNTS
from halftruth import losses
from halftruth.losses.class_balanced import effective_weights
from halftruth.losses.lasd import balanced_lam_neg
from loss_batches import value_and_gradient

FOLDER = Path(__file__).parents[1] / "golden" / "losses"
CENTRAL_DIFFERENCES = {"rtol": 0, "atol": 1e-7}


@cache
def read(file: str) -> dict[str, torch.Tensor]:
    with np.load(FOLDER / f"{file}.npz") as stored:
        return {key: torch.from_numpy(stored[key]) for key in stored.files}


def quantities(golden: Golden) -> dict[str, torch.Tensor]:
    start = golden.variant + "/"
    return {k[len(start) :]: v for k, v in read(golden.file).items() if k.startswith(start)}


def build(name: str, golden: Golden, reduction: str) -> losses.Loss:
    case = CASES[name](**golden.settings)
    options: dict[str, Any] = {"reduction": reduction}
    if golden.eps:
        options["eps"] = golden.eps
    return case.build(**options)


ALL = [(name, golden) for name in sorted(CASES) for golden in CASES[name].golden]


@pytest.mark.parametrize(
    ("name", "golden"), ALL, ids=[f"{name}: {g.file}/{g.variant}" for name, g in ALL]
)
def test_reference_values(name: str, golden: Golden):
    logits, labels = read("inputs")["logits"], read("inputs")[golden.labels]
    left = quantities(golden)
    assert left

    def check(key: str, got: torch.Tensor, **tolerance: float) -> None:
        if key in left:
            want = left.pop(key)
            scale = golden.tolerance * want.abs().max().item()
            tolerance = tolerance or {"rtol": golden.tolerance, "atol": scale}
            torch.testing.assert_close(got[: len(want)] if want.dim() else got, want, **tolerance)

    value, gradient = value_and_gradient(build(name, golden, golden.reduction), logits, labels)
    check("loss", value)
    check("grad", gradient)
    values, slopes = value_and_gradient(build(name, golden, "none"), logits, labels)
    check("loss_matrix", values)
    check("grad_elementwise", slopes, **CENTRAL_DIFFERENCES)
    check("per_sample_total", values)
    check("grad_per_sample_total", slopes, **CENTRAL_DIFFERENCES)
    for reduction in ("mean", "sum", "batch"):
        check(f"loss_{reduction}", build(name, golden, reduction)(logits, labels))
    left.pop("p_a", None)  # in the test of its own identity
    assert not left, f"reference values nobody looked at: {sorted(left)}"


def test_every_method_of_the_papers_has_reference_values():
    without = {name for name in CASES if not CASES[name].golden}
    series = {"em-apl", "en", "ll-cp", "mime", "role", "smile"}
    # Two trainings with published losses; the paper has no value of its own.
    own = {"em-teacher", "pseudo-label", "scl", "swan"}
    # Compared methods of other papers, and the general loss: slow references and identities only.
    own |= {"csl", "gce", "lagc", "mse", "sce", "taylor", "unified"}
    assert without == {"consistency", *series, *own}, "views: below; series: test_memory_methods"


def test_consistency_over_three_views():
    stored = read("consistency")
    rows = len(stored["logits_aug1"])
    views = [read("inputs")["logits"][:rows], stored["logits_aug1"], stored["logits_aug2"]]
    logits, labels = torch.stack(views), read("inputs")["single"][:rows]

    def consistency_alone(reduction: str) -> tuple[torch.Tensor, torch.Tensor]:
        base = losses.create("bce", unknown="ignore")
        loss = losses.create("consistency", base=base, weight=1.0, reduction=reduction)
        return value_and_gradient(loss, logits, torch.zeros_like(labels))

    value, gradient = consistency_alone("sum")
    torch.testing.assert_close(value, stored["phi_per_sample"].sum(), rtol=1e-12, atol=0)
    for got, key in zip(
        gradient, ("grad_wrt_logits_elementwise", "grad_wrt_aug1", "grad_wrt_aug2"), strict=True
    ):
        torch.testing.assert_close(got, stored[key], **CENTRAL_DIFFERENCES)


@pytest.mark.parametrize("peer_rounding", [True, False])
def test_counts_of_the_large_loss_code(peer_rounding: bool):
    """Where its running subtraction counts one entry more than the paper's formula."""
    stored = read("ll")["count(B,K,delta,epoch,peer,exact)"].tolist()
    assert len(stored) == 93
    for batch, classes, delta, epoch, peer, exact in stored:
        loss = losses.create("ll-r", delta=delta, peer_rounding=peer_rounding)
        loss.start_epoch(int(epoch) - 1, int(epoch))
        assert loss.count(int(batch * classes)) == (peer if peer_rounding else exact)


@pytest.mark.parametrize("data", ["pascal", "coco", "cub"])
@pytest.mark.parametrize("schedule", ["code", "paper"])
def test_schedule_of_gr(data: str, schedule: str):
    stored = read("gr")[f"{data}/schedule {schedule}"]
    spans = {} if data == "pascal" else {"w": (0.0, 10.0), "b": (-2.0, -8.0)}
    loss = losses.create("gr", schedule=schedule, **spans)
    epochs = len(stored) if schedule == "code" else len(stored) - 1
    for epoch in range(epochs):
        loss.start_epoch(epoch, epochs)
        got = [loss.w, loss.b, loss.mu, loss.sigma]
        assert got == pytest.approx(stored[epoch, 1:].tolist(), abs=1e-12)
    if schedule == "paper":
        loss.go_to(1.0)
        got = [loss.w, loss.b, loss.mu, loss.sigma]
        assert got == pytest.approx(stored[-1, 1:].tolist(), abs=1e-12)


@pytest.mark.parametrize("beta", ["0.9", "0.99", "0.999", "0.9999"])
def test_effective_numbers(beta: str):
    stored = read("class_balanced")
    counts = stored["counts"]
    for key, given in {
        "classes only": counts,
        "with empty rows": torch.cat([counts, torch.tensor([10.0])]),
    }.items():
        got = effective_weights(given, float(beta))
        # 1 - beta^n of the reference cancels for beta close to 1.
        torch.testing.assert_close(got, stored[f"{key}/{beta}"], rtol=1e-11, atol=0)


def test_class_weights_of_the_any_class_code():
    weights = losses.create("class-balanced", counts=COUNTS, negatives=500).weights
    torch.testing.assert_close(
        weights, read("class_balanced")["any-class/weights"], rtol=1e-6, atol=0
    )


def test_lam_neg_of_theorem_5_4():
    """With the average number of positives of VOC, COCO, NUS and CUB."""
    sets = [(20, 1.46, 0.1), (80, 2.94, 0.03), (81, 1.89, 0.015), (312, 31.4, 0.005)]
    got = [balanced_lam_neg(*numbers) for numbers in sets]
    assert got == pytest.approx(read("lasd")["lambda_minus"].tolist(), rel=1e-12)
