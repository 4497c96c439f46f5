"""The stages of a network: the head on extracted features, the whole network, or both."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from halftruth import losses
from halftruth.losses import Loss
from halftruth.models import Classifier, freeze_batchnorm, transfer_head
from halftruth.models.averaged import average_classifiers, build_averaged
from halftruth.train.build_models import build_head, build_standardized_head
from halftruth.train.inputs.batches import Features, Inputs
from halftruth.train.plans.plan import Work
from halftruth.train.records import CRITERIA
from halftruth.train.run_folder import HEAD, load_checkpoint
from halftruth.train.trainer import Progress, Teacher, Trainer

STAGES = {"head": ("head",), "all": ("all",), "head-first": ("head", "all")}
# The weights that are kept: this share of the trained network, the rest of the network before.
SHARES = (0.25, 0.5, 0.75)
# Biases are fitted on at most so many labels.
_MOST_LABELS = 1 << 22


@dataclass
class Stages:
    """The stages of a run: `train` runs them, `load_best` returns the best model."""

    work: Work
    stop_asked: Callable[[], bool]
    teacher: Teacher | None = None
    # Fits an ensemble to features before training; with `quality` best, it is averaged with.
    fit_frozen: Callable[[Tensor], tuple[Classifier, dict[str, object]]] | None = None

    def train(self, model: Classifier, inputs: Inputs) -> Progress:
        """Run all stages, from the checkpoint on if there is one."""
        saved, config = self.work.saved, self.work.config
        plan = STAGES[config.tune if self._trains_network else "all"]
        reached = 0 if saved is None else plan.index(saved["progress"]["stage"])
        before, head, start = Progress(""), dict[str, Any](), dict[str, Tensor]()
        for number, name in enumerate(plan):
            if number < reached:
                continue
            if name == "all" and number:
                start = self._load_start(model)
            make_stage = self._make_head_stage if name == "head" else self._make_full_stage
            stage = make_stage(model, inputs)
            # If the whole network is not better than the head alone, the head is kept.
            stage.progress.best, stage.progress.kept = before.best, before.kept
            stage.progress.floor = before.kept
            stage.progress.records = before.records
            stage.loss.load_carried_state(head)
            if saved is not None and number == reached:
                stage.resume(saved)
            before = stage.run()
            if name == "head":
                head = self._transfer_head(stage, model)
            elif start and config.select == "averaged":
                self._interpolate(stage, model, start)
            if start and self.fit_frozen is not None:
                self._average_with_frozen(stage, model, start, self.fit_frozen)
        return before

    @property
    def _trains_network(self) -> bool:
        """Whether a network is trained, on images or text, not only a head on features."""
        return self.work.task.features is None or self.work.config.tunes_encoder

    def load_best(
        self, model: Classifier, inputs: Inputs
    ) -> tuple[dict[str, object], Classifier, Inputs]:
        """Return the best checkpoint, the model with its weights, and the inputs of that model.

        A head alone is evaluated on the features extracted before, not on the images again.
        """
        best = self.work.open_checkpoints().best()
        if "layout" in best:
            model = build_averaged(model, best["layout"])
        model.load_state_dict(best["model"])
        if best["stage"] != "head":
            return best, model, inputs
        features = self.work.extract_features(model, inputs)
        small = build_standardized_head(self.work.config, self.work.task, features)
        small.load_state_dict(load_checkpoint(self.work.folder / HEAD)["model"])
        return best, small, Features(features)

    # ------------------------------------------------------------------ one stage

    def _make_head_stage(self, model: Classifier, inputs: Inputs) -> Trainer:
        features = self.work.extract_features(model, inputs)
        small = build_standardized_head(self.work.config, self.work.task, features)
        return self._make_stage("head", small, Features(features))

    def _make_full_stage(self, model: Classifier, inputs: Inputs) -> Trainer:
        if self.work.config.freeze_bn and self.work.task.features is None:
            freeze_batchnorm(model)
        return self._make_stage("all", model, inputs)

    def _make_stage(self, name: str, model: Classifier, inputs: Inputs) -> Trainer:
        work, config, task = self.work, self.work.config, self.work.task
        on_features = name == "head" or not self._trains_network
        lr = config.head_lr if on_features else config.lr
        loss = losses.create(config.method, **config.options)
        loss = loss.for_single_view() if name == "head" else loss
        return Trainer(
            name=name,
            model=model,
            inputs=inputs,
            loss=task.with_label_values(loss),
            labels=torch.from_numpy(task.labels.values),
            truth=None if task.truth is None else torch.from_numpy(task.truth),
            train_rows=task.splits.train,
            val_rows=task.splits.val,
            config=config,
            accelerator=work.accelerator,
            logger=work.logger,
            folder=work.folder,
            epochs=config.head_epochs if name == "head" else config.epochs,
            lr=lr,
            head_lr=lr if on_features else lr * config.head_lr_mult,
            select_on_truth=config.selects_on_truth,
            identity=work.identity,
            stop_asked=self.stop_asked,
            teacher=self.teacher,
        )

    def _transfer_head(self, stage: Trainer, model: Classifier) -> dict[str, object]:
        """Move the best head of the first stage to the backbone: the best model so far."""
        best = stage.best()
        epoch = int(best["epoch"])
        stage.model.load_state_dict(best["model"])
        if "fitted" not in best:
            # Only once, also if the run is stopped here and continued.
            self._fit_biases(stage)
            kept = ("identity", "stage", "epoch", "model")
            more = {name: value for name, value in best.items() if name not in kept}
            stage.checkpoints.save_best(stage.model, "head", epoch, {**more, "fitted": True})
        transfer_head(stage.model, model)
        self.work.open_checkpoints().save_best(model, "head", epoch)
        return best

    @torch.no_grad()
    def _fit_biases(self, stage: Trainer) -> None:
        """Shift the biases of a trained head to the least loss; the order of rows stays.

        A bias learns as slowly as every weight. Where it is not at its optimum, all logits of a
        class share one gradient, and a network that continues from there follows it with all its
        layers: on VOC, `swan` lost four points of mAP in 84 steps.
        """
        if stage.loss.innermost.needs_index:
            # Such a loss remembers the rows it is called with.
            return
        count = max(_MOST_LABELS // len(self.work.task.classes), 1)
        rows = stage.train_rows[:: -(-len(stage.train_rows) // count)]
        at = torch.as_tensor(rows, device=stage.device)
        logits = stage.score_with(stage.model.to(stage.device), rows)
        shift = find_least_biases(stage.loss, logits, stage.labels[at], stage.place[at])
        stage.model.head.linear.bias += shift  # type: ignore[union-attr, operator]

    def _load_start(self, model: Classifier) -> dict[str, Tensor]:
        """Give the untrained network the best head, and return a copy of its weights."""
        small = build_head(self.work.config, model.feature_dim, len(self.work.task.classes))
        small.load_state_dict(load_checkpoint(self.work.folder / HEAD)["model"])
        transfer_head(small, model)
        return {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}

    def _interpolate(self, stage: Trainer, model: Classifier, start: dict[str, Tensor]) -> None:
        """Keep the mean of the weights before and after the stage that scores best, if one does.

        Between both, the network has the features of the first and the fit of the second. The
        result is one network, so that predictions cost the same.
        """
        best = stage.best()
        if "share" in best:
            # A run that was stopped after this step.
            stage.progress.kept = float(best["kept"])
            return
        if best["stage"] != stage.name or "layout" in best:
            return
        alone, chosen = stage.progress.kept, 1.0
        for share in SHARES:
            model.load_state_dict(mix_weights(start, best["model"], share))
            score = stage.measure(model)
            if score > stage.progress.kept:
                stage.progress.kept, chosen = score, share
        model.load_state_dict(mix_weights(start, best["model"], chosen))
        more = {"share": chosen, "kept": stage.progress.kept}
        stage.checkpoints.save_best(model, stage.name, int(best["epoch"]), more)
        self.work.logger.log(
            f"weights: {chosen:.0%} from after and {1 - chosen:.0%} from before this stage; "
            f"{CRITERIA[stage.criterion]}: {100 * stage.progress.kept:.2f} ({100 * alone:.2f} with "
            "all from after it)"
        )

    def _average_with_frozen(
        self,
        stage: Trainer,
        model: Classifier,
        start: dict[str, Tensor],
        fit: Callable[[Tensor], tuple[Classifier, Mapping[str, object]]],
    ) -> None:
        """Average the network with an ensemble on frozen features, if that scores better.

        An ensemble on frozen features cannot memorise which labels are missing as a network can,
        and its errors differ. Predictions run both backbones and take twice as long.
        """
        best = stage.best()
        if "layout" in best:
            # A run that was stopped after this step.
            stage.progress.kept = float(best["kept"])
            return
        backbone = deepcopy(model)
        backbone.load_state_dict(start)
        features = self.work.extract_features(backbone, stage.inputs)
        fitted = fit(features)
        model.load_state_dict(best["model"])
        alone = stage.score_with(model.to(stage.device), stage.val_rows)
        frozen = fitted[0].to(stage.device).eval()
        with torch.no_grad():
            others = frozen(features[torch.from_numpy(stage.val_rows)].to(stage.device))
        frozen.backbone = backbone.backbone.to(stage.device)
        both = average_classifiers(model, frozen)
        both.head.set_scales(alone, others)  # type: ignore[operator]
        score, before = stage.measure(both), stage.progress.kept
        self.work.logger.log(
            f"network averaged with an ensemble on frozen features; {CRITERIA[stage.criterion]}: "
            f"{100 * score:.2f} ({100 * before:.2f} without; the better is kept)"
        )
        if score > before:
            stage.progress.kept = score
            more = {"layout": fitted[1]["layout"], "kept": score}
            stage.checkpoints.save_best(both, stage.name, int(best["epoch"]), more)


@torch.no_grad()
def find_least_biases(
    loss: Loss, logits: Tensor, labels: Tensor, index: Tensor, steps: int = 40
) -> Tensor:
    """Return the shift of each class's logits with the least loss, within ±10.

    Steps by the sign of the gradient, halved whenever it changes: losses differ in scale, and the
    gradient of some is not that of their value.

    >>> labels = torch.tensor([[1], [-1], [-1], [-1]])
    >>> shift = find_least_biases(losses.create("bce"), torch.zeros(4, 1), labels, torch.arange(4))
    >>> round(torch.sigmoid(shift).item(), 3)
    0.25
    """
    shift = torch.zeros(logits.shape[1], device=logits.device)
    size, before = torch.ones_like(shift), torch.zeros_like(shift)
    given = index if loss.needs_index else None
    for _ in range(steps):
        _, gradient = loss.value_and_grad(logits + shift, labels, given)
        sign = gradient.sum(dim=0).sign()
        size = torch.where(sign * before < 0, size / 2, size)
        shift = (shift - size * sign).clamp(-10, 10)
        before = sign
    return shift


def mix_weights(
    start: dict[str, Tensor], end: dict[str, Tensor], share: float
) -> dict[str, Tensor]:
    """Return (1 − share) · start + share · end; integers are those of the end."""
    return {
        name: torch.lerp(start[name].to(value), value, share)
        if value.is_floating_point()
        else value
        for name, value in end.items()
    }
