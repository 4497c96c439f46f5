"""Data sets of other kinds than those `auto` was developed on; `common.load_rows` makes them.

Nothing is downloaded: they are made from tables that come with scikit-learn, or drawn. Very few
rows, very many columns, rare classes, categories only, counts of words, interactions without main
effects.
"""

import numpy as np
from sklearn import datasets
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

# Features, labels, and how many rows are for training.
Made = tuple[np.ndarray, np.ndarray, int]


def above(columns: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return labels: whether a value is among the highest share of its column."""
    return columns > np.quantile(columns, 1 - shares, axis=0).diagonal()


def make_digits(random: np.random.Generator) -> Made:
    """Images of digits, 8 x 8; ten digits and six properties of numbers."""
    x, digit = datasets.load_digits(return_X_y=True)
    properties = ("02468", "2357", "56789", "0689", "147", "038")
    others = np.stack([np.isin(digit, [*map(int, one)]) for one in properties], axis=1)
    y = np.concatenate([np.eye(10)[digit], others], axis=1)
    return x, y, 700


def make_digit_pairs(random: np.random.Generator) -> Made:
    """Two or three digits laid over each other: which are there?"""
    x, digit = datasets.load_digits(return_X_y=True)
    rows = random.integers(len(x), size=(3000, 3))
    use = random.random((3000, 3)) < [1, 0.8, 0.4]
    images = np.where(use[..., None], x[rows], 0).max(axis=1)
    return images, (np.eye(10)[digit[rows]] * use[..., None]).max(axis=1), 1500


def make_wine(random: np.random.Generator) -> Made:
    """178 wines: three growers, and four measurements that were taken out of the features."""
    x, grower = datasets.load_wine(return_X_y=True)
    out = [0, 6, 9, 12]
    y = np.concatenate([np.eye(3)[grower], above(x[:, out], np.full(4, 0.3))], axis=1)
    return np.delete(x, out, axis=1), y, 110


def make_breast_cancer(random: np.random.Generator) -> Made:
    """569 tumours: malignant, and ten measurements that were taken out of the features."""
    x, benign = datasets.load_breast_cancer(return_X_y=True)
    y = np.concatenate([benign[:, None] == 0, above(x[:, 20:], np.linspace(0.08, 0.4, 10))], axis=1)
    return x[:, :20], y, 300


def make_counts(random: np.random.Generator) -> Made:
    """scikit-learn's generator: 150 rows of word counts."""
    x, y = datasets.make_multilabel_classification(
        1150, 40, n_classes=8, n_labels=2, length=40, allow_unlabeled=False, random_state=3
    )
    return x, y, 150


def make_wide(random: np.random.Generator) -> Made:
    """300 rows of 2,000 correlated columns; ten labels are linear in 30 hidden factors."""
    factors = random.normal(size=(1300, 30))
    x = factors @ random.normal(size=(30, 2000)) / 5.5 + random.normal(size=(1300, 2000))
    score = factors @ random.normal(size=(30, 10)) + random.normal(size=(1300, 10))
    return x, above(score, np.linspace(0.08, 0.35, 10)), 300


def make_topics(random: np.random.Generator) -> Made:
    """Texts of about 30 words out of 1,500, from one to four of 25 topics; TF-IDF."""
    base = 1 / np.arange(1, 1501)
    topics = base * random.gamma(0.15, size=(25, 1500)) ** 1.0
    topics /= topics.sum(axis=1, keepdims=True)
    popular = 1 / np.arange(1, 26) ** 0.7
    x, y = np.zeros((3500, 1500)), np.zeros((3500, 25))
    for row in range(3500):
        own = random.choice(25, random.integers(1, 5), replace=False, p=popular / popular.sum())
        mix = 0.6 * topics[own].mean(axis=0) + 0.4 * base / base.sum()
        x[row] = random.multinomial(random.poisson(30) + 3, mix)
        y[row, own] = 1
    weight = np.log(len(x) / (1 + (x > 0).sum(axis=0)))
    x = np.log1p(x) * weight
    return x / np.linalg.norm(x, axis=1, keepdims=True).clip(1e-9), y, 1500


def make_rare(random: np.random.Generator) -> Made:
    """Classes from 0.4 % to 2 % of the rows, beside one with 60 %; clusters in 40 columns."""
    z = random.normal(size=(8000, 40))
    centres = random.normal(size=(10, 40))
    distance = np.square(z[:, None] - centres)[:, :, :12].sum(axis=2)
    rare = above(-distance, np.linspace(0.004, 0.02, 10))
    common = z[:, :1] + random.normal(size=(8000, 1)) > -0.36
    return z, np.concatenate([rare, common], axis=1), 4000


def make_categories(random: np.random.Generator) -> Made:
    """Twelve categorical columns, one-hot: effects of levels and of pairs of levels."""
    level = random.integers(8, size=(3000, 12))
    score = np.zeros((3000, 9))
    for k in range(9):
        score[:, k] = random.normal(size=(12, 8))[np.arange(12), level].sum(axis=1) / 2
        a, b = random.choice(12, 2, replace=False)
        score[:, k] += 2 * random.normal(size=(8, 8))[level[:, a], level[:, b]]
    score += random.normal(size=score.shape)
    return np.eye(8)[level].reshape(3000, 96), above(score, np.linspace(0.1, 0.4, 9)), 1200


def make_interactions(random: np.random.Generator) -> Made:
    """Labels are signs of products of two columns out of fifteen: no column helps alone."""
    z = random.normal(size=(3000, 15))
    pairs = [random.choice(15, 2, replace=False) for _ in range(6)]
    score = np.stack([z[:, a] * z[:, b] for a, b in pairs], axis=1)
    return z, above(score + 0.3 * random.normal(size=score.shape), np.linspace(0.15, 0.4, 6)), 1500


def make_diabetes(random: np.random.Generator) -> Made:
    """442 patients: progression in three grades, and two blood values taken out of the features."""
    x, progress = datasets.load_diabetes(return_X_y=True)
    grades = np.stack([progress > np.quantile(progress, q) for q in (0.5, 0.75, 0.9)], axis=1)
    y = np.concatenate([grades, above(x[:, [4, 8]], np.full(2, 0.3))], axis=1)
    return np.delete(x, [4, 8], axis=1), y, 220


SETS = {
    "digits": make_digits, "digit-pairs": make_digit_pairs, "wine": make_wine,
    "breast-cancer": make_breast_cancer, "counts": make_counts, "wide": make_wide,
    "topics": make_topics, "rare": make_rare, "categories": make_categories,
    "interactions": make_interactions, "diabetes": make_diabetes,
}  # fmt: skip


def make_set(name: str) -> list[np.ndarray]:
    """Return features and labels of training rows, and of test rows; always the same."""
    random = np.random.default_rng(11)
    x, y, count = SETS[name](random)
    order = random.permutation(len(x))
    parts = order[:count], order[count : count + 4000]
    return [values[rows] for rows in parts for values in (x, (y > 0).astype(np.int8))]


# ---------------------------------------------------------------------- audits


def make_bag(random: np.random.Generator, rows: int, classes: int) -> Made:
    """Counts of words of scikit-learn: labels are no logistic function of them."""
    x, y = datasets.make_multilabel_classification(
        rows, int(random.integers(10, 40)), n_classes=classes, n_labels=int(random.integers(1, 5)),
        length=int(random.choice([20, 50, 100])), random_state=int(random.integers(1e6)),
    )  # fmt: skip
    return x, y > 0, rows


def make_linear(random: np.random.Generator, rows: int, classes: int) -> Made:
    """Labels are logistic functions of the columns, each present in 2 to 40 % of the rows."""
    x = random.normal(size=(rows, int(random.integers(5, 25))))
    score = x @ random.normal(size=(x.shape[1], classes)) / len(x.T) ** 0.5 * random.uniform(1, 5)
    score += random.logistic(size=score.shape)
    return x, above(score, np.exp(random.uniform(np.log(0.02), np.log(0.4), classes))), rows


def make_clusters(random: np.random.Generator, rows: int, classes: int) -> Made:
    """Clusters, each with its own probabilities of the classes."""
    centres = random.normal(size=(int(random.integers(8, 30)), 10)) * random.uniform(0.6, 1.5)
    often = random.random((len(centres), classes)) < random.uniform(0.05, 0.25)
    chance = np.where(often, random.uniform(0.5, 1, often.shape), random.uniform(0, 0.05))
    own = random.integers(len(centres), size=rows)
    x = centres[own] + random.normal(size=(rows, 10))
    return x, random.random((rows, classes)) < chance[own], rows


AUDITS = {"bag": make_bag, "forest": make_bag, "linear": make_linear, "clusters": make_clusters}


def make_audit(kind: str, setting: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return complete labels, shown labels and out-of-sample probabilities of shown labels.

    `setting`: the percentage of labels that is shown, or "one" per row; with "-listed", rows that
    show nothing are left out. Models of scikit-learn take unknown for absent.
    """
    random = np.random.default_rng([seed, *map(ord, kind + setting)])
    rows, classes = (int(np.exp(random.uniform(*np.log(ends)))) for ends in ((300, 3000), (5, 30)))
    x, y, _ = AUDITS[kind](random, rows, classes)
    share, _, listed = setting.partition("-")
    chance = np.where(y, random.random(y.shape), -1.0)
    one = (chance == chance.max(axis=1, keepdims=True)) & y
    shown = one if share == "one" else chance > 1 - int(share) / 100
    some = shown.any(axis=1) if listed else np.ones(rows, dtype=bool)
    x, y, shown = x[some], y[some], shown[some]
    x, y, shown = x, y[:, shown.sum(axis=0) >= 5], shown[:, shown.sum(axis=0) >= 5]
    model = RandomForestClassifier(60, min_samples_leaf=2, random_state=0)
    model = model if kind == "forest" else LogisticRegression(max_iter=300)
    scores = [cross_val_predict(model, x, one, method="predict_proba")[:, 1] for one in shown.T]
    return y, shown.astype(np.int8), np.stack(scores, axis=1)
