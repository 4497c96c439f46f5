"""Write src/halftruth/bench/recipes/<data set>/<method>.yaml from the papers' hyper-parameters.

python benchmarks/recipes.py            # after a change here or in bench/published.yaml
python benchmarks/recipes.py --check    # say which files differ
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from halftruth.bench.published import published_all

FOLDER = Path(__file__).parents[1] / "src" / "halftruth" / "bench" / "recipes"
Recipe = tuple[dict[str, Any], str]

# Zhou et al. 2022, supplement, Table 5; Cole et al. 2021 (448 px, flips, ten epochs, Adam).
FOUR = ("voc2012", "coco2014", "nuswide", "cub")
BATCH = dict(zip(FOUR, (8, 16, 16, 8), strict=True))
RATE = dict(zip(FOUR, (1e-5, 1e-5, 1e-5, 1e-4), strict=True))
COLE = {
    "backbone": "resnet50", "image_size": 448, "tune": "all", "freeze_bn": False, "epochs": 10,
    "optimizer": "adam", "schedule": "constant", "ema": 0.0, "augment": "flip", "select": "truth",
}  # fmt: skip
ZHANG = {
    "backbone": "resnet50", "image_size": 448, "tune": "all", "freeze_bn": False, "epochs": 80,
    "batch_size": 128, "lr": 1e-4, "optimizer": "adam", "weight_decay": 1e-4,
    "schedule": "one-cycle", "warmup": 0.2, "ema": 0.9997, "augment": "strong", "patience": 10,
    "select": "truth",
}  # fmt: skip
ANY = {
    "backbone": "tresnet_l", "weights": "none", "image_size": 224, "tune": "all",
    "freeze_bn": False, "epochs": 90, "batch_size": 256, "lr": 1e-3, "optimizer": "adamw",
    "weight_decay": 0.05, "schedule": "cosine", "warmup": 0.056, "ema": 0.0, "clip": 1.0,
    "augment": "weak", "select": "truth",
}  # fmt: skip
COLE_NOTE = (
    "Batch and rate are those of Zhou et al. 2022, supplement, Table 5; "
    "for this method none are published."
)
EM_NOTE = "Zhou et al. 2022, supplement, C.3 and Table 5."


def single_positive(data: str) -> dict[str, Recipe]:
    """One positive an image: Chen et al. 2024, LASD, and the baselines of Zhou et al. 2022."""
    place = FOUR.index(data)
    k = (1.5, 2.9, 1.9, 31.4)[place]
    classes = (20, 80, 81, 312)[place]
    mean = (1.46, 2.94, 1.89, 31.4)[place]
    base = {**COLE, "batch_size": BATCH[data], "lr": RATE[data]}
    wide = {**base, "head_lr_mult": 10.0}
    large = {**wide, "batch_size": 16, "lr": (5e-3, 1e-5, 1e-5, 7.5e-5)[place]}
    if data == "voc2012":
        large |= {"optimizer": "sgd", "weight_decay": 1e-3}
    large_note = "Rate and delta: the authors' answer in their repository (issue 4); head x 10."
    hill_note = f"tau, lambda, margin: Zhang et al. 2021, IV-D. {COLE_NOTE}"

    def own(settings: dict[str, Any], method: str, note: str, **options: Any) -> Recipe:
        return {**settings, "method": method, "options": options}, note

    asl = {"gamma_neg": 1.0, "margin": 0.0} if data == "cub" else {"gamma_neg": 2.0, "margin": 0.2}
    gr = {
        **wide,
        "epochs": (8, 8, 10, 10)[place],
        "lr": 5e-5 if data == "cub" else 1e-5,
    }
    gr_options: dict[str, Any] = {
        "w": [0, 2] if data == "voc2012" else [0, 10],
        "b": [-2, -2] if data == "voc2012" else [-2, -8],
        "mu": [0.5, 0.8],
        "sigma": [2.0, 0.5],
        "q2": 0.01,
        "q3": 1.5 if data == "cub" else 1.0,
    }
    lasd = {
        "expected_positives": mean,
        "lam_pos": (0.1, 0.03, 0.015, 0.005)[place],
        "tau": (0.9, 0.9, 0.95, 0.93)[place],
    }
    em = {"alpha": (0.2, 0.1, 0.1, 0.01)[place]}
    mime = {**wide, "lr": 1e-4, "batch_size": (32, 32, 16, 16)[place]}
    linear_first = {**base, "tune": "head-first", "head_epochs": 25, "head_lr": 1e-3}
    return {
        "bce": own(base, "bce", COLE_NOTE),
        "complete": own({**base, "labels": "truth"}, "bce", COLE_NOTE),
        "an-ls": own(base, "an-ls", EM_NOTE, smoothing=0.1),
        "n-ls": own(base, "an-ls", EM_NOTE, smoothing=0.3 if place == 0 else 0.1, sides="negative"),
        "wan": own(base, "wan", f"Weight 1/(K-1). {COLE_NOTE}"),
        "dw": own(base, "wan", EM_NOTE, weight=0.02 if data == "cub" else 0.1),
        "l1r": own({**base, "l1": (1e-6, 1e-7, 1e-7, 1e-9)[place]}, "bce", EM_NOTE),
        "l2r": own(
            {**base, "weight_decay": (1e-6, 1e-7, 1e-6, 1e-8)[place]},
            "bce",
            f"{EM_NOTE} It lists five values for four data sets; NUS and CUB are a guess.",
        ),
        "entmin": own(base, "entmin", EM_NOTE, weight=(0.01, 0.9, 0.4, 0.4)[place]),
        "focal": own(base, "focal", EM_NOTE, gamma=2.0, alpha=0.75),
        "asl": own(base, "asl", EM_NOTE, gamma_pos=0.0, **asl),
        "epr": own(base, "epr", f"k: Cole et al. 2021. {COLE_NOTE}", expected_positives=k),
        "role": own(base, "role", f"k: Cole et al. 2021. {COLE_NOTE}", expected_positives=k),
        "role-li": own(
            linear_first,
            "role",
            "LinearInit: 25 epochs of the head at 1e-3 first (Cole et al. 2021).",
            expected_positives=k,
        ),
        "hill": own(base, "hill", hill_note, lam=1.5, margin=1.0),
        "splc": own(base, "splc", hill_note, tau=0.6, start=1),
        "em": own(base, "em", EM_NOTE, **em),
        "em-apl": own(
            base,
            "em-apl",
            EM_NOTE,
            **em,
            beta=(0.02, 0.9, 0.2, 0.4)[place],
            theta=0.9,
            warmup=(5, 5, 4, 3)[place],
        ),
        "ll-r": own(large, "ll-r", large_note, delta=(0.002, 0.004, 0.004, 0.004)[place]),
        "ll-ct": own(large, "ll-ct", large_note, delta=(0.002, 0.002, 0.002, 0.004)[place]),
        "ll-cp": own(large, "ll-cp", large_note, delta=(0.001, 0.002, 0.002, 0.002)[place]),
        "smile": own(base, "smile", f"No values for images are published. {COLE_NOTE}"),
        "mime": own(
            mime,
            "mime",
            "The authors' code, which trains a transformer head with Adamax; here the linear "
            "head with Adam.",
            theta=0.95,
            warmup=5 if data == "cub" else 2,
        ),
        "gr": own(gr, "gr", "Chen et al. 2024, Table 6; starting values: its code.", **gr_options),
        "las": own(base, "las", f"LASD, A.2.2. {COLE_NOTE}", lam=round(1 / (classes - 1), 5)),
        "lasd": own(base, "lasd", f"LASD, Table 4, without consistency. {COLE_NOTE}", **lasd),
        "consistency": own(
            base,
            "consistency",
            f"LASD, Table 4: its whole method. {COLE_NOTE}",
            base={"name": "lasd", **lasd},
            weight=(0.7, 0.1, 0.15, 0.03)[place],
        ),
    }  # fmt: skip


def labels_left(data: str, labels: str) -> dict[str, Recipe]:
    """Zhang et al. 2021: EMA, one-cycle, strong augmentation."""
    note = (
        "Zhang et al. 2021, IV-A. Its schedule is made for 80 epochs and stopped after 31, its "
        "epoch chosen on the test set; here on validation."
    )
    k = {"voc2012": 1.5, "coco2014": 2.9, "nuswide-asl": 2.4, "openimages": 2.5}[data]
    tau = 0.65 if labels == "left-75" else 0.6
    known = {
        "complete": ("bce", {}),
        "bce": ("bce", {}),
        "wan": ("wan", {}),
        "an-ls": ("an-ls", {"smoothing": 0.1}),
        "focal": ("focal", {"gamma": 2.0}),
        "asl": ("asl", {"gamma_pos": 0.0, "gamma_neg": 4.0, "margin": 0.05}),
        "hill": ("hill", {"lam": 1.5, "margin": 1.0}),
        "pseudo-label": ("pseudo-label", {"tau": 0.5}),
        "role": ("role", {"expected_positives": k}),
        "focal-margin": ("focal-margin", {"margin": 1.0, "gamma": 2.0}),
        "splc": ("splc", {"tau": tau, "start": 1}),
    }
    if data == "openimages":
        known = {name: known[name] for name in ("bce", "focal", "asl", "hill", "splc")}
    found = {}
    for name, (method, options) in known.items():
        more = " tau is not published: its Fig. 7 shows .4 to .6." * (name == "pseudo-label")
        settings = {**ZHANG, **({"labels": "truth"} if name == "complete" else {})}
        found[name] = ({**settings, "method": method, "options": options}, note + more)
    return found


def any_class() -> dict[str, Recipe]:
    """Any-Class Presence Likelihood: all rows, most of them without any class."""
    note = (
        "Any-Class Presence Likelihood, 6.3 and 6.5, and its code (class balancing, restarts of "
        "the schedule; here one cosine)."
    )
    found = {}
    for base in ("bce", "focal"):
        found[base] = ({**ANY, "method": base, "options": {}}, note)
        balanced = {**ANY, "method": "class-balanced", "options": {"base": base, "beta": 0.9999}}
        found[f"{base}-cb"] = (balanced, note)
        for lam in (0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1):
            term = {"base": base, "alpha": 1.0, "lam": float(lam)}
            found[f"{base}-any-{lam:g}"] = ({**ANY, "method": "any-class", "options": term}, note)
            options = {"base": {"name": "any-class", **term}, "beta": 0.9999}
            both = {**ANY, "method": "class-balanced", "options": options}
            found[f"{base}-cb-any-{lam:g}"] = (both, note)
    return found


SPLIT = " --option split=asl"
# Folder of recipes: the data set and its options, the label setting, the recipes.
TABLES: dict[str, tuple[str, str, str, dict[str, Recipe]]] = {
    **{data: (data, "", "single", single_positive(data)) for data in FOUR},
    "coco2014-left-75": ("coco2014", "", "left-75", labels_left("coco2014", "left-75")),
    "coco2014-left-40": ("coco2014", "", "left-40", labels_left("coco2014", "left-40")),
    "coco2014-zhang": ("coco2014", "", "single", labels_left("coco2014", "single")),
    "voc2012-zhang": ("voc2012", "", "single", labels_left("voc2012", "single")),
    "nuswide-asl": ("nuswide", SPLIT, "single", labels_left("nuswide-asl", "single")),
    "openimages": ("openimages", "", "single", labels_left("openimages", "single")),
    "chestxray14": ("chestxray14", "", "complete", any_class()),
    "sewer-ml": ("sewer-ml", "", "complete", any_class()),
    "coco-41": ("coco-41", "", "complete", any_class()),
}  # fmt: skip


def text(folder: str, name: str) -> str:
    """One recipe: the commands, the published numbers, the source, the settings."""
    data, option, labels, recipes = TABLES[folder]
    settings, note = dict(recipes[name][0]), recipes[name][1]
    shown = "truth" if settings.pop("labels", "") == "truth" else labels
    place = data + option.replace(" --option split=", "-")
    numbers = [
        f"{number.value:g} ({key[3]}; {number.source})"
        for key, number in published_all()
        if key[:3] == (place, labels, name) and _belongs(folder, number.source)
    ]
    head = [
        f"halftruth bench labels {data} ROOT --labels {labels}{option} --out data/{place}",
        f"halftruth train {folder}/{name}.yaml --images IMAGES --out runs/{folder}-{name}",
        "Published: " + ("; ".join(numbers) or "not in the texts at hand"),
        f"Source: {note}",
    ]
    files = {
        "labels": f"data/{place}/{shown}.csv",
        "truth": f"data/{place}/truth.csv",
        "images": [f"data/{place}/images"],
        "reading": {"split_column": "split"},
        "reading_truth": {"split_column": "split", "zero": "unknown"},
    }
    values = {**files, "method": settings.pop("method"), "options": settings.pop("options")}
    body = yaml.safe_dump({**values, **settings}, sort_keys=False, default_flow_style=None)
    return "".join(f"# {line}\n" for line in head) + body


def _belongs(folder: str, source: str) -> bool:
    """Zhang et al. train another way than the others: their numbers go with their recipes."""
    zhang = folder.startswith(("coco2014-", "voc2012-", "nuswide-asl", "openimages"))
    return ("Zhang" in source) == zhang


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    wanted = {FOLDER / f / f"{n}.yaml": text(f, n) for f in TABLES for n in TABLES[f][3]}
    there = set(FOLDER.rglob("*.yaml"))
    wrong = sorted(
        path
        for path in there | wanted.keys()
        if path not in there or path not in wanted or path.read_text() != wanted[path]
    )
    if check:
        sys.exit("\n".join(f"differs: {path.relative_to(FOLDER)}" for path in wrong) or 0)
    for path in there - wanted.keys():
        path.unlink()
    for path, content in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    print(f"{len(wanted)} recipes, {len(wrong)} changed")


if __name__ == "__main__":
    main()
