"""Where a stage keeps its checkpoints: the run's folder, or memory where there is none."""

import copy
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from torch import nn

from halftruth.train import checkpoint

LAST, BEST = "last.safetensors", "best.safetensors"
# The best head by itself, on the way to a whole model.
HEAD = "head.safetensors"


class Keeper:
    """`last`: everything needed to go on. `best`: the weights that predict and evaluate use.

    One process writes, the others wait for it, so that none reads what is not there yet.
    """

    def __init__(
        self,
        folder: Path | None,
        accelerator: Accelerator,
        identity: dict[str, Any],
        best: str = BEST,
    ) -> None:
        self.folder, self.accelerator, self.identity = folder, accelerator, identity
        self.best_name = best
        self._best: dict[str, Any] = {}

    def save_last(self, tree: dict[str, Any]) -> None:
        """Replace the checkpoint a run goes on from."""
        self._write(LAST, tree)

    def save_best(
        self, model: nn.Module, stage: str, epoch: int, more: dict[str, Any] | None = None
    ) -> None:
        """Replace the best weights, and what else belongs to them."""
        tree = {"stage": stage, "epoch": epoch, "model": model.state_dict(), **(more or {})}
        if self.folder is None:
            self._best = copy.deepcopy(tree)
        self._write(self.best_name, tree)

    def best(self) -> dict[str, Any]:
        """The best weights so far, with the stage and epoch they are from."""
        return self._best if self.folder is None else checkpoint.load(self.folder / self.best_name)

    def _write(self, name: str, tree: dict[str, Any]) -> None:
        self.accelerator.wait_for_everyone()
        if self.folder is not None and self.accelerator.is_main_process:
            checkpoint.save(self.folder / name, {"identity": self.identity, **tree})
        self.accelerator.wait_for_everyone()
