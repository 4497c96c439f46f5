"""`halftruth demo` opens its page where a person is looking."""

import importlib
import sys

import pytest


@pytest.mark.parametrize(
    ("terminal", "browser", "opened"),
    [(True, True, 1), (False, True, 0), (True, False, 0)],
    ids=["terminal", "no terminal", "--no-browser"],
)
def test_the_page_opens_in_a_terminal_only(tmp_path, monkeypatch, terminal, browser, opened):
    pages: list[str] = []
    monkeypatch.setattr("halftruth.demo.run_demo", lambda out, seed: None)
    monkeypatch.setattr("webbrowser.open", pages.append)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    importlib.import_module("halftruth.cli.app").demo(out=tmp_path, browser=browser)
    assert pages == [(tmp_path / "index.html").resolve().as_uri()] * opened
