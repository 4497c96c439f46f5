"""`halftruth hub`: share a run on the Hugging Face Hub, or as a folder."""

from pathlib import Path
from typing import Annotated

import typer

from halftruth.cli import options as o
from halftruth.cli.terminal import say

app = typer.Typer(help="Share a run on the Hugging Face Hub.", no_args_is_help=True)

Licence = Annotated[
    str | None, typer.Option("--license", help="Licence in the model card, such as mit.")
]


@app.command()
def push(
    run: o.Run,
    repo: Annotated[str, typer.Argument(help="Repository on the Hub: user/name.")],
    private: Annotated[bool, typer.Option("--private", help="Make a private repository.")] = False,
    licence: Licence = None,
) -> None:
    """Upload a run with a model card; log in first with `hf auth login`.

    halftruth hub push runs/first user/birds
    """
    from halftruth.hub import push as upload

    address = upload(run, repo, private=private, licence=licence)
    say(f'uploaded to {address}; load it with halftruth.load("hf://{repo}")')


@app.command()
def folder(
    run: o.Run,
    out: Annotated[Path, typer.Option("--out", "-o", help="New folder to write.")],
    repo: Annotated[str, typer.Option(help="Name of the repository in the model card.")] = (
        "user/repo"
    ),
    licence: Licence = None,
) -> None:
    """Write the folder that `push` uploads, to look at it or to share it in other ways.

    halftruth hub folder runs/first --out shared/
    """
    from halftruth.hub import write_hub_folder

    names = write_hub_folder(run, out, repo=repo, licence=licence)
    say(f"{out}: {', '.join(names)}")
