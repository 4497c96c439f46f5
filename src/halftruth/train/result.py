"""What a run came to."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Result:
    """What a run came to; also in the run's result.json."""

    folder: Path
    method: str
    classes: tuple[str, ...]
    best_stage: str
    best_epoch: int
    thresholds: list[float]
    # What epochs are compared by, a key of metrics.jsonl, and the kept epoch's value of it.
    criterion: str = ""
    best_score: float = math.nan
    val: dict[str, float] = field(default_factory=dict)
    test: dict[str, float] = field(default_factory=dict)
    bad_images: list[tuple[str, str]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "folder": str(self.folder), "classes": list(self.classes)}

    def to_json(self) -> str:
        """As in result.json; a number that is none (a metric of no labels) becomes null."""
        return json.dumps(plain_json(self.to_dict()), indent=1)

    def describe(self) -> str:
        """The outcome in two or three lines."""
        lines = [f"best: stage {self.best_stage}, epoch {self.best_epoch + 1}"]
        for name, scores in (("validation", self.val), ("test", self.test)):
            if scores:
                shown = ", ".join(f"{key} {100 * scores[key]:.2f}" for key in ("mAP", "CF1", "OF1"))
                lines.append(f"{name}: {shown}")
        return "\n".join([*lines, f"everything is in {self.folder}"])


def plain_json(node: Any) -> Any:
    """The tree with NaN and infinity, which JSON does not have, as null."""
    if isinstance(node, float) and not math.isfinite(node):
        return None
    if isinstance(node, dict):
        return {key: plain_json(value) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return [plain_json(value) for value in node]
    return node
