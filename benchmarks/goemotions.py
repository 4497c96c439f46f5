"""GoEmotions from its TSV files in one command, beside scikit-learn on the same rows.

    python benchmarks/goemotions.py DATA/goemotions --jobs 2 --out goemotions.jsonl

The folder holds train.tsv.gz, dev.tsv.gz and test.tsv.gz (text, comma-separated label numbers, id).
With "one", each training row shows one of its labels, drawn at random by the seed. `auto` is
`halftruth train FILE --text text` with default settings; the dev rows are its validation rows, of
which it sees one label each as well. `logistic` is TF-IDF of words and pairs of words with logistic
regression (unknown is absent, C by 3-fold cross-validation on mAP), `logistic-chars` adds parts of
words, `forest` is a random forest on the same words. CF1 and OF1 are of predictions above 0.5,
"tuned" above the threshold per class with the best F1 in cross-validation on the shown labels.
"""

import argparse
import functools
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import halftruth
from common import add_task_options, print_means, run_grid, start
from halftruth.labels import single_positive
from halftruth.metrics import class_and_overall, count, mean_average_precision

CLASSES = 28
COLUMNS = ["text", "labels", "id"]
MODELS = ("auto", "logistic", "logistic-chars", "forest")


@functools.cache
def read_part(folder, part):
    table = pd.read_csv(
        Path(folder) / f"{part}.tsv.gz", sep="\t", header=None, names=COLUMNS, quoting=3,
        keep_default_na=False, dtype=str,
    )  # fmt: skip
    labels = np.zeros((len(table), CLASSES), np.int8)
    for row, cell in enumerate(table["labels"]):
        labels[row, [int(k) for k in cell.split(",")]] = 1
    return table, labels


def hide_labels(labels, which, seed):
    if which == "complete":
        return labels
    return (np.asarray(single_positive(labels, seed=seed)) > 0).astype(np.int8)


def run(given, name, which, seed, row):
    """Train and measure one model."""
    train, labels = read_part(given.folder, "train")
    shown = hide_labels(labels, which, seed)
    test, truth = read_part(given.folder, "test")
    make = run_auto if row == "auto" else run_sklearn
    scores, decisions = make(given, train, shown, test["text"].tolist(), which, seed, row)
    line = {"mAP": float(mean_average_precision(scores, truth))}
    for suffix, decided in decisions.items():
        found = class_and_overall(count(decided.astype(float), truth, 0.5))
        line |= {f"{key}{suffix}": float(found[key]) for key in ("CF1", "OF1")}
    return line


def run_auto(given, train, shown, texts, which, seed, row):
    with tempfile.TemporaryDirectory() as temporary:
        where, tables = Path(temporary), []
        dev, dev_labels = read_part(given.folder, "dev")
        dev_shown = hide_labels(dev_labels, which, seed)
        for table, known, split in ((train, shown, "train"), (dev, dev_shown, "val")):
            listed = [",".join(map(str, np.flatnonzero(one))) for one in known]
            tables.append(table.assign(labels=listed, split=split))
        path = where / "train.tsv"
        pd.concat(tables).to_csv(path, sep="\t", index=False, quoting=3, escapechar="\\")
        # halftruth train FILE --text text --label-column labels --sep , --read quotes=false
        halftruth.fit(
            path, text="text", label_column="labels", sep=",", quotes=False, seed=seed,
            out=where / "run", quiet=True, device=given.device,
            **({"zero": "absent"} if which == "complete" else {}),
        )  # fmt: skip
        # Only the text is read: the labels of the test rows play no part.
        found = halftruth.load(where / "run", device=given.device).predict(texts)
    scores = found[[str(k) for k in range(CLASSES)]].to_numpy()
    chosen = np.zeros(scores.shape, dtype=bool)
    for at, cell in enumerate(found["labels"]):
        chosen[at, [int(k) for k in cell.split("|") if k]] = True
    return scores, {"": chosen}


def run_sklearn(given, train, shown, texts, which, seed, row):
    from scipy import sparse
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, cross_val_predict
    from sklearn.multiclass import OneVsRestClassifier

    warnings.filterwarnings("ignore", message="Label not")
    kinds = [{"ngram_range": (1, 2)}]
    if row == "logistic-chars":
        kinds.append({"analyzer": "char_wb", "ngram_range": (2, 5)})
    blocks = [TfidfVectorizer(min_df=2, sublinear_tf=True, **kind) for kind in kinds]
    x = sparse.hstack([one.fit_transform(train["text"]) for one in blocks], format="csr")
    test = sparse.hstack([one.transform(texts) for one in blocks], format="csr")
    if row == "forest":
        model = RandomForestClassifier(200, min_samples_leaf=2, random_state=seed, oob_score=True)
        model.fit(x, shown)
        held = model.oob_decision_function_[:, 1]
        scores = np.stack([p[:, 1] if p.shape[1] > 1 else 0 * p[:, 0]
                           for p in model.predict_proba(test)], axis=1)  # fmt: skip
    else:
        grid = GridSearchCV(
            OneVsRestClassifier(LogisticRegression(solver="liblinear")),
            {"estimator__C": [1.0, 4.0, 16.0]},
            scoring=lambda fit, a, b: mean_average_precision(fit.predict_proba(a), b),
            cv=3,
        ).fit(x, shown)
        scores = grid.predict_proba(test)
        held = cross_val_predict(grid.best_estimator_, x, shown, cv=3, method="predict_proba")
    limits = find_thresholds(np.nan_to_num(held), shown)
    return scores, {"": scores > 0.5, " tuned": scores >= limits}


def find_thresholds(scores, shown):
    """Return the threshold per class with the best F1 on shown labels; unknown is absent."""
    limits = np.full(shown.shape[1], np.inf)
    for k in range(shown.shape[1]):
        order = np.argsort(-scores[:, k], kind="stable")
        hits = np.cumsum(shown[order, k])
        f1 = 2 * hits / (np.arange(1, len(hits) + 1) + max(hits[-1], 1))
        limits[k] = scores[order[f1.argmax()], k]
    return limits


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_task_options(parser, sets="goemotions", settings="one,complete", rows=MODELS)
    parser.add_argument("--device", default="cpu", help="for auto")
    lines = run_grid(run, parser.parse_args(argv), "mAP")
    print_means(lines, "mAP", "CF1", "OF1", "CF1 tuned", "OF1 tuned", rows=MODELS)


if __name__ == "__main__":
    start(main, "DATA/goemotions --seeds 0 --settings complete --rows auto,logistic")
