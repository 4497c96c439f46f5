"""Probabilities and decisions with a hierarchy of classes beside those without, and the truth.

    python benchmarks/hierarchies.py DATA --sets goemo,coco --seeds 0,1 --out hierarchies.jsonl

NAME.npz has `label_names`. Parents are added: Ekman groups and sentiments of the emotions of
GoEmotions, the super-categories of COCO. Labels of the children are hidden as in compare.py, then
parents follow. The same scores of `auto` are used twice, so that only the projection differs.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from common import Rows, add_task_options, hide, load_rows, predict, print_means, run_grid, start
from halftruth.metrics import evaluate
from halftruth.presence.decisions import decide
from halftruth.presence.probabilities import average_over_level, fit_probabilities
from halftruth.train.ensemble.fit_ensemble import fit_ensemble

GROUPS = {
    "goemo": {
        "anger": "anger,annoyance,disapproval", "disgust": "disgust", "fear": "fear,nervousness",
        "joy": "joy,amusement,approval,excitement,gratitude,love,optimism,relief,pride,"
               "admiration,desire,caring",
        "sadness": "sadness,disappointment,embarrassment,grief,remorse",
        "surprise": "surprise,realization,confusion,curiosity",
        "negative": "group anger,group disgust,group fear,group sadness",
    },
    "coco": {
        "vehicle": "bicycle,car,motorcycle,airplane,bus,train,truck,boat",
        "animal": "bird,cat,dog,horse,sheep,cow,elephant,bear,zebra,giraffe",
        "sports": "frisbee,skis,snowboard,sports ball,kite,baseball bat,baseball glove,skateboard,"
                  "surfboard,tennis racket",
        "kitchen": "bottle,wine glass,cup,fork,knife,spoon,bowl",
        "food": "banana,apple,sandwich,orange,broccoli,carrot,hot dog,pizza,donut,cake",
        "furniture": "chair,couch,potted plant,bed,dining table,toilet",
        "electronic": "tv,laptop,mouse,remote,keyboard,cell phone",
    },
}  # fmt: skip


def add_parents(y: np.ndarray, parents: list[list[int]], count: int) -> np.ndarray:
    """Return labels (N, K) with columns of parents, present where a child is."""
    found = np.concatenate([y, np.zeros((len(y), count), y.dtype)], axis=1)
    for child, parent in parents:
        found[:, parent] = np.maximum(found[:, parent], found[:, child])
    return found


def read_rows(given: Any, name: str, setting: str, seed: int) -> tuple[Rows, np.ndarray, list]:
    """Rows with parents, their shown labels, and the pairs of child and parent."""
    data = load_rows(given.folder, name, seed, 900, 1500)
    groups = GROUPS.get(name, {"all": "first"})
    with np.load(Path(given.folder) / f"{name}.npz") as file:
        own = [f"class {k}" for k in range(data.y.shape[1])]
        names = [str(one) for one in file.get("label_names", own)]
    place = {one: k for k, one in enumerate([*names, *(f"group {one}" for one in groups)])}
    place.setdefault("first", 0)
    parents = [
        [place[child], place[f"group {group}"]]
        for group, children in groups.items() for child in children.split(",")
    ]  # fmt: skip
    shown = add_parents(hide(data.y, setting, seed), parents, len(groups))
    data.y = add_parents(data.y, parents, len(groups))
    data.truth = add_parents(data.truth, parents, len(groups))
    return data, shown, parents


def measure(given: Any, name: str, setting: str, seed: int, row: str) -> dict:
    """Measure one data set, setting and seed, with the hierarchy and without."""
    data, shown, parents = read_rows(given, name, setting, seed)
    fitted = fit_ensemble(data.x, shown, seed=seed)
    z, truth = predict(fitted.model, data.test), data.truth > 0
    line: dict[str, float] = {}
    for key, pairs in (("without", []), ("with", parents)):
        known = fit_probabilities(shown[fitted.rows], fitted.logits, parents=pairs)
        known = average_over_level(known, fitted.logits)
        p, counts = known(z), (shown > 0).sum(axis=0)
        chosen = decide(known(fitted.logits), counts, "f1", known)(p)
        child, parent = np.array(parents).T
        line[f"cells above a parent, {key}"] = float((p[:, child] > p[:, parent]).mean())
        line[f"predicted without a parent, {key}"] = float(
            (chosen[:, child] > chosen[:, parent]).mean()
        )
        at = np.minimum((10 * p).astype(int), 9).ravel()
        gap = np.bincount(at, (p - truth).ravel(), 10)
        line[f"ECE, {key}"] = float(np.abs(gap).sum() / p.size)
        line[f"squared error, {key}"] = float(((p - truth) ** 2).mean())
        line[f"OF1, {key}"] = evaluate(chosen.astype(float), truth, 0.5)["OF1"]
    return line


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_task_options(parser, sets="goemo,coco", settings="one,40", rows=["hierarchy"])
    lines = run_grid(measure, parser.parse_args(argv), "OF1, with")
    print_means(lines, *(key for key in lines[0] if "with" in key))


if __name__ == "__main__":
    start(main, "DATA/tabular --sets yeast --settings one --seeds 0 --out OUT/lines.jsonl")
