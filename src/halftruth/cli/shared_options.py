"""Options that several commands share, and how they become settings."""

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

Images = Annotated[
    list[Path] | None,
    typer.Option("--images", "-i", help="Folder or zip of images; may be repeated."),
]
Features = Annotated[
    Path | None, typer.Option("--features", "-f", help="Feature matrix instead of images.")
]
Device = Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.")]


def given(**options: Any) -> dict[str, Any]:
    """The options that were given, so that what was not keeps its default or a recipe's value."""
    found = {name: value for name, value in options.items() if value is not None and value != []}
    return {name: str(value) if isinstance(value, Path) else value for name, value in found.items()}


def assignments(pairs: list[str] | None, option: str = "--set") -> dict[str, Any]:
    """`key=value` arguments with values read as YAML: 0.5, true, [0, 2], {name: asl}.

    >>> assignments(["tau=0.7", "w=[0, 10]", "lr=1e-4"])
    {'tau': 0.7, 'w': [0, 10], 'lr': 0.0001}
    """
    values = {}
    for pair in pairs or ():
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"expected key=value, got {pair!r}", param_hint=option)
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise typer.BadParameter(f"{pair!r}: {error}", param_hint=option) from error
        values[key.strip()] = _number_or(value)
    return values


def _number_or(value: Any) -> Any:
    """YAML takes 1e-4, which lacks a point, for text."""
    try:
        return float(value) if isinstance(value, str) and value[:1] in "+-.0123456789" else value
    except ValueError:
        return value
