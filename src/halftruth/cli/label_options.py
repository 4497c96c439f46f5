"""How a label file is read: options declared once, for every command that takes such a file."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from halftruth.cli import shared_options as o

READ = "What the label file means"


def _told(text: str) -> Any:
    return typer.Option(help=text, rich_help_panel=READ)


def _as_arguments(
    zero: Annotated[str | None, _told('What 0 means: "unknown" or "absent".')] = None,
    blank: Annotated[str | None, _told('What an empty cell means: "unknown" or "absent".')] = None,
    minus_one: Annotated[str | None, _told('What -1 means: "absent" or "unknown".')] = None,
    image_column: Annotated[str | None, _told("The column that names the image.")] = None,
    label_column: Annotated[
        str | None, _told("The column that lists the labels, if there is one.")
    ] = None,
    sep: Annotated[str | None, _told("What separates labels in that column.")] = None,
    nothing: Annotated[
        str | None, _told('The name that stands for no label ("No Finding").')
    ] = None,
    split_column: Annotated[str | None, _told("The column that says train, val or test.")] = None,
    drop_column: Annotated[
        list[str] | None, _told("A column that is no label; may be repeated.")
    ] = None,
    delimiter: Annotated[str | None, _told("Of the CSV file, where it is not found.")] = None,
    duplicates: Annotated[str | None, _told("Rows of the same item: error, merge or keep.")] = None,
    key: Annotated[str | None, _told("The label matrix in an .npz file.")] = None,
    read: Annotated[
        list[str] | None,
        _told("key=value: any other option of read_labels (classes, difficult, arff_labels, ...)."),
    ] = None,
) -> dict[str, Any]:
    """What was given, as arguments of `halftruth.data.read_labels`."""
    given = o.given(
        zero=zero, blank=blank, minus_one=minus_one, image_column=image_column,
        label_column=label_column, sep=sep, nothing=nothing, split_column=split_column,
        drop_columns=drop_column, delimiter=delimiter, duplicates=duplicates, key=key,
    )  # fmt: skip
    return {**given, **known_only(o.assignments(read, "--read"), "--read")}


def known_only(reading: dict[str, Any], option: str) -> dict[str, Any]:
    """The same, if `read_labels` has such arguments; otherwise an error that lists them."""
    if not reading:
        return reading
    from halftruth.data import read_labels

    known = list(inspect.signature(read_labels).parameters)[1:]
    if foreign := sorted(reading.keys() - set(known)):
        raise typer.BadParameter(
            f"there is no {', '.join(foreign)}; expected one of {', '.join(known)}",
            param_hint=option,
        )
    return reading


def reads_labels(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose argument `reading` comes from the options above."""
    shared = inspect.signature(_as_arguments).parameters

    @functools.wraps(command)
    def run(**values: Any) -> None:
        reading = _as_arguments(**{name: values.pop(name) for name in shared})
        command(reading=reading, **values)

    # Typer finds a command's options in its signature.
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for name, own in inspect.signature(command, eval_str=True).parameters.items()
            for parameter in (shared.values() if name == "reading" else (own,))
        ]
    )
    return run
