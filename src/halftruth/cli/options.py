"""Options that come from declarations: settings of a run, and how a label file is read."""

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
import yaml

from halftruth.reading import READING, Option, get_flag
from halftruth.train.settings import SETTINGS, Setting, read_yaml

READING_PANEL = "How the label file is read"
# Settings whose value is a path; they are texts, since some may also be names.
_PATHS = ("images", "features", "out", "truth", "verdicts", "complete_rows", "hints",
          "hint_names", "cache_dir")  # fmt: skip
_KEYWORD = inspect.Parameter.KEYWORD_ONLY


@dataclass(frozen=True)
class OptionGroup:
    """Options of a command that arrive as one argument, the result of `gather`."""

    parameters: list[inspect.Parameter]
    gather: Callable[..., dict[str, object]]


def with_options(**groups: OptionGroup) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator: the command gets each group of options as the argument of that name."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**values: object) -> None:
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
    kind: object = kinds[0] | None
    flags = setting.flags or (setting.option,)
    if kinds[0] is bool and not setting.flags:
        flags = (f"{setting.option}/--no-{setting.option[2:]}",)
    option = typer.Option(
        *flags,
        help=help or _help(setting),
        rich_help_panel=panel,
        metavar="<path>" if setting.name in _PATHS else None,
    )
    return inspect.Parameter(
        setting.name,
        _KEYWORD,
        default=None,
        annotation=Annotated[kind, option],
    )


def _is_union(kind: object) -> bool:
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


def given(**options: object) -> dict[str, Any]:
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
        if key.strip() in values:
            raise typer.BadParameter(f"{key.strip()} is given twice", param_hint=option)
        try:
            values[key.strip()] = read_yaml(text)
        except yaml.YAMLError as error:
            raise typer.BadParameter(f"{pair!r}: {error}", param_hint=option) from error
    return values


def split_recipe(
    labels: Path | None, recipe: str | None = None
) -> tuple[Path | dict[str, object] | None, dict[str, object]]:
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


Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")]


def check_outputs(out: Path | Iterable[Path], *read: Any, overwrite: bool | None = None) -> None:
    """Refuse to write over a file that the command reads, or over any without `overwrite`.

    `out`: what the command writes. `read`: paths, lists of them, or None. `overwrite`: None if the
    command has no such option.
    """
    lists = ([some] if isinstance(some, str | Path) else some or [] for some in read)
    from halftruth.data.remote import file_exists, is_remote

    used = [Path(one) for some in lists for one in some if Path(one).exists()]
    for path in [out] if isinstance(out, Path) else out:
        if not is_remote(path) and path.exists() and any(path.samefile(one) for one in used):
            raise typer.BadParameter(
                f"{path} is a file that this command reads; give another name", param_hint="--out"
            )
        if file_exists(path) and not overwrite:
            more = "" if overwrite is None else ", or --overwrite to replace it"
            raise typer.BadParameter(f"{path} exists; give another name{more}", param_hint="--out")


def find_run(place: str) -> Path:
    """The folder of a run; one on the Hugging Face Hub (hf://user/repo) is downloaded."""
    if place.startswith("hf://"):
        from halftruth.hub import download

        return download(place)
    return Path(place)


Engine = Annotated[Literal["ray"] | None, typer.Option(help="Work on a Ray cluster.")]
Address = Annotated[str | None, typer.Option(help="The Ray cluster: auto, or ray://host.")]


def check_engine(engine: str | None, address: str | None) -> None:
    """Refuse an address without an engine."""
    if address and not engine:
        raise typer.BadParameter("has no effect without --engine ray", param_hint="--address")


Run = Annotated[Path, typer.Argument(help="Run folder, or hf://user/repo.", parser=find_run)]


# ---------------------------------------------------------------------- the label file


def _reading_parameter(name: str, option: Option) -> inspect.Parameter:
    several = option.default == ()
    kind: Any = bool if option.default is False else list[str] if several else str
    default = (
        option.default
        if isinstance(option.default, str)
        else option.found and f"found {option.found}"
    )
    text = option.help + (f" (default: {default})" if default else "")
    declared = typer.Option(get_flag(name), help=text, rich_help_panel=READING_PANEL)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, declared],
    )


_READ = inspect.Parameter(
    "read",
    _KEYWORD,
    default=None,
    annotation=Annotated[
        list[str] | None,
        typer.Option(
            help="key=value: any other argument of read_labels "
            f"({', '.join(name for name, option in READING.items() if not option.flag)}).",
            rich_help_panel=READING_PANEL,
        ),
    ],
)


def _gather_reading(read: list[str] | None, **options: object) -> dict[str, object]:
    """The options that were given, as arguments of `halftruth.data.read_labels`."""
    found = {k: v for k, v in given(**options).items() if v is not False}
    return {**found, **check_reading(assignments(read, "--read"), "--read")}


def check_reading(reading: dict[str, object], option: str) -> dict[str, object]:
    """The same; an error if `read_labels` has no such argument."""
    if unknown := sorted(reading.keys() - READING.keys()):
        raise typer.BadParameter(
            f"there is no {', '.join(unknown)}; expected one of {', '.join(READING)}",
            param_hint=option,
        )
    return reading


READING_OPTIONS = OptionGroup(
    [_reading_parameter(name, option) for name, option in READING.items() if option.flag] + [_READ],
    _gather_reading,
)
