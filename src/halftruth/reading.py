"""How a label file is read: every option with its type, meaning and formats, declared once.

The signature of `read_labels`, the checks and the options of the command line follow from it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, get_args, get_type_hints

Meaning = Literal["unknown", "absent"]
Duplicates = Literal["error", "merge", "keep", "vote"]
Difficult = Literal["unlisted", "unknown", "absent", "present"]
ArffLabels = int | Sequence[str] | str | Path | None

TABLES = ("table", "image folder")
EVERYWHERE = (*TABLES, "COCO", "VOC", "matrix", "ARFF")


@dataclass(frozen=True)
class Option:
    """What an option means, its default, and the formats in which it has an effect."""

    help: str
    default: object = None
    formats: tuple[str, ...] = EVERYWHERE
    # How the value is found where none is given.
    found: str = ""
    # On the command line: an option of its own, or only `--read key=value`.
    flag: bool = True
    # It says how the text of a table is split, or which column is what: also for writing it back.
    of_text: bool = False
    of_columns: bool = False


class Reading(TypedDict, total=False):
    """The options of `halftruth.data.read_labels`."""

    zero: Annotated[
        Meaning,
        Option(
            'What 0 means, also "no" and a class that a list leaves out: unknown or absent.',
            "unknown",
        ),
    ]
    blank: Annotated[
        Meaning, Option("What an empty cell or list means: unknown or absent.", "unknown")
    ]
    minus_one: Annotated[Meaning, Option("What -1 means: absent or unknown.", "absent")]
    soft: Annotated[
        bool,
        Option(
            "The label file has probabilities of presence (0 to 1), blank is unknown.",
            False,
            formats=(*TABLES, "matrix"),
        ),
    ]
    also: Annotated[
        str | Path | Sequence[str | Path],
        Option("Another label file, with other items or other classes; may be repeated.", ()),
    ]
    label_weights: Annotated[
        str | Path | None,
        Option("File with how much each label (one column per class) or each row counts."),
    ]
    weight_column: Annotated[
        str | None, Option("The column with how much the labels of a row count.", formats=TABLES)
    ]
    hierarchy: Annotated[
        str | Path | None, Option("Table with the columns child and parent: a class hierarchy.")
    ]
    image_column: Annotated[
        str | None,
        Option(
            "The column that names the image.", formats=TABLES, found="by its name", of_columns=True
        ),
    ]
    label_column: Annotated[
        str | None,
        Option(
            "The column that lists the labels, if there is one.", formats=TABLES, of_columns=True
        ),
    ]
    sep: Annotated[
        str | None,
        Option(
            "What separates labels in that column.",
            formats=TABLES,
            found="if only one of | ; , occurs",
        ),
    ]
    nothing: Annotated[
        str | None,
        Option('The name in that column that means no label ("No Finding").', formats=TABLES),
    ]
    split_column: Annotated[
        str | None,
        Option(
            "The column that holds train, val or test.",
            formats=(*TABLES, "matrix"),
            found="by its name",
            of_columns=True,
        ),
    ]
    drop_columns: Annotated[
        Sequence[str],
        Option(
            "A column that is not a label; may be repeated.", (), formats=TABLES, of_columns=True
        ),
    ]
    delimiter: Annotated[
        str | None,
        Option(
            "Delimiter of the CSV file.", formats=("table",), found="by the header", of_text=True
        ),
    ]
    duplicates: Annotated[
        Duplicates,
        Option(
            "Several rows of the same item: error, merge, keep, or vote (several annotators).",
            "error",
            formats=(*TABLES, "COCO", "matrix"),
        ),
    ]
    key: Annotated[str | None, Option("The label matrix in an .npz file.", formats=("matrix",))]
    classes: Annotated[
        Sequence[str] | None,
        Option(
            "The classes and their order; with one column per class: which columns.",
            flag=False,
            of_columns=True,
        ),
    ]
    columns: Annotated[
        Sequence[str] | None,
        Option(
            "The names of the columns of a text file without a header.",
            formats=("table",),
            flag=False,
            of_text=True,
        ),
    ]
    quotes: Annotated[
        bool,
        Option(
            "False if quotation marks are part of the text.",
            True,
            formats=("table",),
            flag=False,
            of_text=True,
        ),
    ]
    keep_empty: Annotated[
        bool, Option("Keep images without objects.", True, formats=("COCO",), flag=False)
    ]
    difficult: Annotated[
        Difficult,
        Option(
            "What a class with only difficult objects is.", "unlisted", formats=("VOC",), flag=False
        ),
    ]
    arff_labels: Annotated[
        ArffLabels,
        Option(
            "Which attributes are labels: names, MULAN's XML file, n (the first) or -n (the last).",
            formats=("ARFF",),
            flag=False,
        ),
    ]


# What each option means, by name.
READING: dict[str, Option] = {
    name: get_args(kind)[1] for name, kind in get_type_hints(Reading, include_extras=True).items()
}


def get_flag(name: str) -> str:
    """Return the option of the command line; one that takes several values is given once for each.

    >>> get_flag("zero"), get_flag("drop_columns")
    ('--zero', '--drop-column')
    """
    flag = "--" + name.replace("_", "-")
    return flag.removesuffix("s") if READING[name].default == () else flag


def list_options(reading: Mapping[str, object]) -> list[str]:
    """Return the words of a command that reads a file in the same way.

    >>> list_options({"zero": "unknown", "drop_columns": ["a", "b"], "arff_labels": 3})
    ['--zero', 'unknown', '--drop-column', 'a', '--drop-column', 'b', '--read', 'arff_labels=3']
    """
    words: list[str] = []
    for name, given in reading.items():
        for value in given if isinstance(given, list) else [given]:
            if not READING[name].flag:
                text = str(value).lower() if isinstance(value, bool) else str(value)
                words += ["--read", f"{name}={text}"]
            elif value is not False:
                words += [get_flag(name)] if value is True else [get_flag(name), str(value)]
    return words


def text_options(reading: Mapping[str, Any]) -> dict[str, Any]:
    """Those options that say how the text of a table is split into cells."""
    return {k: v for k, v in reading.items() if READING[k].of_text and v is not None}


def column_options(reading: Mapping[str, object]) -> dict[str, Any]:
    """Those options that say which column of a table is what."""
    return {k: v for k, v in reading.items() if READING[k].of_columns}


def without_defaults(reading: Mapping[str, object]) -> dict[str, Any]:
    """The options whose value is not the default.

    >>> without_defaults({"zero": "absent", "sep": None, "drop_columns": []})
    {'zero': 'absent'}
    """
    none: tuple[object, ...] = ((), [])
    return {
        k: v
        for k, v in reading.items()
        if v != READING[k].default and not (READING[k].default == () and v in none)
    }


def describe_options() -> str:
    """The options and their meanings as lines of a docstring."""
    lines = []
    for name, option in READING.items():
        more = f" Found {option.found} if not given." if option.found else ""
        lines.append(f"    {name}: {option.help}{more}")
    return "\n".join(lines)
