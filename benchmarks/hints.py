"""What hints gain and cost on features: a useful one, a random one, an inverted one, and parts.

    python benchmarks/hints.py DIR --sets yeast,scene,emotions,birds,medical --seeds 0,1,2
    python benchmarks/hints.py DIR --sets goemo --keywords SHARED/data/goemotions

DIR as in benchmarks/ensemble.py. The training rows are halved: one half has complete labels and
trains a random forest (the hint, a model of other data); on the other half `auto` is fitted with
incomplete labels, with and without the hint. `best`: the combination with weights that were fitted
to complete labels of those rows. The headroom of a hint is what the better of `best` and the hint
alone is ahead of `auto`. --keywords: for GoEmotions, the
hint is a rule per class: does the text hold one of a few words?
"""

import argparse
import gzip
import json
import os
import re
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from ensemble import fit_random_forest, hide, predict
from halftruth.metrics import mean_average_precision
from halftruth.train.ensemble.fit_ensemble import fit_ensemble
from halftruth.train.ensemble.hints import fit_hints
from result_lines import read_lines

# Words that a person would write down for each class, without looking at the data.
WORDS = {
    "admiration": "amazing awesome great wonderful brilliant impressive beautiful talented",
    "amusement": "lol lmao haha hahaha funny hilarious laughing",
    "anger": "hate angry furious rage fuck pissed mad",
    "annoyance": "annoying annoyed stupid ridiculous irritating",
    "approval": "agree right yes exactly true correct",
    "caring": "care careful hope help safe hug",
    "confusion": "confused confusing what understand huh why",
    "curiosity": "curious wonder wondering how who",
    "desire": "wish want need",
    "disappointment": "disappointed disappointing unfortunately shame sadly",
    "disapproval": "disagree wrong no not bad",
    "disgust": "disgusting gross disgusted nasty",
    "embarrassment": "embarrassing embarrassed awkward cringe ashamed",
    "excitement": "excited exciting wow omg",
    "fear": "scared afraid fear terrified scary",
    "gratitude": "thank thanks grateful appreciate",
    "grief": "died death rip loss grief mourning",
    "joy": "happy glad enjoy joy fun smile",
    "love": "love loved loves adore favorite",
    "nervousness": "nervous anxious worried anxiety",
    "optimism": "hope hopefully optimistic better",
    "pride": "proud pride",
    "realization": "realize realized realise noticed",
    "relief": "relief relieved phew finally",
    "remorse": "sorry regret apologize apologise guilty",
    "sadness": "sad cry crying depressed sadness miss",
    "surprise": "surprised surprise shocked unexpected wow",
}


def read_texts(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf8") as file:
        return [line.rstrip("\n").split("\t")[0].lower() for line in file]


def make_keyword_hint(texts: list[str], classes: list[str]) -> np.ndarray:
    """Return how many of the words of each class a text has; NaN for classes without words."""
    sets = [set(re.findall(r"[a-z]+", text)) for text in texts]
    out = np.full((len(texts), len(classes)), np.nan)
    for k, name in enumerate(classes):
        if name in WORDS:
            words = set(WORDS[name].split())
            out[:, k] = [len(words & found) for found in sets]
    return out


def load(folder: str, name: str, keywords: str | None, seed: int) -> tuple:
    """Return features, complete labels and the hint, of training rows and of test rows."""
    with np.load(Path(folder) / f"{name}.npz") as file:
        x, y, test, truth = (file[k] for k in ("X_train", "Y_train", "X_test", "Y_test"))
    x, test = x.astype(np.float32), test.astype(np.float32)
    random = np.random.default_rng(seed)
    if keywords is not None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        base = Path(keywords)
        texts, tests = read_texts(base / "train.tsv.gz"), read_texts(base / "test.tsv.gz")
        classes = (base / "labels.txt").read_text().split()
        labels = [read_labels(base / f"{part}.tsv.gz", len(classes)) for part in ("train", "test")]
        rows = random.choice(len(texts), 4000, replace=False)
        texts = [texts[row] for row in rows]
        encoder = TfidfVectorizer(max_features=1000, sublinear_tf=True)
        x, test = (encoder.fit_transform(texts), encoder.transform(tests))
        own, other = make_keyword_hint(texts, classes), make_keyword_hint(tests, classes)
        x, test = (part.toarray().astype(np.float32) for part in (x, test))
        return x, labels[0][rows], test, labels[1], own, other
    order = random.permutation(len(x))
    own, elsewhere = order[::2], order[1::2]
    both = fit_random_forest(
        x[elsewhere], (y[elsewhere] > 0).astype(int), np.concatenate([x[own], test]), seed
    )
    return x[own], y[own], test, truth, both[: len(own)], both[len(own) :]


def read_labels(path: Path, classes: int) -> np.ndarray:
    with gzip.open(path, "rt", encoding="utf8") as file:
        lists = [[int(k) for k in line.rstrip("\n").split("\t")[1].split(",")] for line in file]
    out = np.zeros((len(lists), classes), np.int8)
    for row, found in enumerate(lists):
        out[row, found] = 1
    return out


def vary(hint: np.ndarray, kind: str, seed: int) -> np.ndarray:
    """Return another hint, made from a useful one."""
    random = np.random.default_rng(100 + seed)
    even = np.arange(hint.shape[1]) % 2 == 0
    if kind == "random":
        return random.normal(size=hint.shape)
    if kind == "inverted":
        return -hint
    if kind == "half of the classes inverted":
        return np.where(even, -hint, hint)
    if kind == "half of the classes":
        return np.where(even, np.nan, hint)
    if kind == "half of the rows":
        return np.where(random.random((len(hint), 1)) < 0.5, np.nan, hint)
    return hint


KINDS = (
    "useful", "random", "inverted", "half of the classes inverted", "half of the classes",
    "half of the rows",
)  # fmt: skip


def run(folder: str, name: str, setting: str, seed: int, keywords: str | None,
        cache: str | None) -> dict:  # fmt: skip
    """Measure one data set, setting and seed."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    path = Path(cache or "") / f"{name}-{setting}-{seed}.npz"
    if cache and path.exists():
        with np.load(path) as file:
            shown, y, truth, rows, out, logits, hint, test_hint = (file[k] for k in file.files)
    else:
        x, y, test, truth, hint, test_hint = load(folder, name, keywords, seed)
        shown = hide(y, setting, seed)
        fitted = fit_ensemble(x, shown, seed=seed)
        rows, out, logits = fitted.rows, fitted.logits, predict(fitted.model, test)
        if cache:
            np.savez(path, *(shown, y, truth, rows, out, logits, hint, test_hint))
    complete = np.where(y[rows] > 0, 1, -1).astype(np.int8)
    line: dict = {"set": name, "setting": setting, "seed": seed}
    line["auto"] = mean_average_precision(logits, truth)
    line["hint"] = mean_average_precision(np.nan_to_num(test_hint, nan=-1e9), truth)
    best = fit_hints(out, complete, [hint[rows]])
    line["best"] = mean_average_precision(best(logits, [test_hint]), truth)
    for kind in KINDS:
        own, other = vary(hint, kind, seed)[rows], vary(test_hint, kind, seed)
        weights = fit_hints(out, shown[rows], [own])
        line[kind] = mean_average_precision(weights(logits, [other]), truth)
    return line


def print_table(lines: list[dict]) -> None:
    """Print gains per data set and setting: mean, lowest and highest over seeds."""
    groups: dict[tuple[str, str], list[dict]] = {}
    for line in lines:
        groups.setdefault((line["set"], line["setting"]), []).append(line)
    shares = []
    for (name, setting), some in sorted(groups.items()):
        mean = {k: 100 * np.mean([one[k] for one in some]) for k in ("auto", "hint", "best")}
        room = max(mean["best"], mean["hint"]) - mean["auto"]
        print(f"{name}, {setting}: auto {mean['auto']:.1f}, hint alone {mean['hint']:.1f}, "
              f"best {mean['best']:.1f}, {len(some)} seeds")  # fmt: skip
        for kind in KINDS:
            gain = [100 * (one[kind] - one["auto"]) for one in some]
            share = f" ({np.mean(gain) / room:.0%} of the headroom)" if kind == "useful" else ""
            shares += [np.mean(gain) / room] if kind == "useful" else []
            print(f"    {kind}: {np.mean(gain):+.2f}, from {min(gain):+.2f} to {max(gain):+.2f}"
                  f"{share}")  # fmt: skip
    print(f"mean share of the headroom: {np.mean(shares):.0%}, lowest {min(shares):.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--sets", required=True)
    parser.add_argument("--settings", default="one,40")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--keywords", help="folder of GoEmotions, for the set goemo")
    parser.add_argument("--cache", help="folder that keeps the fitted ensembles")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, help="file of results; lines in it are not repeated")
    given = parser.parse_args()
    lines = read_lines(given.out)
    done = {(line["set"], line["setting"], line["seed"]) for line in lines}
    tasks = [
        (given.folder, name, setting, int(seed), given.keywords if name == "goemo" else None)
        for seed in given.seeds.split(",")
        for name in given.sets.split(",")
        for setting in given.settings.split(",")
        if (name, setting, int(seed)) not in done
    ]
    with ProcessPoolExecutor(given.jobs) as pool:
        for future in as_completed([pool.submit(run, *task, given.cache) for task in tasks]):
            lines.append(future.result())
            print(json.dumps(lines[-1]), flush=True)
            if given.out:
                with given.out.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
    print_table(lines)


if __name__ == "__main__":
    main()
