"""GoEmotions from its TSV files in one command, beside scikit-learn on the same rows.

    python benchmarks/goemotions.py DIR --models auto,logistic,forest --labels one,complete

DIR holds train.tsv.gz, dev.tsv.gz and test.tsv.gz (text, comma-separated label numbers, id). With
"one", each training row shows one of its labels, drawn at random by the seed. `auto` is
`halftruth train FILE --text text` with default settings; the dev rows are its validation rows, of
which it sees one label each as well. `logistic` is TF-IDF of words and pairs of words with logistic
regression (unknown is absent, C by 3-fold cross-validation on mAP, threshold 0.5), `logistic-chars`
adds parts of words, `forest` is a random forest on the same words. Scores are percent on the test
rows with complete labels.
"""

import argparse
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from halftruth.labels import single_positive
from halftruth.metrics import class_and_overall, count, mean_average_precision

CLASSES = 28
COLUMNS = ["text", "labels", "id"]


def read_part(folder, part):
    table = pd.read_csv(
        folder / f"{part}.tsv.gz", sep="\t", header=None, names=COLUMNS, quoting=3,
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


def report(name, which, seed, scores, chosen, truth, started):
    with warnings.catch_warnings(action="ignore"):
        found = class_and_overall(count(chosen.astype(float), truth, 0.5))
        mean_ap = mean_average_precision(scores, truth)
    values = " ".join(f"{100 * x:.1f}" for x in (mean_ap, found["CF1"], found["OF1"]))
    seconds = time.perf_counter() - started
    print(f"{name:<16}{which:<10}seed {seed}: {values}   ({seconds:.0f} s)", flush=True)


def run_auto(parts, which, seed, more, out):
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(out or temporary)
        tables = []
        for part, split in (("train", "train"), ("dev", "val")):
            table, labels = parts[part]
            shown = hide(labels, which, seed)
            listed = [",".join(map(str, np.flatnonzero(row))) for row in shown]
            tables.append(table.assign(labels=listed, split=split))
        path = folder / f"train-{which}-{seed}.tsv"
        pd.concat(tables).to_csv(path, sep="\t", index=False, quoting=3, escapechar="\\")
        test = folder / "test.tsv"
        parts["test"][0].to_csv(test, sep="\t", index=False, quoting=3, escapechar="\\")
        command, run = str(Path(sys.executable).with_name("halftruth")), folder / f"{which}-{seed}"
        coding = ["--zero", "absent"] if which == "complete" else []
        how = ["--read", "quotes=false", "--label-column", "labels", "--sep", ","]
        subprocess.run(
            [command, "train", path, "--text", "text", *how, *coding, "--seed", str(seed),
             "--out", run, *more],
            check=True,
        )  # fmt: skip
        # Only the text is read: the labels of the test rows play no part.
        import halftruth

        found = halftruth.load(run).predict(parts["test"][0]["text"].tolist())
    scores = found[[str(k) for k in range(CLASSES)]].to_numpy()
    chosen = np.zeros(scores.shape, dtype=bool)
    for row, cell in enumerate(found["labels"]):
        chosen[row, [int(k) for k in cell.split("|") if k]] = True
    report("auto" if not more else " ".join(more), which, seed, scores, chosen,
           parts["test"][1], started)  # fmt: skip


def run_sklearn(name, parts, which, seed):
    from scipy import sparse
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.multiclass import OneVsRestClassifier

    started = time.perf_counter()
    table, labels = parts["train"]
    shown = hide(labels, which, seed)
    kinds = [{"ngram_range": (1, 2)}]
    if name == "logistic-chars":
        kinds.append({"analyzer": "char_wb", "ngram_range": (2, 5)})
    blocks = [TfidfVectorizer(min_df=2, sublinear_tf=True, **kind) for kind in kinds]
    x = sparse.hstack([one.fit_transform(table["text"]) for one in blocks], format="csr")
    test = sparse.hstack([one.transform(parts["test"][0]["text"]) for one in blocks], format="csr")
    if name == "forest":
        model = RandomForestClassifier(200, min_samples_leaf=2, random_state=seed, n_jobs=-1)
        model.fit(x, shown)
        scores = np.stack([p[:, 1] if p.shape[1] > 1 else 0 * p[:, 0]
                           for p in model.predict_proba(test)], axis=1)  # fmt: skip
    else:
        model = GridSearchCV(
            OneVsRestClassifier(LogisticRegression(solver="liblinear")),
            {"estimator__C": [1.0, 4.0, 16.0]},
            scoring=lambda fit, a, b: mean_average_precision(fit.predict_proba(a), b),
            cv=3,
        ).fit(x, shown)
        print(f"    {model.best_params_}")
        scores = model.predict_proba(test)
    report(name, which, seed, scores, scores > 0.5, parts["test"][1], started)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default="auto,logistic,forest")
    parser.add_argument("--labels", default="one,complete")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--out", help="keep the run folders here")
    parser.add_argument("--more", default="", help="more options of halftruth train")
    given = parser.parse_args()
    parts = {part: read_part(given.folder, part) for part in ("train", "dev", "test")}
    print("model, labels, seed: mAP CF1 OF1", flush=True)
    for which in given.labels.split(","):
        for seed in map(int, given.seeds.split(",")):
            for name in given.models.split(","):
                if name == "auto":
                    run_auto(parts, which, seed, given.more.split(), given.out)
                else:
                    run_sklearn(name, parts, which, seed)


if __name__ == "__main__":
    main()
