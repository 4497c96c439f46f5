"""A loss with a schedule inside a LightningModule.

    python examples/lightning_module.py

The data are those of loss_in_your_loop.py, with one positive per training row. The loss is an
attribute of the module, so its state is saved with the checkpoint; `on_train_epoch_start` sets its
epoch. Prints the test mAP of assumed negatives and of the robust loss.
"""

import logging
import warnings
from contextlib import suppress

import torch
from loss_in_your_loop import EPOCHS, TRAIN, make_data, make_model
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from halftruth import losses
from halftruth.labels import single_positive
from halftruth.metrics import Evaluator
from halftruth.models import import_timm

# Lightning imports torchvision, which fails where its wheel was built for another torch.
with suppress(ImportError):
    import_timm()

import lightning as L


class TaggedRows(L.LightningModule):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.model = make_model()
        self.loss = losses.create(name)
        self.evaluator = Evaluator()

    def on_train_epoch_start(self) -> None:
        self.loss.start_epoch(self.current_epoch, self.trainer.max_epochs)

    def training_step(self, batch: list[Tensor], step: int) -> Tensor:
        features, labels = batch
        return self.loss(self.model(features), labels)

    def test_step(self, batch: list[Tensor], step: int) -> None:
        features, labels, index = batch
        self.evaluator.update(self.model(features).sigmoid(), labels, index)

    def on_test_epoch_end(self) -> None:
        self.log("mAP", self.evaluator.compute()["mAP"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=2e-3)


def train(name: str) -> float:
    features, labels = make_data(seed=0)
    shown = torch.from_numpy(single_positive(labels[:TRAIN], seed=0))
    rows = torch.arange(len(labels) - TRAIN)
    known = DataLoader(TensorDataset(features[:TRAIN], shown), batch_size=64, shuffle=True)
    test = DataLoader(TensorDataset(features[TRAIN:], labels[TRAIN:], rows), batch_size=500)
    trainer = L.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = TaggedRows(name)
    trainer.fit(module, known)
    return trainer.test(module, test, verbose=False)[0]["mAP"]


if __name__ == "__main__":
    torch.set_num_threads(1)  # more threads do not help such a small network
    warnings.filterwarnings("ignore", module="lightning")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    for title, name in [("the rest assumed absent", "bce"), ("generalised robust loss", "gr")]:
        print(f"one label per row, {title:26} mAP {100 * train(name):.1f}")
