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


def train(name: str) -> float:
    features, labels = make_data(0)
    shown = torch.from_numpy(single_positive(labels[:TRAIN], 0))
    set_seed(0)  # the order of rows comes from Python's random numbers
    rows = list(zip(features[:TRAIN], shown, strict=True))
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
    scores = learner.model.eval()(features[TRAIN:]).detach()
    return mean_average_precision(scores, labels[TRAIN:])


if __name__ == "__main__":
    torch.set_num_threads(1)  # more threads do not help such a small network
    for title, name in [("the rest assumed absent", "bce"), ("entropy maximisation", "em")]:
        print(f"one label per row, {title:26} mAP {100 * train(name):.1f}")
