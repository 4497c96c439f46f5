"""Draw the figures of docs/papers.md: python benchmarks/paper_figures.py docs/images/papers

One figure per paper: the gradient of a label that is not annotated, over the predicted probability
(paper 000: the probability that any class is present).
"""

from pathlib import Path

import numpy as np
import pandas as pd

from common import start
from halftruth.plots.loss_figures import loss_curves
from halftruth.plots.style import Drawing, line_look, panels, save, styled

# File, title, and per curve: its label, the method, the place in the schedule.
GRADIENTS = {
    "001-em": ("EM: unknown labels are left undecided", [
        ("assume negative", "bce", 0.0),
        ("EM, α = 0.2", "em:alpha=0.2", 0.0),
        ("WAN, 1/(K−1), 20 classes", "wan", 0.0),
    ]),
    "002-gr": ("GR: soft labels that change during training", [
        ("assume negative", "bce", 0.0),
        ("GR, first epoch", "gr:w=[0,10],b=[-2,-8]", 0.0),
        ("GR, half way", "gr:w=[0,10],b=[-2,-8]", 0.5),
        ("GR, end", "gr:w=[0,10],b=[-2,-8]", 1.0),
    ]),
    "003-hill": ("Hill and SPLC: do not punish confident predictions", [
        ("assume negative", "bce", 0.0),
        ("squared error", "mse", 0.0),
        ("Hill", "hill", 0.0),
        ("SPLC, τ = 0.6", "splc:start=0", 0.0),
    ]),
    "004-lasd": ("LASD: small weights, and weak positives above τ", [
        ("assume negative", "bce", 0.0),
        ("LAS, 1/(K−1), 20 classes", "las", 0.0),
        ("LASD, λ₊ = 0.1, τ = 0.9", "lasd:expected_positives=1.46", 0.0),
    ]),
}  # fmt: skip


@styled
def draw_gradients(name: str) -> Drawing:
    """Draw the gradient of an unknown label for some methods."""
    title, curves = GRADIENTS[name]
    figure, grid = panels(1, 1, width=4.6, height=3)
    axes, tables = grid[0, 0], []
    for number, (label, method, at) in enumerate(curves):
        table = loss_curves([method], [at], points=99)
        table = table[table["label"] == "UNKNOWN"].assign(curve=label)
        axes.plot(table["p"], table["gradient"], label=label, **line_look(number))
        tables.append(table[["curve", "p", "gradient"]])
    axes.axhline(0, color="black", linewidth=0.6)
    axes.set_xlabel("predicted probability of a label that is not annotated")
    axes.set_ylabel("gradient (positive: pushed down)")
    axes.set_title(title)
    axes.legend()
    return Drawing(name, figure, pd.concat(tables, ignore_index=True))


@styled
def draw_any_class() -> Drawing:
    """Draw the probability of "any class" while one of 14 classes is predicted, by lambda."""
    figure, grid = panels(1, 1, width=4.6, height=3)
    axes, tables, classes, low = grid[0, 0], [], 14, 0.05
    p = np.linspace(0.02, 0.98, 97)
    for number, lam in enumerate((0.0, 0.02, 0.1, 1.0)):
        weight = 1 + lam * (classes - 1)
        rest = lam * (classes - 1) * np.log(low / (1 - low))
        any_class = 1 / (1 + np.exp(-(np.log(p / (1 - p)) + rest) / weight))
        axes.plot(p, any_class, label=f"λ = {lam:g}", **line_look(number))
        tables.append(pd.DataFrame({"lam": lam, "p": p, "any": any_class}))
    axes.set_xlabel("probability of the present class (13 others at 0.05)")
    axes.set_ylabel("probability that any class is present")
    axes.set_title("Any-class presence: one more decision per row")
    axes.legend()
    return Drawing("000-any-class", figure, pd.concat(tables, ignore_index=True))


def main(argv: list[str]) -> None:
    folder = Path(argv[0])
    folder.mkdir(parents=True, exist_ok=True)
    for drawing in [draw_any_class(), *map(draw_gradients, GRADIENTS)]:
        for path in save(drawing, folder / f"{drawing.name}.svg"):
            # The numbers follow from the formulas: only the figure is kept.
            if path.suffix == ".csv":
                path.unlink()
        print(f"{folder}/{drawing.name}.svg")


if __name__ == "__main__":
    start(main, "OUT")
