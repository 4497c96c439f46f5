"""What all commands share: a short `--help`, and an error for an option that is given twice.

`--help` shows the options used most, on one page; `--help-all` shows the others.
"""

import copy
import re
import textwrap
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

# More options than this do not fit on one page.
MOST_OPTIONS = 20
ALL = "--help-all"
# Panels in which `--help` shows only these options, where a command has more than that.
MOST_USED = ("image_column", "label_column", "split_column", "sep", "zero")
_MOST_LETTERS = 100
# What a value is, by its type in Python.
_WORDS = {"str": "text", "Path": "path", "int": "number", "int range": "number", "float": "number",
          "float range": "number", "bool": "", "find_run": "path"}  # fmt: skip


class Command(TyperCommand):
    """A command whose `--help` is short."""

    shows_all = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take `--help-all` for `--help`, and note the difference."""
        self.shows_all = ALL in args
        args = ["--help" if arg == ALL else arg for arg in args]
        for option, count in Counter(self.make_parser(ctx).parse_args([*args])[2]).items():
            if count > 1 and option.param_type_name == "option" and not option.multiple:
                # The last one would count, without a word.
                raise typer.BadParameter("is given twice", param_hint=option.opts[0])
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help; the process ends then, so options are changed in place."""
        params: list[Any] = list(self.get_params(ctx))
        _name_values(params)
        options = [one for one in params if one.param_type_name == "option" and not one.hidden]
        if len(options) > MOST_OPTIONS and not self.shows_all:
            for option in options:
                option.hidden = bool(option.rich_help_panel) and option.name not in MOST_USED
                option.help = shorten_help(option.help or "")
                # A narrow column leaves room for the text.
                option.min = option.max = None
                if option.metavar is None and len(_describe(option, ctx)) > 10:
                    option.metavar = f"<{option.name}>"
            options[-1].help = f"Show this message; {ALL}: all {len(options)} options."
        super().format_help(ctx, formatter)


class Group(TyperGroup):
    """A group of commands."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        _name_values(list(self.get_params(ctx)))
        super().format_help(ctx, formatter)


def use_short_help(app: typer.Typer) -> None:
    """Give all commands and groups of an application this help."""
    app.info.cls = Group
    for command in app.registered_commands:
        command.cls = Command
    for group in app.registered_groups:
        if group.typer_instance is not None:
            group.cls = Group
            use_short_help(group.typer_instance)


def shorten_help(help: str) -> str:
    """Return the first sentence of a help text, and the default if it is short.

    >>> shorten_help("Folder or zip file; may be repeated. It is read once. (default: photos)")
    'Folder or zip file; may be repeated. (default: photos)'
    """
    text, _, default = help.partition(" (default: ")
    sentence = re.split(r"(?<=[a-z)])\. (?=[A-Z])", text)[0].rstrip(".") + "."
    if len(sentence) > _MOST_LETTERS:
        start = re.split(r"[:;] | \(", sentence)[0]
        long = textwrap.shorten(sentence, _MOST_LETTERS, placeholder=" …")
        sentence = f"{start}." if len(start) > 15 else long
    return f"{sentence} (default: {default}" if default and len(default) < 30 else sentence


def _describe(option: Any, ctx: object) -> str:
    """What the value of an option is, as Typer shows it."""
    show = getattr(option, "display_type", None) or option.make_metavar
    return str(show(ctx))


def _name_values(params: list[Any]) -> None:
    """Show `<text>` and `<number>` for values, and nothing for flags."""

    def show_type(display_type: Callable[[object], str], ctx: object) -> str:
        kind = display_type(ctx).strip("<>").removeprefix("list[").removesuffix("]")
        return f"<{_WORDS.get(kind, kind)}>".replace("<>", "")

    for param in params:
        if hasattr(param, "display_type"):
            param.display_type = partial(show_type, param.display_type)
        else:
            # Before Typer 0.29 the type itself has the name. All parameters share it.
            param.type = copy.copy(param.type)
            param.type.name = _WORDS.get(param.type.name, param.type.name)
