"""What the documentation site adds to the pages in docs/ while it is built (a hook of MkDocs).

- README, CONTRIBUTING, CHANGELOG and the speed measurements become pages of the site.
- Links that leave docs/ lead to these pages, or to the source code.
- Notebooks become pages with their outputs.
- `PUBLIC NAMES OF room` in an API page becomes the reference of every public name of the room.
- A pattern such as `methods/*.md` in the navigation stands for all pages that match it.
"""

import importlib
import inspect
import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
SOURCE = "https://github.com/halftruth/halftruth/blob/main/"
# Pages made from files outside docs/.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "speed.md",
    **{
        path.relative_to(ROOT).as_posix(): f"results/{path.name}"
        for path in (ROOT / "benchmarks" / "results").glob("*.md")
    },
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace the patterns of the navigation; offer other versions where mike publishes them."""
    if "MIKE_DOCS_VERSION" in os.environ:
        config.extra["version"] = {"provider": "mike"}
    config.nav = _expand(config.nav, Path(config.docs_dir))
    return config


def _expand(entry: Any, docs: Path) -> Any:
    if isinstance(entry, dict):
        return {title: _expand(inside, docs) for title, inside in entry.items()}
    if not isinstance(entry, list):
        return entry
    listed = {inside for inside in entry if isinstance(inside, str)}
    found: list[Any] = []
    for inside in entry:
        if isinstance(inside, str) and "*" in inside:
            paths = [path.relative_to(docs).as_posix() for path in sorted(docs.glob(inside))]
            found += [path for path in paths if path not in listed]
        else:
            found.append(_expand(inside, docs))
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages made from files outside docs/ and from notebooks."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        text, pictures = _convert(Path(notebook.abs_src_path or ""))
        base = notebook.src_uri.removesuffix(".ipynb")
        files.append(File.generated(config, f"{base}.md", content=text))
        for name, content in pictures.items():
            files.append(
                File.generated(config, f"{posixpath.dirname(base)}/{name}", content=content)
            )
    return files


def _convert(notebook: Path) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown, and its pictures."""
    from nbconvert import MarkdownExporter

    text, resources = MarkdownExporter().from_filename(
        str(notebook), resources={"unique_key": notebook.stem}
    )
    pictures = {
        f"{notebook.stem}_{name}": content for name, content in resources["outputs"].items()
    }
    text = re.sub(r"!\[(?:png|svg)\]\(", f"![Output of the cell above]({notebook.stem}_", text)
    # Styles of pandas for Jupyter; the site has its own.
    text = re.sub(r"<style scoped>.*?</style>\n?", "", text, flags=re.DOTALL)
    text = text.replace('<table border="1" class="dataframe">', "<table>")
    note = f"*This page is the notebook [{notebook.name}]({notebook.name}); it runs in seconds.*"
    title, _, rest = text.lstrip().partition("\n")
    return f"{title}\n\n{note}\n{rest}", pictures


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Expand the API reference and redirect the links that leave docs/."""
    markdown = re.sub(
        r"^PUBLIC NAMES OF (\S+)$", lambda m: _reference(m[1]), markdown, flags=re.MULTILINE
    )
    markdown = _adapt(markdown)
    uri = page.file.src_uri
    source = {new: old for old, new in PAGES.items()}.get(uri, f"docs/{uri}")
    return re.sub(
        r"(\]\()([^)\s]+)(\))", lambda m: m[1] + _redirect(m[2], source, uri) + m[3], markdown
    )


def _adapt(markdown: str) -> str:
    """Write what GitHub accepts as Python-Markdown expects it.

    A list needs a blank line before it, and the file name of a code block is its title. "skip"
    tells the tests not to run a block; it is not shown.
    """
    lines: list[str] = []
    fenced = False
    for line in markdown.split("\n"):
        if line.startswith("```"):
            fenced = not fenced
            line = re.sub(r"^```(\w+) skip$", r"```\1", line)
            line = re.sub(r"^```(\w+) ([\w./-]+)$", r'```\1 title="\2"', line)
        before = lines[-1] if lines else ""
        starts_list = not fenced and re.match(r"([-*]|\d+\.) ", line)
        if starts_list and re.match(r"(?!\d+\. )[^\s|>#*-]|\*\*", before):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def _redirect(link: str, source: str, uri: str) -> str:
    """Return where a link of the file `source`, shown as the page `uri`, leads on the site."""
    target, mark, anchor = link.partition("#")
    if not target or re.match(r"[a-z]+:", target):
        return link
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if not (ROOT / path).exists() and not path.startswith("docs/"):
        raise FileNotFoundError(f"{source}: the link {link} leads nowhere")
    if (ROOT / path / "README.md").exists() and path != ".":
        path += "/README.md"
    if path in PAGES:
        found = PAGES[path]
    elif path.startswith("docs/"):
        found = path.removeprefix("docs/")
    else:
        return SOURCE + path + mark + anchor
    return posixpath.relpath(found, posixpath.dirname(uri) or ".") + mark + anchor


def _reference(room: str) -> str:
    """Return the mkdocstrings blocks of all public names of a package."""
    module = importlib.import_module(room)
    blocks = []
    for name in public_names(module):
        thing = getattr(module, name)
        blocks.append(f"::: {thing.__module__}.{thing.__qualname__}")
    return "\n\n".join(blocks)


def public_names(module: Any) -> list[str]:
    """Return the functions and classes that a package exports; constants and modules have none."""
    found = {name: getattr(module, name) for name in module.__all__}
    return [
        name for name, thing in found.items() if inspect.isclass(thing) or inspect.isfunction(thing)
    ]
