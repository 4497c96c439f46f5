"""Fixtures of the audit tests."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from audit_example import Example, make_example

from halftruth.audit.review_server import Review


@pytest.fixture
def example(tmp_path: Path) -> Example:
    return make_example(tmp_path)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from review_page import CHROMIUM, playwright

    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def review(example: Example) -> Iterator[Review]:
    running = Review(example.audit().path)
    threading.Thread(target=running.serve, daemon=True).start()
    yield running
    running.server.shutdown()


@pytest.fixture
def page(browser: Any, review: Review) -> Iterator[Any]:
    from review_page import open_page

    context = browser.new_context(viewport={"width": 1280, "height": 800})
    opened = open_page(context, review.address)
    yield opened
    assert opened.complaints == []
    context.close()
