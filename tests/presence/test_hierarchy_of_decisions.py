"""P(child) is at most P(parent), and where a child is predicted, so are its parents."""

import numpy as np
import pandas as pd
import pytest
from sklearn.isotonic import IsotonicRegression

import halftruth
from halftruth.audit.candidates import missing_labels
from halftruth.presence.decisions import decide
from halftruth.presence.probabilities import Probabilities, fit_probabilities
from halftruth.presence.solvers import project_on_hierarchy, sigmoid
from halftruth.train.results.evaluate import evaluate
from halftruth.train.results.predictions import decide_again

# Two kinds of animals, and a class with two parents.
CLASSES = ["animal", "bird", "duck", "swimmer", "stone"]
PARENTS = [[1, 0], [2, 1], [2, 3], [2, 0]]
RULES = ["f1", "macro-f1", "precision=0.7", "recall=0.8", "top=2", "count", "threshold=0.4"]


def make_rows(seed: int, rows: int = 600) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Complete labels, shown labels (40 %, with all that follows), and logits."""
    random = np.random.default_rng(seed)
    truth = random.random((rows, 5)) < [0.2, 0.2, 0.2, 0.2, 0.3]
    shown = truth & (random.random(truth.shape) < 0.4)
    for values in (truth, shown):
        values[:, [1, 3]] |= values[:, [2]]
        values[:, 0] |= values[:, 1]
    shown &= truth
    return truth, shown.astype(np.int8), 2 * truth - 1 + random.normal(size=truth.shape)


def is_closed(values: np.ndarray) -> bool:
    return all((values[:, child] <= values[:, parent]).all() for child, parent in PARENTS)


def test_a_chain_is_isotonic_regression():
    values = np.random.default_rng(0).random((50, 6))
    found = project_on_hierarchy(values, [[k, k + 1] for k in range(5)])
    exact = [IsotonicRegression().fit_transform(np.arange(6), row) for row in values]
    np.testing.assert_allclose(found, exact, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_that_keeps_the_hierarchy_is_nearer(seed):
    random = np.random.default_rng(seed)
    values = random.random((40, 5))
    found = project_on_hierarchy(values, PARENTS)
    assert is_closed(found)
    np.testing.assert_allclose(project_on_hierarchy(found, PARENTS), found, atol=1e-8)
    distance = ((found - values) ** 2).sum(axis=1)
    for _ in range(50):
        other = project_on_hierarchy(found + 0.05 * random.normal(size=found.shape), PARENTS)
        assert (((other - values) ** 2).sum(axis=1) >= distance - 1e-5).all()


@pytest.mark.parametrize("rule", RULES)
def test_decisions_are_closed(rule):
    _, shown, z = make_rows(0)
    fitted = fit_probabilities(shown, z, parents=PARENTS)
    p = fitted(z)
    assert is_closed(p)
    assert is_closed(decide(p, shown.sum(axis=0), rule, fitted)(p))
    # The same without the hierarchy, but for a few labels.
    free = fit_probabilities(shown, z)
    other = decide(free(z), shown.sum(axis=0), rule, free)(free(z))
    assert (decide(p, shown.sum(axis=0), rule, fitted)(p) != other).mean() < 0.15
    assert p.mean(axis=0) == pytest.approx(fitted.prevalence[:, 0])
    present = fitted.infer(shown, z)
    assert all(is_closed(one) for one in (present.middle, present.low, present.high))
    assert (present.middle[shown > 0] == 1).all()
    again = Probabilities.from_dict(fitted.to_dict())
    np.testing.assert_array_equal(again(z), p)


def test_an_audit_lists_parents_first():
    _, shown, z = make_rows(1)
    table = missing_labels(shown, sigmoid(z), classes=CLASSES, parents=PARENTS)
    p = table.pivot(index="row", columns="class", values="probability")
    assert (p["duck"].fillna(0) <= p["bird"].fillna(1) + 1e-9).all()


def test_a_run_keeps_the_hierarchy_of_its_labels(tmp_path):
    _, shown, z = make_rows(2)
    pd.DataFrame(shown, columns=CLASSES).to_csv(tmp_path / "labels.csv", index=False)
    pairs = [(CLASSES[child], CLASSES[parent]) for child, parent in PARENTS[:3]]
    pd.DataFrame(pairs, columns=["child", "parent"]).to_csv(tmp_path / "tree.csv", index=False)
    np.save(tmp_path / "x.npy", z.astype(np.float32))
    halftruth.fit(
        tmp_path / "labels.csv", features=tmp_path / "x.npy", method="wan", epochs=5, head_lr=0.05,
        out=tmp_path / "run", hierarchy=tmp_path / "tree.csv", device="cpu", quiet=True,
        report=False,
    )  # fmt: skip
    # The run knows the hierarchy without the file.
    (tmp_path / "tree.csv").rename(tmp_path / "away.csv")
    run = halftruth.load(tmp_path / "run")
    table = run.predict(tmp_path / "x.npy")
    assert is_closed(table[CLASSES].to_numpy())
    for found in (table, run.predict(tmp_path / "x.npy", decide="precision=0.5"),
                  run.predict(tmp_path / "x.npy", labels_per_row=3.0),
                  decide_again(run, table, "recall=0.9", 3.0)):  # fmt: skip
        listed = found["labels"].fillna("").str.split("|")
        chosen = np.array([[name in row for name in CLASSES] for row in listed])
        assert chosen.any()
        assert is_closed(chosen)
        assert is_closed(found[CLASSES].to_numpy(dtype=float))
    limits = evaluate(run).classes["threshold"].to_numpy()
    assert all(limits[child] >= limits[parent] for child, parent in PARENTS)
