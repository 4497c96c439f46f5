"""Outputs of a model in float32: for evaluation, prediction, pseudo-labels, frozen features, and
the scores that a method receives between epochs."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from halftruth.models import Classifier
from halftruth.models.classifier import bare_forward
from halftruth.models.language_model import digest_weights
from halftruth.train.config import Config
from halftruth.train.devices import keep_freed_memory
from halftruth.train.inputs.batches import Inputs
from halftruth.train.inputs.cache_keys import digest_image_files, make_cache_key
from halftruth.train.run_folder import digest, replace_file
from halftruth.train.run_logger import RunLogger
from halftruth.train.task import Task

Forward = Callable[[Tensor], Tensor]


@torch.no_grad()
def score_batches(
    forward: Forward, inputs: Inputs, rows: np.ndarray, device: torch.device, batch_size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (outputs in float32, rows) of each batch of `rows`.

    Always float32: bfloat16, which training may use, has three digits, too few for ranking.
    """
    keep_freed_memory()
    exact = isinstance(forward, Classifier) and not forward.is_network
    if isinstance(forward, nn.Module):
        forward = bare_forward(forward)
    batches = [rows[at : at + batch_size] for at in range(0, len(rows), batch_size)]
    with nullcontext() if exact else _use_tensor_cores():
        for raw, index in inputs.load(batches, device):
            yield forward(inputs.prepare(raw)).float(), index


def score_rows(
    forward: Forward,
    inputs: Inputs,
    rows: np.ndarray,
    accelerator: Accelerator,
    batch_size: int,
    progress: Callable[[int], None] | None = None,
) -> Tensor:
    """Return the outputs (len(rows), ...) of all rows, in their order, on the device.

    Each process computes a part of the rows, in order, so that it reads few shards, and the results
    are gathered. All processes need the same number of rows: some may repeat the first row, whose
    result is dropped. `progress` receives the number of rows of each batch, over all processes.
    """
    rows, world, device = np.asarray(rows), accelerator.num_processes, accelerator.device
    if not len(rows):
        return torch.empty(0, device=device)
    share = -(-len(rows) // world)
    places = np.arange(share) + accelerator.process_index * share
    mine = rows[np.where(places < len(rows), places, 0)]
    results = []
    for values, index in score_batches(forward, inputs, mine, device, batch_size):
        results.append(values)
        if progress is not None:
            progress(len(index) * world)
    values = torch.cat(results)
    if world == 1:
        return values
    return accelerator.gather(values.contiguous())[: len(rows)]


def average_over_mirror(model: nn.Module) -> Forward:
    """Return the mean output for an image and its mirror image; it takes twice as long."""
    forward = bare_forward(model)
    return lambda x: (forward(x) + forward(x.flip(-1))) / 2


def send_scores(
    observe: Callable[[Tensor, Tensor], None],
    model: Classifier,
    inputs: Inputs,
    rows: np.ndarray,
    place: Tensor,
    accelerator: Accelerator,
    batch_size: int,
) -> None:
    """Call observe(logits, samples) for all rows, batch by batch; each process has its own rows.

    `place` maps a row of the label table to the sample of the training set.
    """
    mine = np.ascontiguousarray(rows[accelerator.process_index :: accelerator.num_processes])
    for logits, index in score_batches(model.eval(), inputs, mine, accelerator.device, batch_size):
        observe(logits, place[index])


@contextmanager
def _use_tensor_cores() -> Iterator[None]:
    """On CUDA, compute the products of a network with TF32, the default of convolutions.

    It is several times faster than float32, and eight times more exact than bfloat16.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def extract_features(
    config: Config,
    task: Task,
    model: Classifier,
    inputs: Inputs,
    logger: RunLogger,
    accelerator: Accelerator,
) -> Tensor:
    """Return the backbone's features of all rows; computed once per set of images, then cached."""
    rows = np.sort(np.concatenate([*vars(task.splits).values()]))
    folder = Path(config.cache_dir or Path(config.out) / "cache")
    path = folder / f"features-{_make_features_key(config, task, model, rows)}.npy"
    accelerator.wait_for_everyone()
    if path.exists():
        return torch.from_numpy(np.load(path))
    model.to(accelerator.device).eval()
    kind, source = ("texts", config.encoder) if config.text else ("images", config.backbone)
    logger.log(f"extracting features of {len(rows):,} {kind} with {source}")
    with logger.progress("extracting features", len(rows)) as advance:
        size = 2 * config.batch_size
        some = score_rows(model.features, inputs, rows, accelerator, size, advance).cpu()
    # Rows of no part must not be used: NaN would stop training.
    features = torch.full((len(task.labels.values), some.shape[1]), torch.nan)
    features[torch.from_numpy(rows)] = some
    if accelerator.is_main_process:
        with replace_file(path, shared=True) as new, new.open("wb") as file:
            np.save(file, features.numpy())
    accelerator.wait_for_everyone()
    return features


def _make_features_key(config: Config, task: Task, model: Classifier, rows: np.ndarray) -> str:
    """Return a part of a file name that depends on everything the features depend on."""
    if config.text:
        assert task.features is not None
        tokens = digest(np.ascontiguousarray(task.features).data)
        return make_cache_key(digest_weights(model.backbone), rows.tolist(), tokens)
    assert task.store is not None
    weights: Any = config.weights
    if weights not in ("pretrained", "none"):
        facts = os.stat(weights)
        weights = [str(Path(weights).resolve()), facts.st_size, facts.st_mtime_ns]
    seed = config.seed if config.weights == "none" else None
    names = task.names
    images = [[names[row] for row in rows], rows.tolist(), digest_image_files(task.store)]
    return make_cache_key(config.backbone, weights, seed, model.image_size, *images)
