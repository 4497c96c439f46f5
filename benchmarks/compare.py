"""`auto` on features beside what a user would pick instead: test mAP with incomplete labels.

    python benchmarks/compare.py DATA --sets yeast,birds --jobs 2 --out table.jsonl
    python benchmarks/compare.py DATA --sets yeast --rows auto,logistic,em,role --out table.jsonl
    python benchmarks/compare.py DATA --sets voc --settings one,size,rarest --boxes VOC

Rows: `auto`; models of scikit-learn with unknown = absent; `assume-negative`: the ensemble of auto,
told that unknown is absent; `complete`: the same ensemble on complete labels; `auto-100-complete`:
100 random training rows have all their labels. Any other row is a published method: a linear head,
1,500 steps, three learning rates, of which the best *on test* is reported, which is more than a
user can know. At most 2,500 training rows and 3,000 test rows are drawn, others for every seed.

`--boxes` is a folder with labels.csv and boxes.npz (area and distance from the centre of each
class, per row of labels.csv), for settings by the size or place of objects in VOC 2012. `--fits`
keeps the scores of `auto` for decisions.py.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import Rows, add_task_options, hide, load_rows, predict, print_means, run_grid, start
from decisions import fit_scores
from halftruth import losses
from halftruth.bench import datasets
from halftruth.bench.label_settings import needs_measure
from halftruth.metrics import mean_average_precision
from halftruth.models import build_feature_model, set_standardization
from halftruth.train.config import Config
from halftruth.train.devices import OneProcess
from halftruth.train.ensemble.fit_ensemble import fit_ensemble
from halftruth.train.inputs.batches import Features
from halftruth.train.trainer import Trainer

COSTS = (0.001, 0.01, 0.1, 1.0, 10.0)
STEPS, RATES = 1500, (3e-4, 1e-3, 3e-3)
MOST_ROWS, MOST_TEST_ROWS = 2500, 3000


# ---------------------------------------------------------------------- scikit-learn


def standardize(x: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.preprocessing import StandardScaler

    scale = StandardScaler().fit(x)
    return scale.transform(x), scale.transform(test)


def solve_logistic(x: np.ndarray, y: np.ndarray, cost: float) -> tuple[np.ndarray, np.ndarray]:
    """Return weights and biases of LogisticRegression(C=cost) for all classes at once."""
    a, target = torch.from_numpy(x).float(), torch.from_numpy(y).float()
    weight = torch.zeros(a.shape[1], target.shape[1], requires_grad=True)
    bias = torch.logit(target.mean(dim=0), eps=1e-4).requires_grad_()
    solver = torch.optim.LBFGS([weight, bias], max_iter=300, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        solver.zero_grad()
        logits = torch.addmm(bias, a, weight)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="sum")
        loss = (loss + weight.square().sum() / (2 * cost)) / len(a)
        loss.backward()
        return loss

    solver.step(closure)
    return weight.detach().numpy(), bias.detach().numpy()


def fit_logistic(
    x: np.ndarray, y: np.ndarray, test: np.ndarray, seed: int, costs: tuple[float, ...] = COSTS
) -> np.ndarray:
    """Logistic regression, C by the mAP of three folds (unknown = absent)."""
    x, test = standardize(x, test)
    fold = np.random.default_rng(seed).integers(3, size=len(x))
    scores = [0.0] * len(costs)
    for at, cost in enumerate(costs if len(costs) > 1 else ()):
        for part in range(3):
            weight, bias = solve_logistic(x[fold != part], y[fold != part], cost)
            scores[at] += mean_average_precision(x[fold == part] @ weight + bias, y[fold == part])
    weight, bias = solve_logistic(x, y, costs[int(np.nanargmax(scores))])
    return test @ weight + bias


def fit_forest(x: np.ndarray, y: np.ndarray, test: np.ndarray, seed: int, kind: str) -> np.ndarray:
    """300 trees with the defaults of scikit-learn; 100 with more than 60 classes."""
    from sklearn import ensemble as forests

    trees = 100 if y.shape[1] > 60 else 300
    return _stack(getattr(forests, kind)(trees, random_state=seed).fit(x, y).predict_proba(test))


def fit_neighbours(x: np.ndarray, y: np.ndarray, test: np.ndarray, seed: int) -> np.ndarray:
    """20 nearest neighbours on standardised features."""
    from sklearn.neighbors import KNeighborsClassifier

    x, test = standardize(x, test)
    return _stack(KNeighborsClassifier(20).fit(x, y).predict_proba(test))


def _stack(parts: list[np.ndarray]) -> np.ndarray:
    return np.stack([p[:, 1] if p.shape[1] > 1 else 0 * p[:, 0] for p in parts], axis=1)


def fit_boosting(x: np.ndarray, y: np.ndarray, test: np.ndarray, seed: int) -> np.ndarray:
    """HistGradientBoosting with its defaults, one model per class."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    out, counts = np.zeros((len(test), y.shape[1])), y.sum(axis=0)
    for k in np.flatnonzero((counts > 0) & (counts < len(y))):
        model = HistGradientBoostingClassifier(random_state=seed).fit(x, y[:, k])
        out[:, k] = model.decision_function(test)
    return out


SKLEARN: dict[str, Callable[..., np.ndarray]] = {
    "logistic": fit_logistic,
    "logistic-0.01": partial(fit_logistic, costs=(0.01,)),
    "forest": partial(fit_forest, kind="RandomForestClassifier"),
    "extra-trees": partial(fit_forest, kind="ExtraTreesClassifier"),
    "kNN": fit_neighbours,
    "boosting": fit_boosting,
}
ROWS = ("auto", *SKLEARN, "assume-negative", "complete")


# ---------------------------------------------------------------------- one line


def train_method(method: str, data: Rows, shown: np.ndarray, seed: int, steps: int) -> float:
    """Return the best test mAP of a published method over the learning rates."""
    x = data.x
    size = int(2 ** round(np.log2(min(max(len(x) / 50, 16), 128))))
    epochs = max(round(steps / np.ceil(len(x) / size)), 3)
    # Some methods are told the true number of positives per row, as in their papers.
    positives = float(max(data.truth.sum(axis=1).mean(), 1.01))
    needed = losses.registry.signature(method)
    options = {"expected_positives": positives} if "expected_positives" in needed else {}
    found = []
    for rate in RATES:
        torch.manual_seed(seed)
        model = build_feature_model(x.shape[1], shown.shape[1])
        set_standardization(model, torch.from_numpy(x))
        config = Config(
            method=method, options=options, features=["x"], head_lr=rate, epochs=epochs,
            batch_size=size, select="last", ema=0.99, seed=seed,
        )  # fmt: skip
        stage = Trainer(
            name="all", model=model, inputs=Features(x), loss=losses.create(method, **options),
            labels=torch.from_numpy(shown), train_rows=np.arange(len(x)), val_rows=np.arange(0),
            config=config, accelerator=OneProcess(), epochs=epochs, lr=rate, head_lr=rate,
        )  # fmt: skip
        stage.run()
        model.load_state_dict(stage.best()["model"])
        found.append(mean_average_precision(predict(model.eval(), data.test), data.truth))
    return max(found)


def load_measures(folder: Path, data: Rows) -> dict[str, np.ndarray]:
    """Return area and distance of the training rows of VOC 2012."""
    read = datasets.load(
        "table", folder / "labels.csv", val=0, reading={"drop_columns": ["observed"]}
    )
    rows = read.splits.train[data.places]
    if not np.array_equal(read.truth[rows] > 0, data.y > 0):
        raise SystemExit(f"the training rows of the data set are not those of {folder}/labels.csv")
    with np.load(folder / "boxes.npz") as file:
        if tuple(file["classes"]) != read.classes:
            raise SystemExit("the classes of boxes.npz are not those of labels.csv")
        return {name: file[name][rows].astype(float) for name in ("area", "centre_distance")}


def run(given: Any, name: str, setting: str, seed: int, row: str) -> dict:
    """Measure one row of the table on one data set, setting and seed."""
    data = load_rows(given.folder, name, seed, given.most_rows, MOST_TEST_ROWS)
    boxes = setting != "complete" and needs_measure(setting)
    shown = hide(data.y, setting, seed, load_measures(given.boxes, data) if boxes else None)
    if row in SKLEARN:
        scores = SKLEARN[row](data.x, (shown > 0).astype(int), data.test, seed)
    elif row == "auto":
        found = fit_scores(data, shown, seed)
        scores = found["test"].astype(float)
        if given.fits:
            given.fits.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(given.fits / f"{name}-{setting}-{seed}.npz", **found)
    elif row in ROWS or row.startswith("auto-"):
        if row == "assume-negative":
            shown = np.where(shown > 0, 1, -1).astype(np.int8)
        elif row.startswith("auto-"):
            count = min(int(row.split("-")[1]), len(shown))
            rows = np.random.default_rng([seed, 100]).choice(len(shown), count, replace=False)
            shown[rows] = hide(data.y, "complete", seed)[rows]
        fitted = fit_ensemble(data.x, shown, seed=seed, groups=data.groups)
        scores = predict(fitted.model, data.test)
    else:
        return {"mAP": train_method(row, data, shown, seed, given.steps)}
    return {"mAP": mean_average_precision(scores, data.truth)}


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_task_options(parser, sets="yeast,scene,emotions,birds", settings="one,40", rows=ROWS)
    parser.add_argument("--steps", type=int, default=STEPS, help="of published methods")
    parser.add_argument("--most-rows", type=int, default=MOST_ROWS, help="training rows per set")
    parser.add_argument("--boxes", type=Path, help="folder with labels.csv and boxes.npz of VOC")
    parser.add_argument("--fits", type=Path, help="folder that keeps the scores of auto")
    given = parser.parse_args(argv)
    print_means(run_grid(run, given, "mAP", once=("complete",)), "mAP", rows=ROWS)


if __name__ == "__main__":
    start(
        main,
        "DATA/tabular --sets voc --settings 40,size --seeds 0 --boxes DATA/voc2012 --steps 20 "
        "--rows auto,auto-9-complete,logistic-0.01,kNN,em,assume-negative --out OUT/lines.jsonl",
    )
