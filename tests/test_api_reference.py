"""The API reference: its examples run, and every public name has one."""

import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

pytest.importorskip("accelerate", reason="a part of the extra 'train'")

PAGES = Path(__file__).parent.parent / "docs" / "api"
ROOMS = {
    page.stem: page
    for page in sorted(PAGES.glob("*.md"))
    if "PUBLIC NAMES OF" in page.read_text(encoding="utf-8")
}


def examples(text: str | None) -> str:
    """The lines of code in the examples of a text."""
    return "\n".join(re.findall(r"^ *(?:>>>|\.\.\.) (.*)$", text or "", re.MULTILINE))


def has_example(thing: object, name: str, page: str) -> bool:
    """Whether the docstring of a name, or of its methods, or the page of its room shows its use."""
    own = [thing, *(vars(thing).values() if inspect.isclass(thing) else ())]
    documented = any(examples(inspect.getdoc(part)) for part in own if hasattr(part, "__doc__"))
    return documented or re.search(rf"\b{name}\b", examples(page)) is not None


@pytest.mark.parametrize("page", ROOMS.values(), ids=list(ROOMS))
def test_examples_of_the_api_reference_run(page: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    failures, count = doctest.testfile(
        str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert count > 0
    assert failures == 0


@pytest.mark.parametrize("page", ROOMS.values(), ids=list(ROOMS))
def test_every_public_name_has_an_example(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    module = importlib.import_module(re.search(r"PUBLIC NAMES OF (\S+)", text)[1])
    methods = set()
    if module.__name__ == "halftruth.losses":
        # The examples of the methods are on their cards; tests/test_docs.py runs them.
        methods = {module.registry.get(name).__name__ for name in module.names()}
    names = [name for name in module.__all__ if name not in methods | {"__version__"}]
    things = {name: getattr(module, name) for name in names}
    missing = [
        name
        for name, thing in things.items()
        if not inspect.ismodule(thing) and not has_example(thing, name, text)
    ]
    assert not missing, f"add an example of {missing} to docs/api/{page.name} or to its docstring"
