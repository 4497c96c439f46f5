"""Figures of losses: curves equal the losses, and texts can be read."""

import numpy as np
import pandas as pd
import pytest
import torch
from legible import assert_legible

from halftruth import losses
from halftruth.plots.loss_figures import (
    draw_losses,
    draw_means,
    draw_surface,
    likelihood_surfaces,
    loss_curves,
    mean_surfaces,
    parse_method,
)
from halftruth.plots.style import save

pytestmark = pytest.mark.filterwarnings("ignore:.*end_epoch")

NEEDED = {
    "epr": "expected_positives=1.5",
    "role": "expected_positives=1.5",
    "en": "expected_positives=1.5",
    "pseudo-label": "tau=0.6",
}


def with_arguments(name: str) -> str:
    return f"{name}:{NEEDED[name]}" if name in NEEDED else name


@pytest.mark.parametrize("name", losses.names())
def test_every_method_has_finite_curves(name):
    curves = loss_curves([with_arguments(name)], [0, 1], points=9)
    assert np.isfinite(curves[["loss", "gradient"]].to_numpy()).all()
    assert set(curves["label"]) == {"PRESENT", "ABSENT", "UNKNOWN"}


@pytest.mark.filterwarnings("ignore:.*look like probabilities")
@pytest.mark.parametrize("method", ["hill", "asl", "gr", "splc", "em", "wan"])
def test_gradients_are_those_of_autograd(method):
    """Compare with the gradient of one logit among others, through the public loss."""
    curves = loss_curves([method], [0.0], points=7, classes=4)
    for label, code in {"PRESENT": 1, "UNKNOWN": 0, "ABSENT": -1}.items():
        part = curves[curves["label"] == label]
        for p, value, gradient in part[["p", "loss", "gradient"]].itertuples(index=False):
            loss = losses.create(method, reduction="sum")
            loss.start_epoch(0, 10)
            logits = torch.tensor([[np.log(p / (1 - p)), 0.0, 0.0, 0.0]], dtype=torch.float64)
            logits.requires_grad_()
            labels = torch.tensor([[code, 0, 0, 0]], dtype=torch.int8)
            whole = loss(logits, labels)
            (slope,) = torch.autograd.grad(whole, logits)
            rest = loss(logits[:, 1:], labels[:, 1:]) if method != "wan" else None
            assert gradient == pytest.approx(slope[0, 0].item(), abs=1e-12)
            if rest is not None:
                assert value == pytest.approx((whole - rest).item(), abs=1e-12)


def test_curves_by_hand():
    curves = loss_curves(["bce", "hill"], points=3).set_index(["method", "label", "p"])
    assert curves.loc[("bce", "PRESENT", 0.5), "loss"] == pytest.approx(np.log(2))
    assert curves.loc[("hill", "UNKNOWN", 0.5), "loss"] == pytest.approx((1.5 - 0.5) * 0.25)
    assert curves.loc[("hill", "ABSENT", 0.5), "gradient"] == pytest.approx(1.5 * 0.25 * 0.5)


def test_gr_reaches_the_end_of_its_schedule():
    curves = loss_curves(["gr"], [0, 0.5, 1], points=3).query("label == 'UNKNOWN' and p == 0.5")
    expected = []
    for place in (0, 0.5, 1):
        k = 1 / (1 + np.exp(-(2 * place * 0.5 - 2)))
        mu, sigma = 0.5 + 0.3 * place, 2 - 1.5 * place
        v = np.exp(-((0.5 - mu) ** 2) / (2 * sigma**2))
        expected.append(v * ((1 - k) * 0.25 - k * 0.5**0.01 * 0.5))
    assert curves["gradient"].to_numpy() == pytest.approx(expected, rel=1e-6)


def test_curves_that_do_not_change_with_the_schedule_are_listed_once():
    curves = loss_curves(["bce", "splc"], [0, 0.5, 1], points=5)
    assert curves.groupby("method")["at"].unique().map(list).to_dict() == {
        "bce": [0.0],
        "splc": [0.0, 0.5],
    }


def test_methods_take_arguments():
    assert parse_method("asl:gamma_neg=2,margin=0.2") == ("asl", {"gamma_neg": 2, "margin": 0.2})
    assert parse_method("las:lam=1e-2") == ("las", {"lam": 0.01})
    sharp, blunt = (loss_curves([f"asl:gamma_neg={g}"], points=3)["loss"] for g in (4, 1))
    assert not sharp.equals(blunt)


@pytest.mark.parametrize(
    ("methods", "at", "message"),
    [
        (["hil"], [0], "did you mean 'hill'"),
        (["asl:gama=2"], [0], "takes no argument 'gama'"),
        (["asl:gamma_neg"], [0], "expected name:key=value"),
        (["asl:margin=[1"], [0], "cannot be read as YAML"),
        (["gr"], [1.2], "from 0 to 1"),
        (["gr"], [], "from 0 to 1"),
    ],
)
def test_wrong_arguments_are_errors(methods, at, message):
    with pytest.raises((ValueError, TypeError), match=message):
        loss_curves(methods, at)


@pytest.mark.parametrize("methods", [["hill"], losses.names("[a-h]*")])
def test_texts_of_the_loss_figure_can_be_read(methods):
    assert_legible(draw_losses([with_arguments(m) for m in methods], [0, 0.5, 1], points=19).figure)


def test_svg_png_and_numbers_are_written(tmp_path):
    drawing = draw_losses(["hill"], points=19)
    paths = save(drawing, tmp_path / "deep" / "losses")
    assert [path.suffix for path in paths] == [".svg", ".png", ".csv"]
    assert paths[0].read_text(encoding="utf-8").startswith("<?xml")
    assert paths[1].read_bytes().startswith(b"\x89PNG")
    written = pd.read_csv(paths[2])
    expected = loss_curves(["hill"], points=19)
    pd.testing.assert_frame_equal(written, expected, rtol=1e-5, check_dtype=False)
    again = save(drawing, tmp_path / "again.pdf")
    assert [path.name for path in again] == ["again.pdf", "again.csv"]
    assert again[0].read_bytes().startswith(b"%PDF")


def test_means_by_hand():
    table = mean_surfaces(10)
    at = table[np.isclose(table["p1"], 0.25) & np.isclose(table["p2"], 0.05)]
    found = at.set_index("surface")["value"]
    assert found["product"] == pytest.approx(0.0125)
    assert found["geometric mean"] == pytest.approx(0.0125**0.5)
    assert found["normalised product"] == pytest.approx(0.0125 / (0.0125 + 0.75 * 0.95))
    root = (0.75 * 0.95) ** 0.5
    assert found["normalised geometric mean"] == pytest.approx(0.0125**0.5 / (0.0125**0.5 + root))


def test_the_any_class_surface_is_equation_4():
    """Paper 000: p_a is the normalised geometric mean, weighted by 1 and lam."""
    lam = 0.05
    table = likelihood_surfaces(f"any-class:lam={lam}", points=10)
    p1, p2 = 0.25, 0.65
    at = table[np.isclose(table["p1"], p1) & np.isclose(table["p2"], p2)]
    found = at.set_index(["y1", "y2", "surface"])["likelihood"]
    assert found[1, 1, "BCE"] == pytest.approx(p1 * p2)
    assert found[0, 1, "BCE"] == pytest.approx((1 - p1) * p2)
    there, rest = (p1 * p2) ** 0.5, ((1 - p1) * (1 - p2)) ** 0.5
    assert found[1, 1, "added"] == pytest.approx(there / (there + rest))
    weight = 1 / (1 + lam)
    there = (p1**lam * p2) ** weight
    rest = ((1 - p1) ** lam * (1 - p2)) ** weight
    assert found[0, 1, "added"] == pytest.approx(there / (there + rest))
    whole = found[0, 1, "BCE"] * found[0, 1, "added"]
    assert found[0, 1, "any-class"] == pytest.approx(whole)


@pytest.mark.parametrize("method", ["any-class:lam=0.05", "hill"])
def test_surfaces_can_be_read(method):
    assert_legible(draw_surface(method, points=12).figure)


def test_the_means_can_be_read():
    assert_legible(draw_means(points=12).figure)


def test_a_figure_of_a_paper_has_its_panels_and_names():
    methods = {"AN": "bce", "GR": "gr"}
    drawing = draw_losses(methods, [0, 1], labels=["UNKNOWN"], show=["gradient"], points=9)
    (axes,) = drawing.figure.axes
    assert (axes.get_title(), axes.get_ylabel()) == ("UNKNOWN", "gradient dL/dz")
    assert [line.get_label() for line in axes.get_lines()[:3]] == ["AN", "GR at 0", "GR at 1"]
    assert_legible(drawing.figure)
