"""A loss with a schedule under Accelerate: any device, any precision, any number of processes.

    python examples/accelerate_loop.py
    accelerate launch --num_processes 4 examples/accelerate_loop.py

The data are those of loss_in_your_loop.py, with one positive per training row. The loss is not
passed to `prepare`: DDP would overwrite its memory from rank 0. It computes in float32 for every
precision of the logits. `index` gives the rows of a batch, for methods with a memory per row.
Prints the test mAP of assumed negatives and of the robust loss.
"""

import torch
from accelerate import Accelerator
from loss_in_your_loop import EPOCHS, TRAIN, make_data, make_model
from torch.utils.data import DataLoader, TensorDataset

from halftruth import losses
from halftruth.labels import single_positive
from halftruth.metrics import mean_average_precision


def train(accelerator: Accelerator, name: str) -> float:
    features, labels = make_data(seed=0)
    shown = torch.from_numpy(single_positive(labels[:TRAIN], seed=0)).to(accelerator.device)
    loss = losses.create(name).to(accelerator.device)
    loss.begin(shown)  # for methods that count classes or rows

    model = make_model()
    rows = TensorDataset(features[:TRAIN], torch.arange(TRAIN))
    loader = DataLoader(rows, batch_size=64, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(EPOCHS):
        loss.start_epoch(epoch, EPOCHS)
        for batch, index in loader:
            with accelerator.autocast():
                logits = model(batch)
            accelerator.backward(loss(logits, shown[index], index=index))
            optimizer.step()
            optimizer.zero_grad()

    with torch.no_grad():
        scores = accelerator.unwrap_model(model)(features[TRAIN:].to(accelerator.device))
    return mean_average_precision(scores.float().cpu(), labels[TRAIN:])


if __name__ == "__main__":
    torch.set_num_threads(1)  # more threads do not help such a small network
    accelerator = Accelerator()
    for title, name in [("the rest assumed absent", "bce"), ("generalised robust loss", "gr")]:
        score = train(accelerator, name)
        accelerator.print(f"one label per row, {title:26} mAP {100 * score:.1f}")
