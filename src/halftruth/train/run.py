"""`fit`: from a configuration to a trained run in a folder."""

import csv
import hashlib
import json
import math
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor

from halftruth import losses
from halftruth.data.transforms import Augment
from halftruth.metrics import evaluate as score_labels
from halftruth.metrics import thresholds
from halftruth.metrics.counts import UndefinedMetricWarning
from halftruth.models import (
    Classifier,
    build_feature_model,
    build_image_model,
    freeze_batchnorm,
    set_standardization,
    transfer_head,
)
from halftruth.train import checkpoint
from halftruth.train.config import READING, Config, ConfigError
from halftruth.train.inputs import Features, Images, Inputs, decode, stamp
from halftruth.train.journal import Journal
from halftruth.train.scores import outputs
from halftruth.train.stage import Interrupted, Stage
from halftruth.train.task import Task, load_task, without


@dataclass
class Result:
    """What a run came to; also in the run's result.json."""

    folder: Path
    method: str
    classes: tuple[str, ...]
    best_stage: str
    best_epoch: int
    best_score: float
    thresholds: list[float]
    val: dict[str, float] = field(default_factory=dict)
    test: dict[str, float] = field(default_factory=dict)
    bad_images: list[tuple[str, str]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "folder": str(self.folder), "classes": list(self.classes)}

    def describe(self) -> str:
        """The outcome in two or three lines."""
        lines = [f"best: stage {self.best_stage}, epoch {self.best_epoch + 1}"]
        for name, scores in (("validation", self.val), ("test", self.test)):
            if scores:
                shown = ", ".join(f"{key} {100 * scores[key]:.2f}" for key in ("mAP", "CF1", "OF1"))
                lines.append(f"{name}: {shown}")
        return "\n".join([*lines, f"everything is in {self.folder}"])


def fit(
    labels: str | Path | Config | None = None,
    images: str | Path | list[str] | None = None,
    *,
    resume: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> Result:
    """Train on a label file and a folder of images (or features), as `halftruth train` does.

    `settings` are the fields of `Config`; options of `read_labels` (such as `label_column` or
    `zero`) may stand among them. The run's folder (`out`) then holds config.yaml, metrics.jsonl,
    best.safetensors, last.safetensors and result.json.

        result = halftruth.fit("labels.csv", "photos/", method="em", out="runs/first")
        result.val["mAP"]
    """
    if isinstance(labels, Config):
        config = Config.of({**labels.to_dict(), **settings})
    else:
        values = collect(settings)
        if labels is not None:
            values["labels"] = str(labels)
        if images is not None:
            values["images"] = images
        if resume and "labels" not in values:
            return resume_run(Path(values.pop("out")), quiet=quiet, **values)
        config = Config.of(values)
    return Run(config, quiet=quiet).go(resume=resume)


def resume_run(folder: Path, quiet: bool = False, **settings: Any) -> Result:
    """Go on with the run in a folder, by its own config.yaml and what is set anew."""
    return Run(load_settings(folder, {**settings, "out": str(folder)}), quiet=quiet).go(resume=True)


def collect(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with the options of `read_labels` among them put in their place."""
    values = dict(settings)
    reading = dict(values.pop("reading", {}))
    for name in READING:
        if name in values:
            reading[name] = values.pop(name)
    return {**values, "reading": reading} if reading else values


def read_settings(source: Path) -> dict[str, Any]:
    """The settings of a recipe, of a config.yaml, or of the run in a folder."""
    path = source / "config.yaml" if source.is_dir() else source
    if not path.is_file():
        raise checkpoint.CheckpointError(f"{source} holds no run: there is no {path}")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        raise ConfigError([f"{path} is not YAML: {error}"]) from error
    if not isinstance(values, dict):
        raise ConfigError([f"{path}: expected `name: value` lines, got {type(values).__name__}"])
    return collect(values)


def load_settings(source: Path | None, settings: dict[str, Any]) -> Config:
    """A checked configuration: a recipe's settings, if any, overruled by `settings`."""
    values = {} if source is None else read_settings(source)
    for name in ("reading", "reading_truth", "options"):
        if name in values and name in settings:
            settings = {**settings, name: {**values[name], **settings[name]}}
    return Config.of({**values, **settings})


class Run:
    """A configuration being carried out."""

    def __init__(self, config: Config, quiet: bool = False) -> None:
        self.config = config
        self.folder = Path(config.out)
        self.accelerator = make_accelerator(config)
        self.main = self.accelerator.is_main_process
        self.quiet = quiet

    def go(self, resume: bool = False) -> Result:
        """Read, build, train each stage, keep the best, measure it."""
        config = self.config
        last = self.folder / "last.safetensors"
        saved = checkpoint.load(last) if resume and last.exists() else None
        if not resume and last.exists():
            raise checkpoint.CheckpointError(
                f"{self.folder} holds a run already: go on with it (--resume), or choose another "
                "folder (--out)"
            )
        torch.manual_seed(config.seed)
        task = load_task(config)
        self.folder.mkdir(parents=True, exist_ok=True)
        journal = Journal(
            self.folder, main=self.main, quiet=self.quiet, tensorboard=config.tensorboard
        )
        journal.say(task.describe())
        model, inputs, bad = self._build(task, journal)
        identity = {
            "classes": list(task.classes),
            "backbone": config.backbone if task.features is None else "features",
            "method": config.method,
            "tune": config.tune,
            "rows": len(task.labels.values),
            "inputs": None if task.features is None else task.features.shape[1],
        }
        if saved is not None:
            for what, here in identity.items():
                checkpoint.same(what, saved["identity"].get(what), here, last)
        elif self.main:
            text = yaml.safe_dump(config.to_dict(), sort_keys=False, allow_unicode=True)
            (self.folder / "config.yaml").write_text(text, encoding="utf-8")
            (self.folder / "metrics.jsonl").unlink(missing_ok=True)
        with stop_signals() as stop_asked:
            common = {"journal": journal, "identity": identity, "stop_asked": stop_asked}
            try:
                stage = self._train(task, model, inputs, saved, **common)
            except Interrupted:
                journal.say(
                    "stopped; everything is saved. Go on with:\n"
                    f"  halftruth train --resume --out {self.folder}"
                )
                raise
            finally:
                journal.close()
        with warnings.catch_warnings():
            # A class that occurs nowhere in a part is no news here: `data check` tells of it.
            warnings.simplefilter("ignore", UndefinedMetricWarning)
            result = self._measure(task, model, inputs, stage)
        result.bad_images = bad
        if self.main:
            text = json.dumps(result.to_dict(), indent=1)
            (self.folder / "result.json").write_text(text, encoding="utf-8")
        journal.say(result.describe())
        return result

    # ------------------------------------------------------------------ building

    def _build(
        self, task: Task, journal: Journal
    ) -> tuple[Classifier, Inputs, list[tuple[str, str]]]:
        config = self.config
        if task.features is not None:
            features = torch.from_numpy(task.features)
            model = build_feature_model(
                features.shape[1], len(task.classes), hidden=config.hidden, dropout=config.dropout
            )
            set_standardization(model, features[torch.from_numpy(task.splits.train)])
            return model, Features(features), []
        model = build_image_model(
            config.backbone,
            len(task.classes),
            weights=config.weights,
            image_size=config.image_size,
            head=config.head,
            dropout=config.dropout,
        )
        inputs, bad = image_inputs(config, task, model, journal, self.accelerator)
        if bad:
            self._leave_out(task, bad, journal)
        return model, inputs, bad

    def _leave_out(self, task: Task, bad: list[tuple[str, str]], journal: Journal) -> None:
        names = {name: row for row, name in enumerate(task.names)}
        task.splits = without(task.splits, np.array([names[name] for name, _ in bad]))
        journal.say(f"{len(bad):,} images cannot be read and are left out: see bad_images.csv")
        if self.main:
            with (self.folder / "bad_images.csv").open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([("image", "reason"), *bad])

    # ------------------------------------------------------------------ training

    def _train(
        self,
        task: Task,
        model: Classifier,
        inputs: Inputs,
        saved: dict[str, Any] | None,
        **common: Any,
    ) -> Stage:
        """Head first, on features extracted once, then everything; or one of the two."""
        tune = self.config.tune if task.features is None else "all"
        plan = {"head": ["head"], "all": ["all"], "head-first": ["head", "all"]}[tune]
        reached = plan.index(saved["progress"]["stage"]) if saved is not None else 0
        best = -math.inf
        for number, name in enumerate(plan):
            if number < reached:
                continue
            if name == "head":
                features = self._extract(task, model, inputs, common["journal"])
                small = build_feature_model(
                    model.feature_dim, len(task.classes), dropout=self.config.dropout
                )
                set_standardization(small, features[torch.from_numpy(task.splits.train)])
                stage = self._stage(name, task, small, Features(features), **common)
            else:
                if self.config.freeze_bn and task.features is None:
                    freeze_batchnorm(model)
                stage = self._stage(name, task, model, inputs, **common)
                # Training everything has to beat the head alone, or the head alone is kept.
                stage.progress.best = best
            if saved is not None and number == reached:
                stage.resume(saved)
            stage.run()
            best = stage.progress.best
            if name == "head":
                self._take_head(small, model, stage)
                common["earlier_records"] = stage.progress.records
        return stage

    def _stage(
        self, name: str, task: Task, model: Classifier, inputs: Inputs, **common: Any
    ) -> Stage:
        config = self.config
        on_features = name == "head" or task.features is not None
        truth = None if task.truth is None else torch.from_numpy(task.truth)
        return Stage(
            name=name,
            model=model,
            inputs=inputs,
            loss=losses.create(config.method, **config.options),
            labels=torch.from_numpy(task.labels.values),
            truth=truth,
            train_rows=task.splits.train,
            val_rows=task.splits.val,
            config=config,
            accelerator=self.accelerator,
            folder=self.folder,
            epochs=config.head_epochs if name == "head" else config.epochs,
            lr=config.head_lr if on_features else config.lr,
            head_lr=config.head_lr if on_features else config.lr,
            select_on_truth=selects_on_truth(config),
            **common,
        )

    def _extract(self, task: Task, model: Classifier, inputs: Inputs, journal: Journal) -> Tensor:
        """Features of all rows, once; kept on disk for the next run over the same images."""
        config, rows = self.config, np.sort(np.concatenate([*vars(task.splits).values()]))
        folder = Path(config.cache_dir) if config.cache_dir else self.folder
        path = folder / f"features-{features_key(config, task, model)}.npy"
        self.accelerator.wait_for_everyone()
        if path.exists():
            return torch.from_numpy(np.load(path))
        model.to(self.accelerator.device).eval()
        journal.say(f"extracting features of {len(rows):,} images with {config.backbone}")
        some = outputs(model.features, inputs, rows, self.accelerator, 2 * config.batch_size).cpu()
        features = torch.zeros(len(task.labels.values), some.shape[1])
        features[torch.from_numpy(rows)] = some
        if self.main:
            folder.mkdir(parents=True, exist_ok=True)
            new = path.with_name(f".{path.name}.{os.getpid()}.npy")
            np.save(new, features.numpy())
            os.replace(new, path)
        self.accelerator.wait_for_everyone()
        return features

    def _take_head(self, small: Classifier, model: Classifier, stage: Stage) -> None:
        """Put the best head of the first stage onto the backbone, and keep the two as the best."""
        best = stage.best()
        if "head_only" in best:
            small.load_state_dict(best["model"])
            transfer_head(small, model)
            if self.main:
                whole = {**best, "model": model.state_dict()}
                stage.keep({key: value for key, value in whole.items() if key != "head_only"})
        else:
            model.load_state_dict(best["model"])
        self.accelerator.wait_for_everyone()

    # ------------------------------------------------------------------ measuring

    def _measure(self, task: Task, model: Classifier, inputs: Inputs, stage: Stage) -> Result:
        """The best weights on validation and test; thresholds from validation only."""
        config = self.config
        best = stage.best()
        model.load_state_dict(best["model"])
        model.to(self.accelerator.device).eval()
        observed = task.labels.values
        judged = observed if task.truth is None else task.truth
        selected = judged if selects_on_truth(config) else observed

        def probabilities(rows: np.ndarray) -> np.ndarray:
            logits = outputs(model, inputs, rows, self.accelerator, 2 * config.batch_size)
            return torch.sigmoid(logits.double()).cpu().numpy()

        splits = task.splits
        val = probabilities(splits.val)
        cuts = thresholds.best(val, selected[splits.val])
        result = Result(
            folder=self.folder,
            method=config.method,
            classes=task.classes,
            best_epoch=int(best["epoch"]),
            best_stage=best["stage"],
            best_score=stage.progress.best,
            thresholds=[float(cut) for cut in cuts],
            val=score_labels(val, judged[splits.val], threshold=cuts),
        )
        if len(splits.test):
            result.test = score_labels(
                probabilities(splits.test), judged[splits.test], threshold=cuts
            )
        return result


def selects_on_truth(config: Config) -> bool:
    """Whether epochs are chosen on complete labels."""
    return config.select == "truth" or (config.select == "auto" and config.truth is not None)


def image_inputs(
    config: Config, task: Task, model: Classifier, journal: Journal, accelerator: Accelerator
) -> tuple[Images, list[tuple[str, str]]]:
    """The task's images, decoded once at the model's size, and the bad ones."""
    assert task.store is not None
    names, size = task.names, model.image_size
    with (
        accelerator.main_process_first(),
        journal.progress("reading images", len(names)) as advance,
    ):
        pixels, bad = decode(
            task.store,
            names,
            size,
            cache=config.cache,
            folder=Path(config.cache_dir or Path(config.out) / "cache"),
            workers=max(config.workers, 1),
            on_bad=config.bad_images,  # type: ignore[arg-type]
            shared=accelerator.num_processes > 1,
            progress=advance,
        )
    images = Images(
        task.store,
        names,
        size,
        augment=Augment.preset(config.augment, size, model.mean, model.std),
        workers=config.workers,
        pixels=pixels,
    )
    return images, bad


def features_key(config: Config, task: Task, model: Classifier) -> str:
    """What a file of features depends on, as a name."""
    assert task.store is not None
    weights: Any = config.weights
    if weights not in ("pretrained", "none"):
        facts = os.stat(weights)
        weights = [weights, facts.st_size, facts.st_mtime_ns]
    seed = config.seed if config.weights == "none" else None
    parts = [config.backbone, weights, seed, model.image_size, task.names, stamp(task.store)]
    return hashlib.sha1(json.dumps(parts).encode()).hexdigest()[:16]


def make_accelerator(config: Config) -> Accelerator:
    """Device and precision: bf16 on a GPU that has it, nothing but float32 on a CPU."""
    precision = config.precision
    on_cpu = config.device == "cpu" or not torch.cuda.is_available()
    if precision == "auto":
        precision = "bf16" if not on_cpu and torch.cuda.is_bf16_supported() else "no"
    # Accelerate keeps one state a process: a second run may ask for another precision.
    AcceleratorState._reset_state(reset_partial_state=config.device == "cpu" and not _distributed())
    return Accelerator(mixed_precision=precision, cpu=config.device == "cpu")


def _distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM become a request that is met after the step; a second Ctrl-C is not."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def ask(number: int, frame: Any) -> None:
        if asked.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
