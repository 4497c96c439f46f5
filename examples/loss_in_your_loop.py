"""A robust loss in your own training loop: one line changes.

    python examples/loss_in_your_loop.py [seed]

Trains a network on a synthetic problem (20 classes, 4 present per row) three times, with the labels
named in the output, and prints the test mAP. The settings fit the second run: other learning rates
and epochs add at most 1.0. The third needs early stopping: after 40 epochs it is the worst.
"""

import sys

import torch
from torch import Tensor, nn

from halftruth import losses
from halftruth.labels import single_positive
from halftruth.metrics import mean_average_precision

CLASSES, FEATURES, TRAIN, EPOCHS = 20, 64, 1500, 10


def make_data(seed: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    labels = (torch.rand(TRAIN + 2000, CLASSES) < 4 / CLASSES).to(torch.int8)
    # The features of a row are the sum of the patterns of its classes, plus noise.
    noise = 1.5 * torch.randn(len(labels), FEATURES)
    features = labels.float() @ torch.randn(CLASSES, FEATURES) + noise
    return features / features.std(), labels


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, CLASSES))


def train(model: nn.Module, loss: losses.Loss, features: Tensor, labels: Tensor) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(EPOCHS):
        loss.start_epoch(epoch, EPOCHS)  # for losses with a schedule
        for batch in torch.randperm(len(features)).split(64):
            optimizer.zero_grad()
            loss(model(features[batch]), labels[batch]).backward()
            optimizer.step()


if __name__ == "__main__":
    torch.set_num_threads(1)  # more threads do not help such a small network
    seed = int((sys.argv[1:] or [0])[0])
    features, labels = make_data(seed)
    one = torch.from_numpy(single_positive(labels[:TRAIN], seed))
    for title, name, known in [
        ("all labels, cross-entropy", "bce", labels[:TRAIN]),
        ("one label per row, the rest assumed absent", "bce", one),
        ("one label per row, entropy maximisation", "em", one),
    ]:
        model = make_model()
        train(model, losses.create(name), features[:TRAIN], known)
        score = mean_average_precision(model(features[TRAIN:]).detach(), labels[TRAIN:])
        print(f"{title:44} mAP {100 * score:.1f}")
