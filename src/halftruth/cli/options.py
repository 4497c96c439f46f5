"""Options that come from declarations: settings of a run, and how a label file is read."""

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from halftruth.train.settings import SETTINGS, Setting, read_yaml

READING = "How the label file is read"


@dataclass(frozen=True)
class OptionGroup:
    """Options of a command that arrive as one argument, the result of `gather`."""

    parameters: list[inspect.Parameter]
    gather: Callable[..., dict[str, Any]]


def with_options(**groups: OptionGroup) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator: the command gets each group of options as the argument of that name."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**values: Any) -> None:
            for name, group in groups.items():
                own = {p.name: values.pop(p.name) for p in group.parameters}
                values[name] = group.gather(**own)
            command(**values)

        # Typer finds the options of a command in its signature.
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
                for name, own in inspect.signature(command, eval_str=True).parameters.items()
                for parameter in (groups[name].parameters if name in groups else (own,))
            ]
        )
        return run

    return decorate


# ---------------------------------------------------------------------- settings of a run


def setting_options(
    names: Iterable[str] | None = None, panel: str | None = None, **helps: str
) -> OptionGroup:
    """Options for the settings of these names (all by default); `gather` returns those given.

    panel: the title to list them under, instead of their own; helps: other help texts.
    """
    chosen = SETTINGS if names is None else names
    settings = [SETTINGS[name] for name in chosen if not SETTINGS[name].nested]
    return OptionGroup(
        [
            _parameter(s, panel or (None if s.first else s.group), helps.get(s.name))
            for s in settings
        ],
        given,
    )


def setting_option(name: str, **changes: Any) -> Any:
    """The type of one argument of a command that is a setting of a run."""
    return _parameter(SETTINGS[name], changes.get("panel"), changes.get("help")).annotation


def _parameter(setting: Setting, panel: str | None, help: str | None) -> inspect.Parameter:
    kinds = typing.get_args(setting.kind) if _is_union(setting.kind) else (setting.kind,)
    kind: Any = kinds[0] | None
    flags = setting.flags or (setting.option,)
    if kinds[0] is bool and not setting.flags:
        flags = (f"{setting.option}/--no-{setting.option[2:]}",)
    option = typer.Option(*flags, help=help or _help(setting), rich_help_panel=panel)
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind, option],
    )


def _is_union(kind: Any) -> bool:
    return isinstance(kind, types.UnionType)


def _help(setting: Setting) -> str:
    text = setting.help
    if setting.choices:
        text += f" One of: {', '.join(setting.choices)}."
    return f"{text} (default: {setting.default_text})" if setting.default_text else text


Images = setting_option("images")
Features = setting_option("features")
Text = setting_option("text")
Encoder = setting_option("encoder")
Device = setting_option("device")


def given(**options: Any) -> dict[str, Any]:
    """The options that were given; the others keep their default or the value of a recipe."""
    found = {name: value for name, value in options.items() if value is not None and value != []}
    return {name: str(value) if isinstance(value, Path) else value for name, value in found.items()}


def assignments(pairs: list[str] | None, option: str = "--set") -> dict[str, Any]:
    """The values of `key=value` arguments, read as YAML: 0.5, true, [0, 2], {name: asl}.

    >>> assignments(["tau=0.7", "w=[0, 1e1]", "lr=1e-4"])
    {'tau': 0.7, 'w': [0, 10.0], 'lr': 0.0001}
    """
    values = {}
    for pair in pairs or ():
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"expected key=value, got {pair!r}", param_hint=option)
        try:
            values[key.strip()] = read_yaml(text)
        except yaml.YAMLError as error:
            raise typer.BadParameter(f"{pair!r}: {error}", param_hint=option) from error
    return values


def split_recipe(
    labels: Path | None, recipe: str | None = None
) -> tuple[Path | dict[str, Any] | None, dict[str, Any]]:
    """The recipe of a command (a file, or the settings of a recipe by name), and its label file.

    LABELS may be a recipe itself; `recipe` is a file or the name of a recipe of the papers.
    """
    source: Path | dict[str, Any] | None = None
    if labels is not None and labels.suffix in (".yaml", ".yml"):
        if recipe is not None:
            raise typer.BadParameter(
                f"{labels} is a recipe already; give only one recipe", param_hint="--recipe"
            )
        source, labels = labels, None
    elif recipe is not None:
        source = Path(recipe)
        if not source.exists():
            from halftruth.bench.papers import find_recipe

            source = find_recipe(recipe)
    return source, {} if labels is None else {"labels": str(labels)}


def check_folder(path: Path, option: str = "--out") -> None:
    """Refuse a file where a folder is expected."""
    if path.is_file():
        raise typer.BadParameter(f"expected a folder, got the file {path}", param_hint=option)


# ---------------------------------------------------------------------- the label file


def _reading(text: str) -> Any:
    return typer.Option(help=text, rich_help_panel=READING)


def _gather_reading(
    zero: Annotated[
        str | None, _reading("What 0 means: unknown or absent. (default: unknown)")
    ] = None,
    blank: Annotated[
        str | None, _reading("What an empty cell means: unknown or absent. (default: unknown)")
    ] = None,
    minus_one: Annotated[
        str | None, _reading("What -1 means: absent or unknown. (default: absent)")
    ] = None,
    soft: Annotated[
        bool | None,
        typer.Option(
            "--soft",
            help="The label file has probabilities of presence (0 to 1), blank is unknown.",
            rich_help_panel=READING,
        ),
    ] = None,
    also: Annotated[
        list[str] | None,
        _reading("Another label file, with other items or other classes; may be repeated."),
    ] = None,
    label_weights: Annotated[
        str | None,
        _reading("File with how much each label (one column per class) or each row counts."),
    ] = None,
    weight_column: Annotated[
        str | None, _reading("The column with how much the labels of a row count.")
    ] = None,
    hierarchy: Annotated[
        str | None, _reading("Table with the columns child and parent: a class hierarchy.")
    ] = None,
    image_column: Annotated[
        str | None, _reading("The column that names the image. (default: found by its name)")
    ] = None,
    label_column: Annotated[
        str | None, _reading("The column that lists the labels, if there is one.")
    ] = None,
    sep: Annotated[
        str | None, _reading("What separates labels in that column. (default: found)")
    ] = None,
    nothing: Annotated[
        str | None, _reading('The name in that column that means no label ("No Finding").')
    ] = None,
    split_column: Annotated[
        str | None,
        _reading("The column that holds train, val or test. (default: found by its name)"),
    ] = None,
    drop_column: Annotated[
        list[str] | None, _reading("A column that is not a label; may be repeated.")
    ] = None,
    delimiter: Annotated[
        str | None, _reading("Delimiter of the CSV file. (default: found)")
    ] = None,
    duplicates: Annotated[
        str | None,
        _reading(
            "Several rows of the same item: error, merge, keep, or vote (several annotators). "
            "(default: error)"
        ),
    ] = None,
    key: Annotated[str | None, _reading("The label matrix in an .npz file.")] = None,
    read: Annotated[
        list[str] | None,
        _reading("key=value: any other argument of read_labels (classes, arff_labels, ...)."),
    ] = None,
) -> dict[str, Any]:
    """The options that were given, as arguments of `halftruth.data.read_labels`."""
    found = given(
        zero=zero, blank=blank, minus_one=minus_one, soft=soft or None, also=also,
        label_weights=label_weights, weight_column=weight_column, hierarchy=hierarchy,
        image_column=image_column,
        label_column=label_column, sep=sep, nothing=nothing, split_column=split_column,
        drop_columns=drop_column, delimiter=delimiter, duplicates=duplicates, key=key,
    )  # fmt: skip
    return {**found, **check_reading(assignments(read, "--read"), "--read")}


def check_reading(reading: dict[str, Any], option: str) -> dict[str, Any]:
    """The same; an error if `read_labels` has no such argument."""
    if not reading:
        return reading
    from halftruth.train.config import list_reading_arguments

    known = list_reading_arguments()
    if unknown := sorted(reading.keys() - set(known)):
        raise typer.BadParameter(
            f"there is no {', '.join(unknown)}; expected one of {', '.join(known)}",
            param_hint=option,
        )
    return reading


READING_OPTIONS = OptionGroup(
    list(inspect.signature(_gather_reading).parameters.values()), _gather_reading
)
