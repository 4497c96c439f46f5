"""mAP against scikit-learn and torchmetrics, side by side in one run.

    python benchmarks/metrics.py              # 40,000 x 80 against both, then 1,000,000 x 80
    python benchmarks/metrics.py --quick      # without the large one
    python benchmarks/metrics.py --device cuda

Prints times (the best of a few runs), ratios, the largest difference of a class's AP, and the peak
of memory beside the scores and labels.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from halftruth.metrics import average_precision, evaluate, thresholds


def make(samples: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and labels with the positive rate of COCO (2.9 of 80 classes an image)."""
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


def extra_mib(call: Callable[[], Any], device: str) -> float:
    """How far memory rises above where it was while ``call`` runs (on a CPU: Linux only)."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    process = Path("/proc/self")
    # 5 sets the peak back to what is in use now.
    (process / "clear_refs").write_text("5")
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    before = int(status["VmRSS"].split()[0])
    call()
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    return (int(status["VmHWM"].split()[0]) - before) / 1024


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

    extra = extra_mib(lambda: average_precision(*on_device), device)
    ours, values = best_of(lambda: average_precision(*on_device), 5, device)
    size = (scores.nbytes + labels.nbytes) / 2**20
    column = samples * scores.itemsize / 2**20
    print(f"\n{samples:,} x {classes} float32 on {device}: scores and labels {size:.0f} MiB")
    print(f"  halftruth     {ours * 1e3:10.1f} ms", end="")
    print(f"   peak of memory +{extra:.0f} MiB ({extra / column:.1f} columns of scores)")
    best, _ = best_of(lambda: thresholds.best(*on_device), 2, device)
    whole, _ = best_of(lambda: evaluate(*on_device), 2, device)
    print(f"  thresholds.best {best * 1e3:8.1f} ms\n  evaluate      {whole * 1e3:10.1f} ms")
    if not peers:
        return

    from sklearn.metrics import average_precision_score

    theirs, reference = best_of(lambda: average_precision_score(labels, scores, average=None), 3)
    gap = np.abs(values.cpu().numpy() - reference).max()
    print(f"  scikit-learn  {theirs * 1e3:10.1f} ms   {theirs / ours:6.1f}x   max gap {gap:.1e}")
    theirs, reference = best_of(lambda: torchmetrics_ap(*on_device), 1, device)
    gap = np.abs(values.cpu().numpy() - reference).max()
    print(f"  torchmetrics  {theirs * 1e3:10.1f} ms   {theirs / ours:6.1f}x   max gap {gap:.1e}")


def declare_torchvision_ops() -> None:
    """torchmetrics imports torchvision, whose ops are missing where its build is not torch's."""
    try:
        import torchvision  # noqa: F401
    except ImportError:
        return
    except RuntimeError:
        global _ops
        _ops = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            _ops.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="only 40,000 x 80")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (2)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore")
    declare_torchvision_ops()
    compare(40_000, 80, options.device, peers=True)
    if not options.quick:
        compare(1_000_000, 80, options.device, peers=False)


if __name__ == "__main__":
    main()
