"""Expected and true precision of the labels that are most probably wrong, on many data sets.

    python benchmarks/wrong_labels.py scene.npz yeast.npz:1500 --seeds 0 1 --out scores/

Each file holds X_train and complete 0/1 labels Y_train; `:1500` takes that many rows, drawn anew
per seed. One label per row is shown, or 40 % of the labels; 0, 2 and 10 % of them move to an absent
class. Scores come from 5 folds of a linear model and are kept in --out. `told` is an oracle: the
same model, told the true share of wrong labels. `after 20` and `after 50` are the next 50 labels
after so many decisions of a perfect reviewer on the first ones. The range of the expected precision
in brackets is the one that `audit` and the review page show.
"""

import argparse
from collections import defaultdict
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch

from common import start
from halftruth.audit import calibrate
from halftruth.audit.cross_scores import align_folds
from halftruth.audit.current import expect_right
from halftruth.data.splits import fold_of_rows
from halftruth.labels import PRESENT
from halftruth.labels.hiding import single_positive
from halftruth.presence import calibration
from halftruth.presence.calibration import find_wrong
from halftruth.presence.remaining import VerdictModel
from halftruth.presence.uncertainty import WRONG_SPREADS, Estimate
from halftruth.train.ensemble.members import fit_linear_path
from halftruth.train.inputs.batches import fit_standardization
from verdicts import FLIPPED, WRONG_FIRST, flip

SHOWN, NEAR = ("one", "40 %"), 15
# Lists longer than this share of the labels are not judged.
LONGEST = 0.6
# Labels that a reviewer decides on: the first ones, and all with this probability of being wrong.
LISTED, LEAST, DECIDED, NEXT = 20, 0.01, (20, 50), 50
# Expected and true precision in percent, and the range of the expected one.
Found = tuple[float, float, float, float]


def load(spec: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Features and complete labels of the rows that have a label."""
    path, _, rows = spec.partition(":")
    with np.load(path) as file:
        x, y = file["X_train"].astype(np.float32), (file["Y_train"] > 0).astype(np.int8)
    some = np.random.default_rng(seed).permutation(np.flatnonzero(y.any(axis=1)))
    some = some[: int(rows)] if rows else some
    return x[some], y[some]


def hide(truth: np.ndarray, shown: str, seed: int) -> np.ndarray:
    if shown == "one":
        return single_positive(truth, seed)
    return (truth * (np.random.default_rng([seed, 4]).random(truth.shape) < 0.4)).astype(np.int8)


def score(x: np.ndarray, labels: np.ndarray, seed: int, path: Path) -> np.ndarray:
    """Scores of 5 folds of a linear model, not yet aligned."""
    if not path.exists():
        rows = fit_standardization(x)(torch.as_tensor(x)).float()
        fold, logits = fold_of_rows(len(labels), 5, seed), np.zeros(labels.shape)
        for one in range(5):
            taught = torch.from_numpy(fold != one)
            layer = fit_linear_path(rows[taught], torch.from_numpy(labels)[taught], (2.0,))[2.0]
            with torch.no_grad():
                logits[fold == one] = layer(rows[~taught]).double().numpy()
        np.save(path, 1 / (1 + np.exp(-logits)))
    return align_folds(np.load(path), fold_of_rows(len(labels), 5, seed))


def describe(found: list[np.ndarray], mistaken: np.ndarray) -> Found:
    """Expected and true precision of some labels, and the range of the expected one."""
    count, expected = len(mistaken), expect_right(*found)
    ends = np.floor(expected.low), np.ceil(expected.high)
    return 100 * expected.value / count, 100 * mistaken.mean(), *(100 * e / count for e in ends)


def compare(found: list[np.ndarray], mistaken: np.ndarray) -> list[Found]:
    """Expected and true precision of the first labels."""
    order = np.argsort(-found[0], kind="stable")
    firsts = [order[:n] for n in WRONG_FIRST if n <= LONGEST * len(order)]
    return [describe([one[some] for one in found], mistaken[some]) for some in firsts]


def review(
    found: list[np.ndarray], columns: np.ndarray, mistaken: np.ndarray, total: Estimate
) -> list[Found]:
    """Expected and true precision of the next labels after decisions on the first ones."""
    listed = np.argsort(-found[0], kind="stable")
    listed = listed[(np.arange(len(listed)) < LISTED) | (found[0][listed] >= LEAST)]
    p, least, most = (one[listed] for one in found)
    p, columns, mistaken = np.clip(p, 1e-4, 0.9999), columns[listed], mistaken[listed]
    sums = np.bincount(columns, p)
    per_class = [Estimate(float(x), 0.0, float(x) * total.high / total.value) for x in sums]
    model = VerdictModel(p, columns, per_class, total, ends=(least, most), spreads=WRONG_SPREADS)
    verdicts, after = np.zeros(len(p), dtype=np.int8), []
    for count in DECIDED:
        while np.count_nonzero(verdicts) < min(count, len(p)):
            now = np.where(verdicts == 0, model.update(verdicts).probability, -1)
            some = np.argsort(-now, kind="stable")[:10]
            some = some[verdicts[some] == 0]
            verdicts[some] = np.where(mistaken[some], 1, -1)
        left = verdicts == 0
        if left.sum() >= NEXT:
            updated = model.update(verdicts)
            now = [one[left] for one in (updated.probability, updated.least, updated.most)]
            first = np.argsort(-now[0], kind="stable")[:NEXT]
            after.append(describe([one[first] for one in now], mistaken[left][first]))
    return after


def show(found: list[Found]) -> str:
    return ", ".join(f"{a:.0f} ({low:.0f} to {high:.0f}) / {b:.0f}" for a, b, low, high in found)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    results: dict[tuple[str, float], list[Found]] = defaultdict(list)
    covered: dict[float, list[bool]] = defaultdict(list)
    for spec, seed in ((spec, seed) for spec in options.data for seed in options.seeds):
        x, truth = load(spec, seed)
        for shown in SHOWN:
            for share in FLIPPED:
                labels = flip(hide(truth, shown, seed), truth, share, seed)
                name = f"{Path(spec.partition(':')[0]).stem}{len(x)}-{shown[:2]}-{seed}-{share:g}"
                scores = score(x, labels, seed, options.out / f"{name}.npy")
                at = labels == PRESENT
                mistaken = truth[at] == 0
                with patch.object(calibration, "find_wrong", side_effect=find_wrong) as asked:
                    known = calibrate(labels, scores)
                true_share = np.array([max(float(mistaken.mean()), 1e-6)])
                with patch.multiple(calibration, _SHARES=true_share, _HARD=0.0, _HARD_LEAST=0.0):
                    told = find_wrong(*asked.call_args.args).probability[at]
                total, words = known.wrong_total, []
                covered[share].append(total.low <= mistaken.sum() <= total.high)
                found = [known.wrong_probability, known.wrong_least, known.wrong_most]
                found = [one[at] for one in found]
                ways = {"found": compare(found, mistaken), "told": compare([told] * 3, mistaken)}
                after = review(found, np.nonzero(at)[1], mistaken, total)
                ways |= {f"after {n}": [one] for n, one in zip(DECIDED, after, strict=False)}
                for way, some in ways.items():
                    results[way, share] += some
                    words.append(f"{way} {show(some)}")
                print(f"{name}: {mistaken.sum()} wrong, {total}; {'; '.join(words)}", flush=True)
    for (way, share), some in sorted(results.items()):
        inside = [low <= b <= high for _, b, low, high in some]
        near = [abs(a - b) <= NEAR for a, b, _, _ in some]
        width = np.median([high - low for *_, low, high in some])
        print(
            f"{way}, {share:.0%} wrong: {sum(near)} of {len(near)} within {NEAR} points, "
            f"{sum(inside)} inside the range, whose median width is {width:.0f}"
        )
    for share, inside in covered.items():
        print(f"{share:.0%} wrong: {sum(inside)} of {len(inside)} intervals hold the number")


if __name__ == "__main__":
    start(main, "DATA/tabular/yeast.npz:60 --out OUT")
