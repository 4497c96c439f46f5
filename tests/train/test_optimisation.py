"""Schedules, parameter groups, penalties, early stopping, parts and batches."""

import numpy as np
import pandas as pd
import pytest
import torch
from tiny_data import outcome, records

from halftruth import fit
from halftruth.losses import create
from halftruth.models import build_feature_model, build_image_model
from halftruth.train import Config
from halftruth.train.devices import OneProcess
from halftruth.train.inputs.batches import Batches, seed_step
from halftruth.train.run import Run
from halftruth.train.run_folder import load_checkpoint
from halftruth.train.step import (
    Learner,
    compute_learning_rate_factor,
    has_grouped_convolutions,
    make_groups,
    make_optimizer,
)
from halftruth.train.trainer import Trainer


def rates(schedule, steps, warmup):
    return np.array(
        [compute_learning_rate_factor(schedule, step, steps, warmup) for step in range(steps)]
    )


@pytest.mark.parametrize(("steps", "warmup"), [(101, 0.2), (50, 0.3), (7, 0.5)])
def test_one_cycle_equals_torch(steps, warmup):
    """torch counts its cycle in steps as well; its first phase ends at pct · steps − 1."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    share = (warmup * (steps - 1) + 1) / steps
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=1.0, total_steps=steps, pct_start=share, cycle_momentum=False
    )
    expected = []
    for _ in range(steps):
        expected.append(cycle.get_last_lr()[0])
        optimizer.step()
        cycle.step()
    assert rates("one-cycle", steps, warmup) == pytest.approx(expected, abs=1e-9)


def test_cosine_rises_linearly_and_falls_to_zero():
    found = rates("cosine", 41, 0.25)
    assert np.diff(found[:11]) == pytest.approx(np.full(10, found[1] - found[0]))
    assert found[10] == pytest.approx(1.0)
    assert found[25] == pytest.approx(0.5)
    assert found[40] == pytest.approx(0.0)
    assert (np.diff(found[10:]) < 0).all()


@pytest.mark.parametrize("schedule", ["one-cycle", "cosine", "constant"])
@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("warmup", [0.0, 0.2, 0.99])
def test_short_runs_have_positive_learning_rates(schedule, steps, warmup):
    found = rates(schedule, steps, warmup)
    assert ((found >= 0) & (found <= 1)).all()
    assert found.max() > 0.03


def test_learning_rate_and_weight_decay_per_group():
    model = build_image_model("test_efficientnet", 3, weights="none", image_size=32)
    config = Config(weight_decay=0.1)
    groups = {g["name"]: g for g in make_groups(model, create("bce"), 1e-3, 1e-2, config)}
    found = {name: (g["lr"], g["weight_decay"]) for name, g in groups.items()}
    assert found == {
        "backbone/decay": (1e-3, 0.1),
        "backbone/no-decay": (1e-3, 0.0),
        "head/decay": (1e-2, 0.1),
        "head/no-decay": (1e-2, 0.0),
    }


def test_parameters_of_a_loss_have_their_own_group():
    model, loss = build_feature_model(3, 2), create("role", expected_positives=1.0, lr_mult=7.0)
    loss.begin(torch.tensor([[1, 0], [0, 1]], dtype=torch.int8))
    groups = make_groups(model, loss, 1e-3, 1e-3, Config(weight_decay=0.1))
    assert groups[-1]["params"][0] is loss.estimator
    assert groups[-1]["full_lr"] == pytest.approx(7e-3)
    assert groups[-1]["weight_decay"] == 0.0


def test_the_head_has_its_own_learning_rate_in_the_second_stage(on_images, tmp_path, monkeypatch):
    seen = {}
    run = Trainer.run

    def recorded(self):
        seen[self.name] = {g["name"]: g["full_lr"] for g in self.learner.optimizer.param_groups}
        return run(self)

    monkeypatch.setattr(Trainer, "run", recorded)
    fit(**on_images, head_lr_mult=10, out=tmp_path / "run", quiet=True)
    assert seen["head"] == {"head/decay": 0.01, "head/no-decay": 0.01}
    assert seen["all"]["backbone/decay"] == pytest.approx(0.001)
    assert seen["all"]["head/decay"] == pytest.approx(0.01)


def step_by_hand(config, lr=0.5, rate=1.0, weight=1.0, accelerator=None):
    """Return the change of the weights by one step of SGD, the gradients, the first weights."""
    torch.manual_seed(0)
    model, loss = build_feature_model(4, 3), create("bce")
    start = [p.detach().clone() for p in model.parameters()]
    x, labels = torch.randn(5, 4), torch.randint(0, 2, (5, 3), dtype=torch.int8)
    gradients = torch.autograd.grad(loss(model(x), labels), list(model.parameters()))
    learner = Learner(model, loss, accelerator or OneProcess(), config, lr, lr)
    learner.step(x, labels, None, weight, rate)
    moved = [(p.detach() - s) for p, s in zip(model.parameters(), start, strict=True)]
    return moved, gradients, start


def test_rate_weight_l1_and_decay_in_one_step():
    config = Config(optimizer="sgd", ema=0.0, l1=0.01, weight_decay=0.1)
    moved, gradients, start = step_by_hand(config, lr=0.5, rate=0.2, weight=0.5)
    for move, gradient, value in zip(moved, gradients, start, strict=True):
        decay = 0.1 * value if value.ndim > 1 else 0.0
        expected = -0.5 * 0.2 * (0.5 * (gradient + 0.01 * value.sign()) + decay)
        torch.testing.assert_close(move, expected)


class Clipping(OneProcess):
    def clip_grad_norm_(self, parameters, norm):
        torch.nn.utils.clip_grad_norm_(parameters, norm)


def test_clipping_bounds_the_step():
    config = Config(optimizer="sgd", ema=0.0, clip=1e-3)
    moved, _, _ = step_by_hand(config, lr=1.0, accelerator=Clipping())
    assert float(torch.cat([m.flatten() for m in moved]).norm()) == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_optimisers_by_name(name):
    made = make_optimizer(name, [{"params": [torch.zeros(1)], "lr": 0.1}], torch.device("cpu"))
    assert type(made).__name__.lower() == name


def test_the_moving_average_does_not_change_training(on_features, tmp_path):
    fit(**on_features, ema=0.0, out=tmp_path / "off", quiet=True)
    fit(**on_features, ema=0.9, out=tmp_path / "on", quiet=True)
    off, on = (load_checkpoint(tmp_path / r / "last.safetensors") for r in ("off", "on"))
    assert off["ema"] is None
    # The same training; only the evaluated model differs.
    name = "head.linear.weight"
    assert torch.equal(off["model"][name], on["model"][name])
    assert not torch.equal(on["ema"]["module." + name], on["model"][name])


def test_patience_stops_a_stage(on_features, tmp_path):
    settings = {**on_features, "method": "wan", "epochs": 40, "head_lr": 0.3}
    settings["patience"] = 3
    result = fit(**settings, out=tmp_path / "run", quiet=True)
    epochs = len(records(tmp_path / "run"))
    assert epochs < 40
    assert epochs == result.best_epoch + 3


@pytest.mark.parametrize(
    ("select", "key"),
    [
        ("truth", "val_mAP"),
        ("auto", "val_mAP"),
        ("observed", "val_mAP_observed"),
        ("auc", "val_AUC_observed"),
        ("both", "val_both_observed"),
    ],
)
def test_the_epoch_is_chosen_by_the_setting_select(on_features, data, tmp_path, select, key):
    settings = {**on_features, "truth": str(data / "truth.csv"), "epochs": 12, "head_lr": 0.2}
    settings["method"] = "wan"
    result = fit(**settings, select=select, out=tmp_path / "run", quiet=True)
    series = [record[key] for record in records(tmp_path / "run")]
    assert result.best_epoch == 1 + int(np.argmax(series))
    assert (result.criterion, result.best_score) == (key, max(series))
    # With any criterion, the metrics of the result use the complete labels.
    assert result.val["mAP"] == pytest.approx(
        records(tmp_path / "run")[result.best_epoch - 1]["val_mAP"], abs=1e-9
    )


def test_without_a_split_column_there_is_no_test(data, tmp_path):
    table = pd.read_csv(data / "labels.csv").drop(columns="split")
    table.to_csv(tmp_path / "labels.csv", index=False)
    result = fit(
        tmp_path / "labels.csv",
        features=str(data / "features.npy"),
        device="cpu",
        method="em",
        epochs=1,
        val=0.25,
        out=tmp_path / "run",
        quiet=True,
    )
    assert result.test == {}
    assert outcome(tmp_path / "run")["test"] == {}


def test_groups_stay_together(data, tmp_path):
    table = pd.read_csv(data / "labels.csv").drop(columns="split")
    table["patient"] = [f"n{row % 9}" for row in range(len(table))]
    table.to_csv(tmp_path / "labels.csv", index=False)
    config = Config.of(
        {
            "labels": str(tmp_path / "labels.csv"),
            "features": str(data / "features.npy"),
            "group_column": "patient",
            "device": "cpu",
            "method": "em",
            "epochs": 1,
            "out": str(tmp_path / "run"),
        }
    )
    task = Run(config, quiet=True).go().details.task
    splits, patients = task.splits, table["patient"].to_numpy()
    assert len(splits.val) > 0
    assert not set(patients[splits.train]) & set(patients[splits.val])
    assert task.classes == ("red", "green", "blue")


def test_precision_and_recall_of_pseudo_labels_with_complete_labels(on_features, data, tmp_path):
    settings = {**on_features, "method": "em-apl", "options": {"warmup": 1, "theta": 0.5}}
    fit(**settings, truth=str(data / "truth.csv"), out=tmp_path / "run", quiet=True)
    last = records(tmp_path / "run")[-1]
    assert 0 < last["pseudo_negative_precision"] <= 1
    assert 0 < last["pseudo_negative_recall"] <= 1
    # em-apl gives negative pseudo-labels only.
    assert last["pseudo_positive_precision"] is None
    assert last["pseudo_positive_recall"] == 0


@pytest.mark.parametrize("world", [1, 2, 3])
def test_the_batches_of_an_epoch_have_every_row_once(world):
    rows = np.arange(100, 123)
    parts = [Batches(rows, 5, seed=1, rank=rank, world=world) for rank in range(world)]
    for epoch in range(3):
        seen, weights = [], []
        for batches in parts:
            batches.epoch = epoch
            for step, mine in enumerate(batches):
                weight = batches.weight(step)
                weights.append(weight)
                assert set(mine) <= set(batches.get_rows_of_step(epoch, step))
                seen += list(mine) if weight else []
        assert sorted(seen) == list(rows)
        assert sum(weights) == pytest.approx(world * parts[0].steps)
    assert list(parts[0].get_rows_of_step(0, 0)) != list(parts[0].get_rows_of_step(1, 0))


def test_every_step_and_process_has_its_own_random_numbers():
    drawn = set()
    for seed, epoch, step, rank in np.ndindex(2, 3, 3, 2):
        seed_step(seed, epoch, step, rank, torch.device("cpu"))
        drawn.add(float(torch.rand(1)))
    assert len(drawn) == 36


@pytest.mark.parametrize(
    ("backbone", "grouped"), [("resnet18", False), ("tf_efficientnet_lite0", True)]
)
def test_grouped_convolutions_are_found(backbone, grouped):
    model = build_image_model(backbone, 2, weights="none", image_size=64)
    assert has_grouped_convolutions(model) is grouped
