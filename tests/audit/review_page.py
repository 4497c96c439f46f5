"""Helpers for tests that drive the review page in a browser."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from halftruth.audit.audit_folder import DECISIONS
from halftruth.data.review_log import ReviewLog

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
playwright = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium or Chrome on the PATH")


def open_page(context: Any, address: str) -> Any:
    page = context.new_page()
    page.complaints = []
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.goto(address)
    page.wait_for_selector(".card.focus")
    playwright.expect(page.locator("#accepted")).not_to_have_text("–")
    return page


def read_verdicts(folder: Path) -> dict[int, str]:
    return ReviewLog(folder / DECISIONS, 10**9, write=False).verdicts


def wait_for(page: Any, **counts: int) -> None:
    """Wait until the page shows these numbers; the decisions are on disk then."""
    for name, count in counts.items():
        playwright.expect(page.locator(f"#{name}")).to_have_text(str(count))


def shown(page: Any) -> list[int]:
    ids: list[int] = page.evaluate(
        "[...document.querySelectorAll('.card')].map(c => +c.dataset.id)"
    )
    return ids


def focused(page: Any) -> int:
    return int(page.get_attribute(".card.focus", "data-id"))
