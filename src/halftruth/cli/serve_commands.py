"""`halftruth serve`: predictions of a run over HTTP."""

from typing import Annotated

import typer

from halftruth.cli import options as o
from halftruth.cli.run_commands import open_run
from halftruth.cli.terminal import say


def serve(
    run: o.Run,
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
    trained = open_run(run, device, quiet=True)
    from halftruth.serve import Service

    service = Service(trained, host=host, port=port, most_rows=max_rows)
    say(f"{service.address}/predict answers; Ctrl-C stops it")
    if host not in ("127.0.0.1", "localhost", "::1"):
        say("other machines can reach it, without password and encryption: use a reverse proxy")
    try:
        service.serve()
    except KeyboardInterrupt:
        say("stopped")
