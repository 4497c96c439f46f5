"""A robust loss in a loop of timm's training tools: optimizer, schedule, averaged weights.

    python examples/timm_loop.py

timm's train script makes its loss in one place, `train_loss_fn = ...`. Write
`losses.create("em")` there, and call its `start_epoch` at the start of an epoch. The data are those
of loss_in_your_loop.py, with one positive per training row. Prints the test mAP of assumed
negatives and of the robust loss.
"""

from contextlib import suppress

import torch
from loss_in_your_loop import EPOCHS, TRAIN, make_data, make_model

from halftruth import losses
from halftruth.labels import single_positive
from halftruth.metrics import mean_average_precision
from halftruth.models import import_timm

# timm imports torchvision, which fails where its wheel was built for another torch.
with suppress(ImportError):
    import_timm()

from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import ModelEmaV3


def train(name: str) -> float:
    features, labels = make_data(0)
    shown = torch.from_numpy(single_positive(labels[:TRAIN], 0))
    torch.manual_seed(0)
    model = make_model()
    averaged = ModelEmaV3(model, decay=0.95)
    optimizer = create_optimizer_v2(model, opt="adam", lr=2e-3)
    steps = -(-TRAIN // 64)
    scheduler, _ = create_scheduler_v2(
        optimizer, "cosine", num_epochs=EPOCHS, min_lr=1e-3, updates_per_epoch=steps,
        step_on_epochs=False,
    )  # fmt: skip
    train_loss_fn = losses.create(name)
    step = 0
    for epoch in range(EPOCHS):
        train_loss_fn.start_epoch(epoch, EPOCHS)
        for batch in torch.randperm(TRAIN).split(64):
            optimizer.zero_grad()
            train_loss_fn(model(features[batch]), shown[batch]).backward()
            optimizer.step()
            step += 1
            averaged.update(model, step=step)
            scheduler.step_update(num_updates=step)
    scores = averaged.module.eval()(features[TRAIN:]).detach()
    return mean_average_precision(scores, labels[TRAIN:])


if __name__ == "__main__":
    torch.set_num_threads(1)  # more threads do not help such a small network
    for title, name in [("the rest assumed absent", "bce"), ("entropy maximisation", "em")]:
        print(f"one label per row, {title:26} mAP {100 * train(name):.1f}")
