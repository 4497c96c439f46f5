"""`halftruth` commands in separate processes, which can be killed.

They are forked from a server that has imported everything, since the imports take longer than
the runs. That includes what the first optimiser of a process imports, the compiler of torch.
"""

import contextlib
import io
import multiprocessing
import os
import signal
import socket
import sys
import time
from pathlib import Path

import torch._dynamo

import halftruth.api
import halftruth.cli
import halftruth.train.results.run_result
from halftruth.models import import_timm

import_timm()
# Reading options imports pydantic.
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    halftruth.cli.app(["train", "--help"])
# Before Python 3.13 the server does not inherit sys.path.
_here = str(Path(__file__).parent)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_here, os.environ.get("PYTHONPATH")]))
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["real_processes"])


def _command(arguments, log, environment, before):
    os.environ.update(environment)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.argv = ["halftruth", *map(str, arguments)]
    torch.set_num_threads(1)
    if before is not None:
        before()
    halftruth.cli.main()


class Command:
    """A running `halftruth ...`; its output goes to a file. `before` is called first in it."""

    def __init__(self, *arguments, log, before=None, **environment):
        self.log = log
        self.process = _server.Process(
            target=_command, args=(arguments, str(log), environment, before), daemon=False
        )
        self.process.start()

    def wait(self, seconds=120):
        """The exit code; that of a signal is negative."""
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.process.kill()
            raise AssertionError(f"still running after {seconds} s:\n{self.output()}")
        return self.process.exitcode

    def send(self, number):
        os.kill(self.process.pid, number)

    def kill(self):
        """Send SIGKILL. Decoding workers end within seconds; do not wait for them."""
        with contextlib.suppress(ProcessLookupError):
            self.send(signal.SIGKILL)
        while Path(f"/proc/{self.process.pid}").exists():
            time.sleep(0.002)

    def until(self, happened, seconds=60):
        """Wait for something; False if the command ends before it."""
        end = time.monotonic() + seconds
        while not happened():
            if self.process.exitcode is not None:
                return False
            assert time.monotonic() < end, self.output()
            time.sleep(0.002)
        return True

    def output(self):
        return self.log.read_text() if self.log.exists() else ""


def ranks(count, machines=1):
    """The environment that `torchrun` gives each of its processes.

    With several machines it is that of `torchrun --nnodes`, all on this host.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    shared["LOCAL_WORLD_SIZE"] = str(count // machines)
    # Where there is one GPU, the second process would look for a second one.
    shared["CUDA_VISIBLE_DEVICES"] = ""
    local = count // machines
    return [
        {
            **shared,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank % local),
            "GROUP_RANK": str(rank // local),
        }
        for rank in range(count)
    ]
