"""The page in a real browser: keys, clicks, undo, reload, two tabs, a killed server."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from audit_example import CLASSES, Example
from review_page import (
    focused,
    needs_browser,
    open_page,
    playwright,
    read_verdicts,
    shown,
    wait_for,
)

from halftruth.audit.audit_folder import DECISIONS
from halftruth.audit.review_server import Review

pytestmark = needs_browser


def test_keys_move_decide_and_undo(page: Any, review: Review) -> None:
    ids = shown(page)
    page.keyboard.press("a")
    wait_for(page, accepted=1)
    assert focused(page) == ids[1]
    page.keyboard.press("r")
    page.keyboard.press("s")
    wait_for(page, accepted=1, rejected=1, skipped=1)
    folder = review.queue.audit.path
    assert read_verdicts(folder) == {ids[0]: "accept", ids[1]: "reject", ids[2]: "skip"}
    page.keyboard.press("k")
    page.keyboard.press("k")
    page.keyboard.press("j")
    playwright.expect(page.locator(".card.focus")).to_have_attribute("data-id", str(ids[2]))
    page.keyboard.press("u")
    wait_for(page, skipped=0)
    page.keyboard.press("u")
    wait_for(page, rejected=0)
    assert read_verdicts(folder) == {ids[0]: "accept"}
    page.reload()
    page.wait_for_selector(".card")
    wait_for(page, accepted=1)
    assert shown(page)[0] == ids[1]
    # It is the same tab after a reload, and so its first decision can be undone.
    page.keyboard.press("u")
    wait_for(page, accepted=0)
    assert read_verdicts(folder) == {}
    assert ids[0] in shown(page)


def test_clicks_decide_one_and_several(page: Any, review: Review) -> None:
    ids = shown(page)
    page.click(f".card[data-id='{ids[3]}'] .no")
    wait_for(page, rejected=1)
    page.click(f".card[data-id='{ids[5]}'] .look")
    page.click(f".card[data-id='{ids[8]}'] .look", modifiers=["Shift"])
    assert page.inner_text("#chosen") == "4 selected"
    page.click("#accept")
    wait_for(page, accepted=4)
    expected = {ids[3]: "reject"} | dict.fromkeys(ids[5:9], "accept")
    assert read_verdicts(review.queue.audit.path) == expected
    page.keyboard.press("x")
    page.keyboard.press("a")
    wait_for(page, accepted=4 + len(ids) - 5)


def test_class_names_are_text_and_filters_apply(page: Any) -> None:
    assert page.query_selector(".card b b") is None
    names = {node.inner_text() for node in page.query_selector_all(".words b")}
    assert names <= set(CLASSES)
    assert CLASSES[0] in names
    page.select_option("#class", CLASSES[0])
    others = page.locator(".words b").filter(has_not_text=CLASSES[0])
    playwright.expect(others).to_have_count(0)
    page.fill("#high", "0.5")
    page.press("#high", "Tab")
    half = re.compile(r"^([0-4]?\d|50) %$")
    playwright.expect(page.locator(".words p span").first).to_have_text(half)
    shares = [node.inner_text() for node in page.query_selector_all(".words p span")]
    assert all(int(share.removesuffix(" %")) <= 50 for share in shares)


def test_two_tabs_see_each_other_and_undo_their_own(browser: Any, review: Review) -> None:
    context = browser.new_context()
    one, two = (open_page(context, review.address) for _ in range(2))
    ids = shown(one)
    one.keyboard.press("a")
    wait_for(one, accepted=1)
    two.keyboard.press("j")
    two.keyboard.press("r")
    wait_for(two, accepted=1, rejected=1)
    one.bring_to_front()
    wait_for(one, accepted=1, rejected=1)
    one.keyboard.press("u")
    wait_for(one, accepted=0, rejected=1)
    assert read_verdicts(review.queue.audit.path) == {ids[1]: "reject"}
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_the_page_fits_the_window(browser: Any, review: Review, width: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = open_page(context, review.address)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    bright = page.evaluate("parseInt(getComputedStyle(document.body).backgroundColor.slice(4))")
    assert (bright < 128) == (scheme == "dark")
    page.locator(".look img").first.evaluate("image => image.decode()")
    context.close()


def serve(folder: Path) -> tuple[subprocess.Popen, str]:
    command = [sys.executable, "-m", "halftruth", "review", str(folder), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert "http://127.0.0.1:" in line
    return process, line.split(": ", 1)[1].strip()


def test_a_killed_server_loses_nothing(browser: Any, example: Example) -> None:
    folder = example.audit().path
    process, address = serve(folder)
    context = browser.new_context()
    page = open_page(context, address)
    ids = shown(page)
    page.keyboard.press("a")
    wait_for(page, accepted=1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    page.keyboard.press("a")
    page.wait_for_selector(".error")
    assert "not saved" in page.inner_text(".error")
    assert focused(page) == ids[1]
    assert read_verdicts(folder) == {ids[0]: "accept"}
    process, again = serve(folder)
    try:
        assert again != address
        page = open_page(context, again)
        wait_for(page, accepted=1)
        assert shown(page)[0] == ids[1]
        page.keyboard.press("r")
        wait_for(page, accepted=1, rejected=1)
        lines = [json.loads(line) for line in (folder / DECISIONS).open()]
        assert [line["verdict"] for line in lines] == ["accept", "reject"]
    finally:
        process.kill()
        process.wait()
        context.close()


def test_a_server_killed_between_click_and_answer_reports_the_decision_as_not_saved(
    browser: Any, example: Example
) -> None:
    folder = example.audit().path
    process, address = serve(folder)
    context = browser.new_context()
    page = open_page(context, address)
    ids = shown(page)
    page.keyboard.press("a")
    wait_for(page, accepted=1)
    # The request is sent and waits; then its server is killed.
    os.kill(process.pid, signal.SIGSTOP)
    page.keyboard.press("r")
    page.wait_for_timeout(300)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    page.wait_for_selector(".error")
    assert "not saved" in page.inner_text(".error")
    playwright.expect(page.locator("#rejected")).to_have_text("0")
    assert read_verdicts(folder) == {ids[0]: "accept"}
    context.close()
