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
import re
import time
import warnings
from pathlib import Path

import numpy as np
import torch

from common import add_task_options, group_by, load_split, read_lines, run_tasks, start
from ensemble import fit_random_forest, hide, predict
from goemotions import read_part
from halftruth.metrics import mean_average_precision
from halftruth.train.ensemble.fit_ensemble import fit_ensemble
from halftruth.train.ensemble.hints import fit_hints

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
    random = np.random.default_rng(seed)
    if keywords is not None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        classes = (Path(keywords) / "labels.txt").read_text().split()
        (train, y), (other, truth) = (read_part(keywords, part) for part in ("train", "test"))
        rows = random.choice(len(train), min(4000, len(train)), replace=False)
        texts = [list(part["text"].str.lower()) for part in (train.iloc[rows], other)]
        encoder = TfidfVectorizer(max_features=1000, sublinear_tf=True).fit(texts[0])
        x, test = (encoder.transform(part).toarray().astype(np.float32) for part in texts)
        own, hint = (make_keyword_hint(part, classes) for part in texts)
        return x, y[rows], test, truth, own, hint
    x, y, test, truth = load_split(Path(folder) / f"{name}.npz")
    order = random.permutation(len(x))
    own, elsewhere = order[::2], order[1::2]
    both = fit_random_forest(x[elsewhere], y[elsewhere], np.concatenate([x[own], test]), seed)
    return x[own], y[own], test, truth, both[: len(own)], both[len(own) :]


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
    started = time.perf_counter()
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
    return {**line, "seconds": round(time.perf_counter() - started, 1)}


def print_table(lines: list[dict]) -> None:
    """Print gains per data set and setting: mean, lowest and highest over seeds."""
    shares = []
    for (name, setting), some in sorted(group_by(lines, "set", "setting").items()):
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


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--sets", required=True)
    parser.add_argument("--settings", default="one,40")
    parser.add_argument("--keywords", help="folder of GoEmotions, for the set goemo")
    parser.add_argument("--cache", help="folder that keeps the fitted ensembles")
    add_task_options(parser)
    given = parser.parse_args(argv)
    lines = read_lines(given.out)
    done = {(line["set"], line["setting"], line["seed"]) for line in lines}
    tasks = [
        (given.folder, name, setting, int(seed), given.keywords if name == "goemo" else None,
         given.cache)
        for seed in given.seeds.split(",")
        for name in given.sets.split(",")
        for setting in given.settings.split(",")
        if (name, setting, int(seed)) not in done
    ]  # fmt: skip
    lines += run_tasks(run, tasks, given, lambda line: f"useful {100 * line['useful']:.2f}")
    print_table(lines)


if __name__ == "__main__":
    start(
        main,
        "DATA/tabular --sets yeast --settings 40 --seeds 0",
        "DATA/tabular --sets goemo --settings 40 --seeds 0 --keywords DATA/goemotions",
    )
