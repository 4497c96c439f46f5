"""A robust loss in fastai: it is the Learner's loss_func.

    python examples/fastai_learner.py

The data are those of loss_in_your_loop.py, with one positive per training row. Prints the test mAP
of assumed negatives and of the robust loss.
"""

import torch
from fastai.basics import Callback, DataLoader, DataLoaders, Learner, set_seed
from fastai.callback.progress import ProgressCallback
from loss_in_your_loop import EPOCHS, TRAIN, make_data, make_model

from halftruth import losses
from halftruth.labels import single_positive
from halftruth.metrics import mean_average_precision


class EpochForLoss(Callback):
    """Tell the loss which epoch begins; needed by losses with a schedule."""

    def before_train(self) -> None:
        self.learn.loss_func.start_epoch(self.epoch, self.n_epoch)


def train(name: str, features: torch.Tensor, labels: torch.Tensor) -> torch.nn.Module:
    set_seed(0)  # the order of rows comes from Python's random numbers
    rows = list(zip(features[:TRAIN], labels, strict=True))
    batches = DataLoader(rows, bs=64, shuffle=True, num_workers=0)
    learner = Learner(
        DataLoaders(batches, DataLoader(rows[:64], bs=64, num_workers=0), device="cpu"),
        make_model(),
        loss_func=losses.create(name),
        wd=0,
        cbs=EpochForLoss(),
    )
    learner.remove_cbs(ProgressCallback)
    with learner.no_logging():
        learner.fit(EPOCHS, lr=2e-3)
    return learner.model.eval()


if __name__ == "__main__":
    torch.set_num_threads(1)
    features, labels = make_data(0)
    one = torch.from_numpy(single_positive(labels[:TRAIN], 0))
    for title, name in [("one label per row, assumed absent", "bce"), ("the same, em", "em")]:
        model = train(name, features, one)
        score = mean_average_precision(model(features[TRAIN:]).detach(), labels[TRAIN:])
        print(f"{title:44} mAP {100 * score:.1f}")
