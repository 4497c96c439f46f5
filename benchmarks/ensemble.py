"""auto on features beside what a user would pick instead: ranking, decisions, calibration.

    python benchmarks/ensemble.py DIR --sets yeast,birds --seeds 0,1,2 --jobs 2 --out table.jsonl
    python benchmarks/ensemble.py DIR --sets all --methods em,role,gr --rows auto --out table.jsonl
    python benchmarks/ensemble.py --table table.jsonl

DIR holds one NAME.npz per data set with X_train, Y_train, X_test, Y_test (complete 0/1 labels), and
optionally groups: training rows of one patient, which auto keeps in one fold.
Labels of the training rows are hidden: "one" shows one present label per row, "40" shows each
present label with probability 0.4. Every line of the output is one data set, setting, seed and row
of the table, with its test mAP and seconds; lines that are there already are not computed again.

Rows: `auto`; scikit-learn with unknown = absent; `assume negative`: the ensemble of auto, told that
unknown is absent; `complete`: the same ensemble on complete labels; `complete, linear`: its linear
member alone.

--methods adds published methods, trained on the same features: 1,500 steps, three learning rates,
of which the best *on test* is reported. This is more than a user can know.

Of larger sets, --most-rows training rows are drawn (2,500, others for every seed) and 3,000 test
rows, so that the whole table takes about 300 minutes of one core. The first seed of all sets comes
first, small sets before large ones.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from common import (
    add_task_options,
    group_by,
    key_of,
    print_header,
    print_row,
    read_lines,
    run_tasks,
    show_mean,
    start,
)
from halftruth import losses
from halftruth.metrics import mean_average_precision
from halftruth.models import build_feature_model, set_standardization
from halftruth.train.config import Config
from halftruth.train.devices import OneProcess
from halftruth.train.ensemble.fit_ensemble import fit_ensemble
from halftruth.train.inputs.batches import Features
from halftruth.train.trainer import Stage

COSTS = (0.001, 0.01, 0.1, 1.0, 10.0)
STEPS, RATES = 1500, (3e-4, 1e-3, 3e-3)
# Gradient boosting fits every class; where all of them would take longer, it is left out.
MOST_SECONDS = 60.0
MOST_ROWS, MOST_TEST_ROWS = 2500, 3000


def hide(truth: np.ndarray, setting: str, seed: int) -> np.ndarray:
    """Return incomplete labels: +1 shown, 0 unknown."""
    random = np.random.default_rng(1000 + seed)
    if setting == "complete":
        return np.where(truth > 0, 1, -1).astype(np.int8)
    if setting == "40":
        return ((truth > 0) & (random.random(truth.shape) < 0.4)).astype(np.int8)
    shown = np.zeros(truth.shape, np.int8)
    order = np.where(truth > 0, random.random(truth.shape), -1.0)
    rows = np.flatnonzero((truth > 0).any(axis=1))
    shown[rows, order.argmax(axis=1)[rows]] = 1
    return shown


# ---------------------------------------------------------------------- scikit-learn


def standardize(x: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return standardised features."""
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


def fit_logistic(x: np.ndarray, y: np.ndarray, test: np.ndarray, seed: int) -> np.ndarray:
    """Logistic regression, C by the mAP of three folds (unknown = absent)."""
    x, test = standardize(x, test)
    fold = np.random.default_rng(seed).integers(3, size=len(x))
    scores = []
    for cost in COSTS:
        found = []
        for part in range(3):
            weight, bias = solve_logistic(x[fold != part], y[fold != part], cost)
            found.append(mean_average_precision(x[fold == part] @ weight + bias, y[fold == part]))
        scores.append(np.mean(found))
    weight, bias = solve_logistic(x, y, COSTS[int(np.nanargmax(scores))])
    return test @ weight + bias


def fit_plain_logistic(x: np.ndarray, y: np.ndarray, test: np.ndarray, seed: int) -> np.ndarray:
    """Logistic regression with C = 0.01."""
    x, test = standardize(x, test)
    weight, bias = solve_logistic(x, y, 0.01)
    return test @ weight + bias


def fit_random_forest(
    x: np.ndarray, y: np.ndarray, test: np.ndarray, seed: int, kind: str = "RandomForestClassifier"
) -> np.ndarray:
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


def fit_boosting(x: np.ndarray, y: np.ndarray, test: np.ndarray, seed: int) -> np.ndarray | None:
    """HistGradientBoosting with its defaults, per class; None where it would take too long."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    out, started = np.zeros((len(test), y.shape[1])), time.perf_counter()
    order = np.argsort(-y.sum(axis=0), kind="stable")
    for done, k in enumerate(order):
        if not 0 < y[:, k].sum() < len(y):
            continue
        if done == 2 and (time.perf_counter() - started) / done * y.shape[1] > MOST_SECONDS:
            return None
        model = HistGradientBoostingClassifier(random_state=seed).fit(x, y[:, k])
        out[:, k] = model.decision_function(test)
    return out


SKLEARN: dict[str, Callable[..., np.ndarray | None]] = {
    "logistic regression": fit_logistic,
    "logistic, C = 0.01": fit_plain_logistic,
    "random forest": fit_random_forest,
    "extra trees": partial(fit_random_forest, kind="ExtraTreesClassifier"),
    "gradient boosting": fit_boosting,
    "kNN": fit_neighbours,
}
OWN = ("auto", "assume negative", "complete", "complete, linear")
ROWS = (*OWN, *SKLEARN)


# ---------------------------------------------------------------------- one line


def predict(model: torch.nn.Module, x: np.ndarray) -> np.ndarray:
    """Return the logits of rows."""
    with torch.no_grad():
        parts = torch.from_numpy(x).float().split(512)
        return torch.cat([model(part) for part in parts]).double().numpy()


def train_method(
    method: str,
    x: np.ndarray,
    shown: np.ndarray,
    test: np.ndarray,
    truth: np.ndarray,
    seed: int,
    steps: int = STEPS,
) -> float:
    """Return the best test mAP of a published method over the learning rates."""
    size = int(2 ** round(np.log2(min(max(len(x) / 50, 16), 128))))
    epochs = max(round(steps / np.ceil(len(x) / size)), 3)
    needed = losses.registry.signature(method)
    # Some methods are told the true number of positives per row, as in their papers.
    positives = float(max((truth > 0).sum(axis=1).mean(), 1.01))
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
        stage = Stage(
            name="all", model=model, inputs=Features(x), loss=losses.create(method, **options),
            labels=torch.from_numpy(shown), train_rows=np.arange(len(x)), val_rows=np.arange(0),
            config=config, accelerator=OneProcess(), epochs=epochs, lr=rate, head_lr=rate,
        )  # fmt: skip
        stage.run()
        model.load_state_dict(stage.best()["model"])
        found.append(mean_average_precision(predict(model.eval(), test), truth))
    return max(found)


def load_rows(
    folder: str, name: str, seed: int, most: int = MOST_ROWS
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Return features and complete labels of training and test rows, and groups of training rows.

    Of larger sets, `most` training rows and MOST_TEST_ROWS test rows are drawn by the seed.
    """
    with np.load(Path(folder) / f"{name}.npz") as file:
        parts = [file[k] for k in ("X_train", "Y_train", "X_test", "Y_test")]
        groups = file.get("groups")
    random = np.random.default_rng(100 + seed)
    for at, limit in ((0, most), (2, MOST_TEST_ROWS)):
        if len(parts[at]) > limit:
            rows = np.sort(random.choice(len(parts[at]), limit, replace=False))
            parts[at : at + 2] = [values[rows] for values in parts[at : at + 2]]
            if at == 0 and groups is not None:
                groups = groups[rows]
    return parts[0].astype(np.float32), parts[1], parts[2].astype(np.float32), parts[3], groups


def run(
    folder: str,
    name: str,
    setting: str,
    seed: int,
    row: str,
    most_rows: int = MOST_ROWS,
    steps: int = STEPS,
) -> dict:
    """Measure one row of the table on one data set, setting and seed."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    x, y, test, truth, groups = load_rows(folder, name, seed, most_rows)
    shown, started = hide(y, setting, seed), time.perf_counter()
    line: dict = {"set": name, "setting": setting, "seed": seed, "row": row, "rows": len(x)}
    if row in SKLEARN:
        scores = SKLEARN[row](x, (shown > 0).astype(int), test, seed)
    elif row in OWN:
        known = np.where(shown > 0, 1, -1).astype(np.int8) if row == "assume negative" else shown
        members = ["linear"] if row == "complete, linear" else None
        fitted = fit_ensemble(x, known, seed=seed, members=members, groups=groups)
        scores = predict(fitted.model, test)
        line["seconds"] = round(time.perf_counter() - started, 1)
    else:
        line["mAP"] = train_method(row, x, shown, test, truth, seed, steps)
        scores = None
    line.setdefault("seconds", round(time.perf_counter() - started, 1))
    if scores is not None:
        line["mAP"] = mean_average_precision(scores, truth)
    # A row that would take too long has no score.
    line.setdefault("mAP", None)
    return line


def guess_seconds(folder: str, name: str) -> float:
    """Return a rough cost, by which small sets start first."""
    with np.load(Path(folder) / f"{name}.npz") as file:
        (n, d), k = file["X_train"].shape, file["Y_train"].shape[1]
    n = min(n, MOST_ROWS)
    return 10 + n / 100 + n * d * min(k, 64) / 3e6


# ---------------------------------------------------------------------- all lines


def print_table(lines: list[dict]) -> None:
    """Print mean ± standard deviation over seeds, and the share of the gap.

    "lead": auto against the best other row (by its mean), over the seeds that both have. It counts
    as equal within one standard error of the difference, and is marked where auto is behind.
    """
    lines = [line for line in lines if line["mAP"] is not None]
    there = [line["row"] for line in lines]
    rows = [row for row in dict.fromkeys([*ROWS, *there]) if row in there]
    print_header("data (training rows)", *rows, "gap closed", "lead")
    shares, behind = [], []
    cases = group_by(lines, "set", "setting")
    for (name, setting), some in sorted(cases.items()):
        if setting == "complete":
            continue
        found: dict[str, dict[int, float]] = {}
        for line in [*cases.get((name, "complete"), []), *some]:
            found.setdefault(line["row"], {})[line["seed"]] = 100 * line["mAP"]
        gap, lead = "", ""
        if {"auto", "assume negative", "complete"} <= found.keys():
            ends = [found[row] for row in ("assume negative", "auto", "complete")]
            seeds = set.intersection(*map(set, ends))
            a, b, c = (np.mean([v[s] for s in seeds]) if seeds else 0 for v in ends)
            if c - a > 1:
                shares.append((b - a) / (c - a))
                gap = f"{shares[-1]:.0%}"
        others = {r: np.mean(list(v.values())) for r, v in found.items() if r not in OWN}
        best = max(others, key=lambda r: others[r], default="")
        # Differences per seed: all rows have the same hidden labels.
        seeds = found.get("auto", {}).keys() & found.get(best, {}).keys()
        if seeds:
            difference = np.array([found["auto"][s] - found[best][s] for s in seeds])
            error = difference.std(ddof=1) / len(seeds) ** 0.5 if len(seeds) > 1 else np.nan
            lead = f"{best}: {difference.mean():+.1f} ± {error:.1f}"
            if difference.mean() < 0:
                equal = difference.mean() >= -error
                lead += " (equal)" if equal else " **behind**"
                behind += [] if equal else [f"{name}, {setting}"]
        cells = [show_mean(found.get(row, {}).values()) for row in rows]
        print_row(f"{name} ({some[-1]['rows']:,}), {setting}", *cells, gap, lead)
    if shares:
        print(f"\nmean share of the gap closed: {np.mean(shares):.0%} of {len(shares)} cases")
    print(f"\nauto is behind by more than one standard error: {'; '.join(behind) or 'nowhere'}")


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default=".")
    parser.add_argument("--sets", default="all")
    parser.add_argument("--settings", default="one,40")
    parser.add_argument("--rows", default="all", help=f"some of: {'; '.join(ROWS)} (';' between)")
    parser.add_argument("--methods", default="", help="published methods, as em,role,gr")
    parser.add_argument("--steps", type=int, default=STEPS, help="of published methods")
    parser.add_argument("--most-rows", type=int, default=MOST_ROWS, help="training rows per set")
    parser.add_argument("--table", type=Path, help="print the table of a file of results")
    add_task_options(parser)
    given = parser.parse_args(argv)
    if given.table:
        return print_table(read_lines(given.table))
    sets = given.sets.split(",")
    if given.sets == "all":
        sets = sorted(path.stem for path in Path(given.folder).glob("*.npz"))
    rows = list(ROWS) if given.rows == "all" else [r.strip() for r in given.rows.split(";") if r]
    rows += [name for name in given.methods.split(",") if name]
    done = {key_of(line) for line in read_lines(given.out)}
    tasks = [
        (given.folder, name, setting, int(seed), row, given.most_rows, given.steps)
        for seed in given.seeds.split(",")
        for name in sets
        for row in rows
        for setting in (["complete"] if row in OWN[2:] else given.settings.split(","))
    ]
    tasks = [task for task in tasks if task[1:5] not in done]
    cost = {name: guess_seconds(given.folder, name) for name in sets}
    tasks.sort(key=lambda task: (task[3], cost[task[1]]))
    run_tasks(
        run, tasks, given,
        lambda line: "left out" if line["mAP"] is None else f"{100 * line['mAP']:.2f}",
    )  # fmt: skip


if __name__ == "__main__":
    rows = "complete, linear; logistic, C = 0.01; kNN; assume negative"
    start(
        main,
        f"DATA/tabular --sets yeast --settings 40 --seeds 0 --rows '{rows}' --methods em "
        "--steps 20 --out OUT/lines.jsonl",
        "--table OUT/lines.jsonl",
    )
