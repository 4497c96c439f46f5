"""Devices, processes and signals."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from halftruth.train.config import Config


def make_accelerator(config: Config) -> Accelerator:
    """Device and precision: bf16 on a GPU that has it, nothing but float32 on a CPU."""
    precision = config.precision
    on_cpu = config.device == "cpu" or not torch.cuda.is_available()
    if precision == "auto":
        precision = "bf16" if not on_cpu and torch.cuda.is_bf16_supported() else "no"
    # Accelerate keeps one state a process: a second run may ask for another precision or device.
    AcceleratorState._reset_state(reset_partial_state=not _distributed())
    return Accelerator(mixed_precision=precision, cpu=config.device == "cpu")


def _distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM become a request that is met after the step; a second Ctrl-C is not."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def ask(number: int, frame: Any) -> None:
        if asked.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
