"""A loss with a schedule in the Hugging Face Trainer.

    python examples/hf_trainer.py

The data are those of loss_in_your_loop.py, with one positive per training row. `compute_loss`
calls the loss, a callback sets its epoch. The model may be any that returns logits of shape
(rows, classes). Prints the test mAP of assumed negatives and of the robust loss.
"""

import tempfile
from contextlib import suppress
from typing import Any

import torch
from loss_in_your_loop import EPOCHS, TRAIN, make_data, make_model
from torch import Tensor, nn

from halftruth import losses
from halftruth.labels import single_positive
from halftruth.metrics import mean_average_precision
from halftruth.models import import_timm

# transformers imports torchvision, which fails where its wheel was built for another torch.
with suppress(ImportError):
    import_timm()

from transformers import Trainer, TrainerCallback, TrainingArguments


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = make_model()

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        return {"logits": self.layers(features)}


class RobustTrainer(Trainer):
    def __init__(self, loss: losses.Loss, **options: Any) -> None:
        super().__init__(**options)
        self.loss = loss
        self.add_callback(TellTheEpoch(loss))

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Tensor], return_outputs: bool = False, **_: Any
    ) -> Any:
        outputs = model(inputs["features"])
        value = self.loss(outputs["logits"], inputs["labels"])
        return (value, outputs) if return_outputs else value


class TellTheEpoch(TrainerCallback):
    def __init__(self, loss: losses.Loss) -> None:
        self.loss = loss

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.loss.start_epoch(int(state.epoch or 0), int(args.num_train_epochs))


def train(name: str) -> float:
    features, labels = make_data(seed=0)
    shown = torch.from_numpy(single_positive(labels[:TRAIN], seed=0))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=EPOCHS,
            per_device_train_batch_size=64,
            learning_rate=2e-3,
            lr_scheduler_type="constant",
            remove_unused_columns=False,
            save_strategy="no",
            report_to="none",
            logging_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
        )
        rows = [{"features": x, "labels": y} for x, y in zip(features[:TRAIN], shown, strict=True)]
        trainer = RobustTrainer(
            losses.create(name), model=Tagger(), args=arguments, train_dataset=rows
        )
        trainer.train()
    with torch.no_grad():
        scores = trainer.model(features[TRAIN:])["logits"]
    return mean_average_precision(scores, labels[TRAIN:])


if __name__ == "__main__":
    torch.set_num_threads(1)  # more threads do not help such a small network
    for title, name in [("the rest assumed absent", "bce"), ("generalised robust loss", "gr")]:
        print(f"one label per row, {title:26} mAP {100 * train(name):.1f}")
