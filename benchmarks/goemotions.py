"""GoEmotions from its TSV files in one command, beside scikit-learn on the same rows.

    python benchmarks/goemotions.py DIR --out goemotions.jsonl --jobs 2
    python benchmarks/goemotions.py DIR --out goemotions.jsonl --show

DIR holds train.tsv.gz, dev.tsv.gz and test.tsv.gz (text, comma-separated label numbers, id). With
"one", each training row shows one of its labels, drawn at random by the seed. `auto` is
`halftruth train FILE --text text` with default settings; the dev rows are its validation rows, of
which it sees one label each as well. `logistic` is TF-IDF of words and pairs of words with logistic
regression (unknown is absent, C by 3-fold cross-validation on mAP), `logistic-chars` adds parts of
words, `forest` is a random forest on the same words. They predict above 0.5, or above the threshold
per class with the best F1 in cross-validation on the shown labels ("tuned"). Scores are percent on
the test rows with complete labels.
"""

import argparse
import functools
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import halftruth
from common import add_task_options, group_by, key_of, read_lines, run_tasks, show_mean, start
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


def hide(labels, which, seed):
    if which == "complete":
        return labels
    return (np.asarray(single_positive(labels, seed=seed)) > 0).astype(np.int8)


def run_cell(folder, which, seed, name, rows=0, device="cpu"):
    """Train and measure one model; `rows`: only so many training rows, for a quick test."""
    started = time.perf_counter()
    table, labels = read_part(folder, "train")
    chosen = np.random.default_rng(0).permutation(len(table))[: rows or len(table)]
    train = table.iloc[chosen], hide(labels[chosen], which, seed)
    test, truth = read_part(folder, "test")
    make = run_auto if name == "auto" else run_sklearn
    scores, decisions, facts = make(folder, train, test["text"].tolist(), which, seed, name, device)
    line = {"set": "goemotions", "setting": which, "seed": seed, "row": name, **facts}
    with warnings.catch_warnings(action="ignore"):
        line["mAP"] = 100 * float(mean_average_precision(scores, truth))
        for suffix, decided in decisions.items():
            found = class_and_overall(count(decided.astype(float), truth, 0.5))
            line |= {f"{key}{suffix}": 100 * float(found[key]) for key in ("CF1", "OF1")}
    return line | {"seconds": round(time.perf_counter() - started)}


def run_auto(folder, train, texts, which, seed, name, device):
    with tempfile.TemporaryDirectory() as temporary:
        where, tables = Path(temporary), []
        dev, dev_labels = read_part(folder, "dev")
        for table, shown, split in (
            (*train, "train"),
            (dev, hide(dev_labels, which, seed), "val"),
        ):
            listed = [",".join(map(str, np.flatnonzero(row))) for row in shown]
            tables.append(table.assign(labels=listed, split=split))
        path, run = where / "train.tsv", where / "run"
        pd.concat(tables).to_csv(path, sep="\t", index=False, quoting=3, escapechar="\\")
        started = time.perf_counter()
        # halftruth train FILE --text text --label-column labels --sep , --read quotes=false
        result = halftruth.fit(
            path, text="text", label_column="labels", sep=",", quotes=False, seed=seed,
            out=run, quiet=True, device=device,
            **({"zero": "absent"} if which == "complete" else {}),
        )  # fmt: skip
        seconds = round(time.perf_counter() - started)
        # Only the text is read: the labels of the test rows play no part.
        found = halftruth.load(run, device=device).predict(texts)
    members = {one["name"]: [one["score"], one["weight"], one["seconds"]] for one in result.members}
    scores = found[[str(k) for k in range(CLASSES)]].to_numpy()
    chosen = np.zeros(scores.shape, dtype=bool)
    for row, cell in enumerate(found["labels"]):
        chosen[row, [int(k) for k in cell.split("|") if k]] = True
    return scores, {"": chosen}, {"train_seconds": seconds, "members": members}


def run_sklearn(folder, train, texts, which, seed, name, device):
    from scipy import sparse
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, cross_val_predict
    from sklearn.multiclass import OneVsRestClassifier

    warnings.filterwarnings("ignore", message="Label not")
    table, shown = train
    kinds = [{"ngram_range": (1, 2)}]
    if name == "logistic-chars":
        kinds.append({"analyzer": "char_wb", "ngram_range": (2, 5)})
    blocks = [TfidfVectorizer(min_df=2, sublinear_tf=True, **kind) for kind in kinds]
    x = sparse.hstack([one.fit_transform(table["text"]) for one in blocks], format="csr")
    test = sparse.hstack([one.transform(texts) for one in blocks], format="csr")
    facts = {}
    if name == "forest":
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
        facts["C"] = grid.best_params_["estimator__C"]
        scores = grid.predict_proba(test)
        held = cross_val_predict(grid.best_estimator_, x, shown, cv=3, method="predict_proba")
    limits = find_thresholds(np.nan_to_num(held), shown)
    return scores, {"": scores > 0.5, " tuned": scores >= limits}, facts


def find_thresholds(scores, shown):
    """Return the threshold per class with the best F1 on shown labels; unknown is absent."""
    limits = np.full(shown.shape[1], np.inf)
    for k in range(shown.shape[1]):
        order = np.argsort(-scores[:, k], kind="stable")
        hits = np.cumsum(shown[order, k])
        f1 = 2 * hits / (np.arange(1, len(hits) + 1) + max(hits[-1], 1))
        limits[k] = scores[order[f1.argmax()], k]
    return limits


def describe(line):
    return " ".join(f"{key} {line[key]:.1f}" for key in line if key[:3] in ("mAP", "CF1", "OF1"))


def show(lines):
    """Print means and standard deviations over the seeds."""
    for (setting, row), some in sorted(group_by(lines, "setting", "row").items()):
        keys = [key for key in some[0] if key[:3] in ("mAP", "CF1", "OF1")]
        values = ", ".join(f"{key} {show_mean((one[key] for one in some), ddof=0)}" for key in keys)
        seconds = np.mean([one["seconds"] for one in some])
        print(f"{setting:<10}{row:<16}{len(some)} seeds: {values}; {seconds:.0f} s")


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--labels", default="one,complete")
    parser.add_argument("--rows", type=int, default=0, help="training rows; 0: all")
    parser.add_argument("--device", default="cpu", help="for auto")
    parser.add_argument("--show", action="store_true", help="print the means of --out")
    add_task_options(parser)
    given = parser.parse_args(argv)
    done = {key_of(line) for line in read_lines(given.out)}
    if given.show:
        return show(read_lines(given.out))
    tasks = [
        (given.folder, which, seed, name, given.rows, given.device)
        for seed in map(int, given.seeds.split(","))
        for name in given.models.split(",")
        for which in given.labels.split(",")
        if ("goemotions", which, seed, name) not in done
    ]
    run_tasks(run_cell, tasks, given, describe)


if __name__ == "__main__":
    data = "DATA/goemotions --out OUT/lines.jsonl"
    start(main, f"{data} --seeds 0 --labels complete --models auto,logistic", f"{data} --show")
