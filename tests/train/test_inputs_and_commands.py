"""Every kind of input with every command: one tiny run per input, and then all that follows it.

It runs on the GPU of this machine. Where there is none, it runs on a device that takes no tensor of
the CPU (`strict_device`), so that it also finds what would end a run on a GPU.
"""

import base64
import dataclasses
import functools
import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny_data
import torch
import typer
from test_resume_after_crash import Crash, plan_crash
from tiny_data import CLASSES, command

import halftruth
import strict_device
from halftruth import serve
from halftruth.audit.review_server import Review, make_review_app
from halftruth.cli.app import app
from halftruth.data import write_shards
from halftruth.train.config import Config
from halftruth.train.ensemble import member_fits, members
from halftruth.train.many_classes import fit_many


@pytest.fixture(autouse=True, scope="module")
def weak_scores_count():
    """Commands on a few rows of noise, which the rule of ranking would refuse."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("halftruth.presence.ranking._ENOUGH", -float("inf"))
        yield


DEVICE = "cuda" if torch.cuda.is_available() else "strict"

ROWS = 44
NETWORK = ("--backbone", "test_efficientnet", "--weights", "none", "--image-size", "32")
TEXTS = {"red": "happy glad", "green": "furious mad", "blue": "scared afraid"}


@pytest.fixture(scope="module", autouse=True)
def device():
    """The option of the device that every command takes."""
    strict = strict_device.as_accelerator() if DEVICE == "strict" else nullcontext()
    with strict, pytest.MonkeyPatch.context() as patch:
        # What is fitted need not be good.
        patch.setattr(member_fits, "RIDGES", (2.0,))
        patch.setattr(members, "_MOST_DEPTH", 4)
        patch.setattr(members, "_LEAF_ROWS", (4,))
        patch.setattr(fit_many, "_STEPS", 20)
        patch.setattr("halftruth.data.wide_matrix.MOST_FEATURES", 16)
        yield ("--device", "auto" if DEVICE == "strict" else DEVICE)


# ---------------------------------------------------------------------- inputs


@dataclass
class Input:
    """The files of an input, and the words that name them on the command line."""

    labels: Path
    # Options of train, beside the label file; those of predict and of evaluate.
    train: tuple[Any, ...]
    predict: tuple[Any, ...]
    evaluate: tuple[Any, ...]
    # The body of a request to the server, for one row.
    request: dict[str, Any]
    # How a label file of this kind is read, if that must be said.
    reading: tuple[Any, ...] = ()
    # Those of an audit by folds, where they differ from those of train.
    folds: tuple[Any, ...] = ()
    # Commands that this input does not have, with the message that says so.
    refused: dict[str, str] = field(default_factory=dict)


def read_png(folder: Path) -> str:
    return base64.b64encode((folder / "photos" / "p0.png").read_bytes()).decode()


def make_images(folder: Path, _: Any) -> Input:
    tiny_data.make_data(folder, ROWS)
    images = ("--images", folder / "photos")
    return Input(
        folder / "labels.csv", (*images, *NETWORK, "-m", "em", "--tune", "head-first",
        "--epochs", 1, "--head-epochs", 1), (folder / "photos",), images,
        {"images": [read_png(folder)]},
    )  # fmt: skip


def make_images_with_columns(folder: Path, _: Any) -> Input:
    tiny_data.make_data(folder, ROWS)
    names = [f"p{k}.png" for k in range(ROWS)]
    table = pd.DataFrame({"image": names, "site": ["a", "b"] * (ROWS // 2), "age": range(ROWS)})
    table.to_csv(folder / "table.csv", index=False)
    both = ("--images", folder / "photos", "--features", folder / "table.csv")
    return Input(
        folder / "labels.csv", (*both, *NETWORK, "-m", "em", "--epochs", 1), both, both,
        {"features": [{"image": "p0.png", "site": "a", "age": 1}]},
        refused={
            "serve": "was trained on images and features; expected them",
            "audit": "expected one of the two for an audit by folds; train a run on both",
        },
    )  # fmt: skip


def make_features(folder: Path, _: Any) -> Input:
    tiny_data.make_data(folder, ROWS)
    # Hints are an input beside the others.
    scores = pd.read_csv(folder / "truth.csv")
    scores[[*CLASSES]] = 0.2 + 0.6 * scores[[*CLASSES]]
    scores.to_csv(folder / "hints.csv", index=False)
    hints = ("--hints", folder / "hints.csv")
    file = ("--features", folder / "features.npy")
    return Input(
        folder / "labels.csv", (*file, *hints), file, (*file, *hints),
        # An audit takes no hints.
        {"features": [[0.1, 0.9, 0.2]]}, folds=file,
    )  # fmt: skip


def make_streamed_features(folder: Path, _: Any) -> Input:
    tiny_data.make_data(folder, ROWS)
    (folder / "parts").mkdir()
    table = pd.DataFrame(np.load(folder / "features.npy"), columns=["x", "y", "z"])
    table.insert(0, "image", [f"p{k}.png" for k in range(ROWS)])
    for part in range(2):
        table[part::2].to_parquet(folder / "parts" / f"{part}.parquet", index=False)
    file = ("--features", folder / "parts")
    return Input(
        folder / "labels.csv", (*file, "--cache", "disk", "-m", "em", "--epochs", 1), file, file,
        {"features": [{"x": 0.1, "y": 0.9, "z": 0.2}]},
        folds=(*file, "--train", "cache=disk", "-m", "em", "--epochs", 1),
    )  # fmt: skip


def make_text(folder: Path, *more: Any) -> Input:
    tiny_data.make_data(folder, ROWS)
    frame, truth = pd.read_csv(folder / "labels.csv"), pd.read_csv(folder / "truth.csv")
    random, fillers = np.random.default_rng(0), [f"{a}{b}" for a in "kmnp" for b in "aeiou"]
    frame.insert(1, "note", [
        " ".join([*random.choice(fillers, 4), *(TEXTS[name] for name in CLASSES if row[name])])
        for _, row in truth.iterrows()
    ])  # fmt: skip
    frame.to_csv(folder / "texts.csv", index=False)
    return Input(
        folder / "texts.csv", ("--text", "note", *more), (folder / "texts.csv",), (),
        {"texts": ["so happy and glad"]},
    )  # fmt: skip


def make_frozen_text(folder: Path, model: Path) -> Input:
    made = make_text(folder, "--encoder", model, "-m", "em", "--epochs", 1)
    # The run needs the encoder, which here is a folder of this machine.
    made.refused = {"hub": "upload it to the Hub and train with its name"}
    return made


def make_tuned_text(folder: Path, model: Path) -> Input:
    short = ("-m", "em", "--epochs", 1, "--head-epochs", 1)
    made = make_text(folder, "--encoder", model, "--tune", "head-first", *short)
    # An audit by folds reads the texts once, with the frozen encoder.
    made.refused = {"audit": "--tune: has no effect"}
    return made


def make_many_classes(folder: Path, _: Any) -> Input:
    random = np.random.default_rng(0)
    np.save(folder / "x.npy", random.normal(size=(100, 4)).astype(np.float32))
    tags = ["|".join(f"t{k}" for k in {row, *random.integers(0, 3000, 30)}) for row in range(100)]
    pd.DataFrame({"id": range(100), "tags": tags}).to_csv(folder / "tags.csv", index=False)
    file = ("--features", folder / "x.npy")
    return Input(
        folder / "tags.csv", file, file, file, {"features": [[0.1, 0.9, 0.2, 0.4]]},
        ("--label-column", "tags"),
    )  # fmt: skip


def make_shards(folder: Path, _: Any) -> Input:
    made = tiny_data.make_data(folder / "made", ROWS)
    truth = pd.read_csv(made / "truth.csv")
    samples = [
        {"image": made / "photos" / row["image"], "labels": [n for n in CLASSES if row[n]]}
        for _, row in truth.iterrows()
    ]
    write_shards(samples, folder / "shards", per_shard=20)
    images = ("--images", folder / "shards")
    return Input(
        folder / "shards", (*images, *NETWORK, "-m", "em", "--tune", "all", "--epochs", 1,
        "--cache", "none", "--workers", 1), (folder / "shards",), images,
        {"images": [read_png(made)]}, ("--label-column", "labels"),
        folds=(*images, *NETWORK, "-m", "em", "--tune", "all", "--epochs", 1,
               "--train", "cache=none", "--train", "workers=1"),
        refused={"repair": "repair writes CSV, TSV and Parquet tables"},
    )  # fmt: skip


INPUTS: dict[str, Callable[..., Input]] = {
    "images": make_images,
    "images with columns": make_images_with_columns,
    "shards": make_shards,
    "dense features and hints": make_features,
    "streamed features": make_streamed_features,
    "text by TF-IDF, in a wide matrix": lambda folder, _: make_text(folder),
    "text by TF-IDF, one method": lambda folder, _: make_text(folder, "-m", "em", "--epochs", 1),
    "text by a frozen encoder": make_frozen_text,
    "text by a tuned encoder": make_tuned_text,
    "thousands of classes": make_many_classes,
}


# ---------------------------------------------------------------------- commands


@dataclass
class Bench:
    """An input, its run, and what the commands wrote."""

    given: Input
    folder: Path
    device: tuple[str, str]

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def __call__(self, *words: Any) -> None:
        assert command(*words) == 0, words

    def refuses(self, capsys: Any, message: str, run: Callable[[], None]) -> None:
        capsys.readouterr()
        with pytest.raises(AssertionError) as refusal:
            run()
        assert message in " ".join([str(refusal.value), *capsys.readouterr()])

    def train_to(self, out: Path, *more: Any) -> None:
        """A label file is named also where a run is resumed."""
        given = self.given
        self("train", given.labels, *given.train, *given.reading, *self.device, "--out", out, *more)


def train(at: Bench) -> None:
    """A run that crashes and is resumed is that without a crash."""
    at.train_to(at.run)
    assert (at.run / "report.html").exists() or "tags" in str(at.given.labels)
    with pytest.MonkeyPatch.context() as patch:
        plan_crash(patch, 2, after=True)
        with pytest.raises(Crash):
            at.train_to(at.folder / "crashed", "--no-report")
    at.train_to(at.folder / "crashed", "--no-report", "--resume")
    ours, theirs = ((at.folder / name / "result.json").read_text() for name in ("run", "crashed"))
    assert json.loads(ours)["thresholds"] == pytest.approx(json.loads(theirs)["thresholds"])


def predict(at: Bench) -> None:
    at("predict", at.run, *at.given.predict, *at.device, "--out", at.folder / "p.csv")
    found = pd.read_csv(at.folder / "p.csv")
    assert len(found) >= ROWS
    assert "labels" in found


def evaluate(at: Bench) -> None:
    words = (*at.given.evaluate, *at.given.reading, *at.device, "--unknown", "absent")
    at("evaluate", at.run, at.given.labels, *words, "--out", at.folder / "scores.json")
    assert json.loads((at.folder / "scores.json").read_text())["metrics"]


def audit(at: Bench) -> None:
    """By folds, which trains again."""
    given = at.given
    words = (*(given.folds or given.train), *given.reading, *at.device, "--folds", 2)
    at("audit", given.labels, *words, "--out", at.folder / "audit")


def audit_run(at: Bench) -> None:
    """Where an audit by folds is refused: by the scores of the run."""
    words = (*at.given.evaluate, *at.given.reading, *at.device)
    at("audit", at.run, at.given.labels, *words, "--out", at.folder / "audit")


def review(at: Bench) -> None:
    """The page is served, and a person decides on a candidate."""
    running = Review(at.folder / "audit")
    try:
        client = make_review_app(running.queue, "token").test_client()
        decision = {"ids": [0], "verdict": "accept", "tab": "a"}
        made = client.post("/token/decide", json=decision, base_url="http://127.0.0.1:5000")
        assert (made.status_code, made.json["accepted"]) == (200, 1)
    finally:
        running.close()


def repair(at: Bench) -> None:
    """With the decision of the review."""
    at("repair", at.folder / "audit", "--out", at.folder / f"repaired{at.given.labels.suffix}")


def export(at: Bench) -> None:
    at("export", at.run, "--out", at.folder / "model.pt2")


def serve_rows(at: Bench) -> None:
    run = halftruth.load(at.run, device=at.device[1])
    answer = serve.make_app(run).test_client().post("/predict", json=at.given.request)
    assert answer.status_code == 200, answer.json["error"]
    assert len(answer.json["predictions"]) == 1


def hub(at: Bench) -> None:
    """The shared folder predicts alone: the files of training are not needed."""
    at("hub", "folder", at.run, "--out", at.folder / "shared")
    shutil.move(at.run, at.folder / "moved")
    out = at.folder / "q.csv"
    at("predict", at.folder / "shared", *at.given.predict, *at.device, "--out", out)
    assert out.read_text() == (at.folder / "p.csv").read_text()


# The servers, and what needs a decision made on a page.
OF_FLASK, HAS_FLASK = ("review", "repair", "serve"), find_spec("flask") is not None
# In this order: each uses what those before it wrote.
COMMANDS = {
    "train": train, "predict": predict, "evaluate": evaluate, "audit": audit, "review": review,
    "repair": repair, "export": export, "serve": serve_rows, "hub": hub,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", INPUTS)
def test_every_command_takes_this_input(name, tmp_path, device, request, capsys):
    model = request.getfixturevalue("language_model") if "encoder" in name else None
    (tmp_path / "data").mkdir()
    at = Bench(INPUTS[name](tmp_path / "data", model), tmp_path, device)
    for word, run in COMMANDS.items():
        if word in OF_FLASK and not HAS_FLASK:
            continue
        if word not in at.given.refused:
            run(at)
            continue
        at.refuses(capsys, at.given.refused[word], functools.partial(run, at))
        if word == "audit":
            audit_run(at)
    if not HAS_FLASK:
        pytest.skip(f"all but {', '.join(OF_FLASK)} passed; these need flask")


# Commands that do not read the inputs of a run; `calibrate` has tests of its own.
OTHERS = {"bench", "calibrate", "data", "decide", "demo", "import-verdicts", "methods", "plan",
          "plot", "tune"}  # fmt: skip
# Settings of the group Data that are not an input of the model, but labels, parts or folders.
NO_INPUT = {
    "labels", "out", "truth", "verdicts", "complete_rows", "hint_names", "reading",
    "reading_truth", "reading_features", "val", "group_column", "bad_images",
}  # fmt: skip


def test_the_table_has_every_command_and_every_input(tmp_path):
    known = typer.main.get_command(app).commands
    assert known.keys() == COMMANDS.keys() | OTHERS
    data = {f.name for f in dataclasses.fields(Config) if f.metadata["setting"].group == "Data"}
    used = set()
    for number, make in enumerate(INPUTS.values()):
        (tmp_path / str(number)).mkdir()
        used |= {word for word in make(tmp_path / str(number), "m").train if str(word)[:2] == "--"}
    assert {name for name in data - NO_INPUT if "--" + name not in used} == set()
