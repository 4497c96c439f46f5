"""mAP against scikit-learn and torchmetrics, in one run.

    python benchmarks/metrics.py              # 40,000 x 80 against both, then 1,000,000 x 80
    python benchmarks/metrics.py --quick      # without the large one
    python benchmarks/metrics.py --device cuda

Prints times (the best of a few runs), ratios and the largest difference in the AP of a class.
Libraries that are not installed are left out.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from common import print_header, print_row, start
from halftruth.metrics import average_precision, evaluate, thresholds
from halftruth.models import import_timm


def make(samples: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and labels with the positive rate of COCO (2.9 of 80 classes per image)."""
    rng = np.random.default_rng(0)
    labels = np.empty((samples, classes), dtype=np.int8)
    scores = np.empty((samples, classes), dtype=np.float32)
    for at in range(0, samples, 50_000):
        part = slice(at, at + 50_000)
        shape = labels[part].shape
        labels[part] = rng.random(shape) < 0.036
        scores[part] = rng.standard_normal(shape, dtype=np.float32) + 1.5 * labels[part]
    return 1 / (1 + np.exp(-scores)), labels


def best_of(call: Callable[[], Any], runs: int, device: str = "cpu") -> tuple[float, Any]:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        result = call()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times), result


def torchmetrics_ap(scores: torch.Tensor, labels: torch.Tensor) -> np.ndarray:
    from torchmetrics.functional.classification import multilabel_average_precision

    number = scores.shape[1]
    values = multilabel_average_precision(
        scores, labels.long(), number, average="none", validate_args=False
    )
    return values.cpu().numpy()


def compare(samples: int, classes: int, device: str, peers: bool) -> None:
    scores, labels = make(samples, classes)
    on_device = (torch.from_numpy(scores).to(device), torch.from_numpy(labels).to(device))
    average_precision(on_device[0][:1000], on_device[1][:1000])
    ours, values = best_of(lambda: average_precision(*on_device), 5, device)
    print(f"\n{samples:,} x {classes} float32 on {device}\n")
    print_header("", "ms", "times ours", "largest difference of an AP")
    print_row("AP of every class", f"{ours * 1e3:.1f}", 1, "")
    for name, call in peer_calls(scores, labels, on_device).items() if peers else ():
        try:
            theirs, reference = best_of(call, 1 if name == "torchmetrics" else 3, device)
        except ImportError:
            print_row(f"the same, {name}", "not installed", "", "")
            continue
        gap = f"{np.abs(values.cpu().numpy() - reference).max():.1e}"
        print_row(f"the same, {name}", f"{theirs * 1e3:.1f}", f"{theirs / ours:.1f}", gap)
    for name, call in (("thresholds.best", thresholds.best), ("evaluate", evaluate)):
        taken, _ = best_of(partial(call, *on_device), 2, device)
        print_row(name, f"{taken * 1e3:.1f}", "", "")


def peer_calls(
    scores: np.ndarray, labels: np.ndarray, on_device: tuple[torch.Tensor, torch.Tensor]
) -> dict[str, Callable[[], np.ndarray]]:
    """AP of every class by others; scikit-learn works on the CPU whatever the device."""

    def sklearn_ap() -> np.ndarray:
        from sklearn.metrics import average_precision_score

        return average_precision_score(labels, scores, average=None)

    return {"scikit-learn": sklearn_ap, "torchmetrics": lambda: torchmetrics_ap(*on_device)}


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="only 40,000 x 80")
    parser.add_argument("--rows", type=int, default=40_000, help="compared with others")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (2)")
    options = parser.parse_args(argv)
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore", module="sklearn|torchmetrics")
    import_timm()  # torchmetrics imports torchvision, whose build may not fit torch
    compare(options.rows, 80, options.device, peers=True)
    if not options.quick:
        compare(1_000_000, 80, options.device, peers=False)


if __name__ == "__main__":
    start(main, "--quick --rows 300 --threads 1")
