"""`halftruth serve`: predictions of a run over HTTP."""

from pathlib import Path
from typing import Annotated

import typer

from halftruth.cli import options as o
from halftruth.cli.terminal import say


def serve(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    port: Annotated[int, typer.Option(help="Port; 0: any free port.")] = 8000,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0: all networks of this machine.")
    ] = "127.0.0.1",
    max_rows: Annotated[int, typer.Option(min=1, help="Most rows per request.")] = 256,
    device: o.Device = None,
) -> None:
    """Answer requests for predictions with JSON, until Ctrl-C.

    halftruth serve runs/first --port 8000
    """
    from halftruth.serve import Service
    from halftruth.train.config import check_device, read_settings

    check_device(device or "auto")
    read_settings(run)
    from halftruth.train.results.trained_run import TrainedRun

    trained = TrainedRun(run, device=device or "auto")
    service = Service(trained, host=host, port=port, most_rows=max_rows)
    say(f"{service.address}/predict answers; Ctrl-C stops it")
    if host not in ("127.0.0.1", "localhost", "::1"):
        say("other machines can reach it, without password and encryption: use a reverse proxy")
    try:
        service.serve()
    except KeyboardInterrupt:
        say("stopped")
