"""Runs and labels shared by the tests of figures."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from halftruth.labels import LabelMatrix
from halftruth.train.records import count_class_histograms, describe_part


def class_names(count: int) -> list[str]:
    """Names of very different lengths."""
    return [f"has_some_part_of_a_bird::kind_{k}" if k % 3 else f"c{k}" for k in range(count)]


@pytest.fixture
def labels():
    """Observed and complete labels of 300 rows and any number of classes."""

    def make(classes: int) -> tuple[LabelMatrix, np.ndarray]:
        random = np.random.default_rng(classes)
        share = 0.5 * np.exp(-np.arange(classes) / (classes / 3))
        truth = np.where(random.random((300, classes)) < share, 1, -1).astype(np.int8)
        shown = np.where((truth > 0) & (random.random(truth.shape) < 0.4), 1, 0)
        return LabelMatrix(shown, tuple(class_names(classes))), truth

    return make


@pytest.fixture
def make_run(tmp_path, labels):
    """A run folder as `train` writes it, without training; scores improve every epoch."""

    def make(name: str, classes: int = 5, epochs: int = 3, known: bool = True, **config) -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        observed, complete = labels(classes)
        given, truth = torch.from_numpy(observed.values), torch.from_numpy(complete)
        noise = torch.randn(given.shape, generator=torch.Generator().manual_seed(len(name)))
        settings = {"method": "em", "options": {}, "head_epochs": 12, "epochs": epochs, **config}
        (folder / "config.yaml").write_text(yaml.safe_dump(settings))
        metrics, counts = [], []
        for epoch in range(epochs):
            logits = noise + (epoch + 1) * (0.4 * truth + 0.4 * given) - 1
            record = {"stage": "all", "epoch": epoch + 1, "loss": 1 / (epoch + 1), "seconds": 0.5}
            record |= {"val_mAP_observed": 0.3 + 0.1 * epoch}
            record |= {"val_mAP": 0.4 + 0.1 * epoch} if known else {}
            line = {"stage": "all", "epoch": epoch + 1}
            for part in ("train", "val") if known else ("val",):
                numbers, line[part] = describe_part(
                    part, logits, given, truth if known else None, 0.6
                )
                record |= numbers
            metrics.append(json.dumps(record))
            counts.append(json.dumps(line))
        (folder / "metrics.jsonl").write_text("\n".join(metrics) + "\n")
        (folder / "histograms.jsonl").write_text("\n".join(counts) + "\n")
        result = {"best_stage": "all", "best_epoch": epochs}
        (folder / "result.json").write_text(json.dumps(result))
        frequent = (observed.values > 0).sum(axis=0)
        pd.DataFrame(
            {"class": observed.classes, "train_present": frequent, "val_AP": 0.2 + frequent / 400}
        ).to_csv(folder / "classes.csv", index=False)
        p = torch.sigmoid(logits).numpy()
        hidden = count_class_histograms(p, observed.values, complete if known else None)
        np.savez_compressed(folder / "class_histograms.npz", val=hidden)
        return folder

    return make
