"""What reviewers do on the page: batches, large view, wrong labels, two annotators, restarts."""

import re
import threading
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
from audit_example import CLASSES, Example, write_rows
from review_page import (
    focused,
    needs_browser,
    open_page,
    playwright,
    read_verdicts,
    shown,
    wait_for,
)

from halftruth.audit.review_server import Review

pytestmark = needs_browser


@pytest.fixture
def texts(example: Example) -> Iterator[Review]:
    """A review of rows of text."""
    names = [f"p{k}.png" for k in range(90)]
    rows = [
        [name, f"{name} has arrived in good order", *labels]
        for name, labels in zip(names, example.observed, strict=True)
    ]
    write_rows(example.labels, ("image", "words", *CLASSES), rows)
    running = Review(example.audit(images=None, reading={"drop_columns": ["words"]}).path)
    threading.Thread(target=running.serve, daemon=True).start()
    yield running
    running.server.shutdown()


def test_keys_act_on_the_pictures_after_a_filter_was_chosen(page: Any, review: Review) -> None:
    page.focus("#class")
    page.select_option("#class", "bird")
    playwright.expect(page.locator(".words b").first).to_have_text("bird")
    first = focused(page)
    page.keyboard.press("a")
    wait_for(page, accepted=1)
    assert read_verdicts(review.queue.audit.path) == {first: "accept"}
    assert page.input_value("#class") == "bird"
    # One focus: the marked card is the focused element.
    assert page.evaluate("document.activeElement.dataset.id") == str(focused(page))


def test_the_green_button_keeps_a_label_that_may_be_wrong(page: Any, review: Review) -> None:
    page.select_option("#kind", "wrong")
    playwright.expect(page.locator("#accept")).to_have_text("Keep label a")
    playwright.expect(page.locator("#reject")).to_have_text("Remove label r")
    card = page.locator(".card").first
    playwright.expect(card.locator(".yes")).to_have_text("keep label")
    playwright.expect(card.locator(".no")).to_have_text("remove label")
    playwright.expect(page.locator("#what")).to_have_text("labels still wrong")
    playwright.expect(page.locator("#advice")).to_have_text(review.queue.now.describe_wrong())
    playwright.expect(card.locator(".words p span")).to_have_text(re.compile(r"^\d+ to \d+ %$"))
    first, folder = focused(page), review.queue.audit.path
    page.keyboard.press("a")
    wait_for(page, rejected=1)
    assert read_verdicts(folder) == {first: "reject"}
    second = focused(page)
    page.keyboard.press("r")
    wait_for(page, accepted=1, rejected=1)
    assert read_verdicts(folder) == {first: "reject", second: "accept"}
    playwright.expect(page.locator("header [data-done]").first).to_have_text("removed")
    # The counts are those of the list that is shown.
    page.select_option("#kind", "missing")
    wait_for(page, accepted=0, rejected=0)


def test_all_above_a_probability_are_decided_at_once_and_undone(page: Any, review: Review) -> None:
    page.fill("#low", "0.6")
    page.press("#low", "Enter")
    wanted = review.queue.matching(low=0.6).tolist()
    playwright.expect(page.locator("#place")).to_contain_text(f"of {len(wanted)}")
    page.keyboard.press("Shift+X")
    playwright.expect(page.locator("#chosen")).to_have_text(f"all {len(wanted)} matching selected")
    page.keyboard.press("a")
    wait_for(page, accepted=len(wanted))
    folder = review.queue.audit.path
    assert read_verdicts(folder) == dict.fromkeys(wanted, "accept")
    page.keyboard.press("u")
    wait_for(page, accepted=0)
    assert read_verdicts(folder) == {}


def test_the_large_view_has_zoom_labels_examples_and_the_same_keys(
    page: Any, review: Review
) -> None:
    ids = shown(page)
    page.keyboard.press("o")
    playwright.expect(page.locator("dialog")).to_be_visible()
    playwright.expect(page.locator(".examples").first.locator("img").first).to_be_visible()
    playwright.expect(page.locator("#side h3").first).to_contain_text("already labelled")
    picture, stage = (page.locator(one).bounding_box() for one in ("#stage img", "#stage"))
    assert picture["height"] <= stage["height"] + 1
    page.keyboard.press("+")
    assert "scale(1.25)" in page.get_attribute("#stage img", "style")
    page.locator("#stage").hover()
    page.mouse.down()
    page.mouse.move(300, 300)
    page.mouse.up()
    assert "translate(0px, 0px)" not in page.get_attribute("#stage img", "style")
    page.keyboard.press("0")
    assert "scale(1)" in page.get_attribute("#stage img", "style")
    page.keyboard.press("r")
    wait_for(page, rejected=1)
    playwright.expect(page.locator("#side")).to_have_attribute("data-id", str(ids[1]))
    page.keyboard.press("j")
    playwright.expect(page.locator("#side")).to_have_attribute("data-id", str(ids[2]))
    page.keyboard.press("u")
    wait_for(page, rejected=0)
    page.keyboard.press("Escape")
    playwright.expect(page.locator("dialog")).not_to_be_visible()
    assert page.evaluate("document.activeElement.className").startswith("card")


def test_the_numbers_and_the_advice_follow_the_decisions(page: Any) -> None:
    playwright.expect(page.locator("#advice")).to_contain_text("are expected to be missing labels")
    before = page.inner_text("#left"), page.inner_text("#interval"), page.inner_text("#advice")
    page.keyboard.press("x")
    page.keyboard.press("r")
    wait_for(page, rejected=48)
    after = page.inner_text("#left"), page.inner_text("#interval"), page.inner_text("#advice")
    assert int(after[0]) < int(before[0])
    assert after[1] != before[1]
    assert "You may stop" in after[2]


def test_two_annotators_get_different_candidates_and_conflicts_are_shown(
    browser: Any, review: Review
) -> None:
    people = {}
    for name in ("anna", "ben"):
        page = open_page(browser.new_context(), review.address)
        page.fill("#who", name)
        page.press("#who", "Enter")
        page.wait_for_function(f"sessionStorage.who === '{name}'")
        page.wait_for_timeout(300)
        people[name] = page
    # Without a name, the first page was held by nobody's name; both load their own now.
    for page in people.values():
        page.reload()
        page.wait_for_selector(".card.focus")
    anna, ben = people["anna"], people["ben"]
    assert not set(shown(anna)) & set(shown(ben))
    first = focused(anna)
    anna.keyboard.press("a")
    wait_for(anna, accepted=1)
    ben.select_option("#state", "second")
    playwright.expect(ben.locator(".card")).to_have_count(1)
    assert shown(ben) == [first]
    playwright.expect(ben.locator(".card small").last).to_have_text("anna: accepted")
    ben.keyboard.press("r")
    wait_for(ben, accepted=0, conflicts=1)
    playwright.expect(ben.locator("#agreement")).to_have_text("2 annotators, agree on 0 of 1")
    assert read_verdicts(review.queue.audit.path) == {first: "conflict"}
    anna.keyboard.press("u")
    wait_for(anna, rejected=1)
    assert read_verdicts(review.queue.audit.path) == {first: "reject"}


def test_a_decision_can_be_undone_after_a_restart(browser: Any, example: Example) -> None:
    folder = example.audit().path
    for key in ("a", "u"):
        running = Review(folder)
        thread = threading.Thread(target=running.serve, daemon=True)
        thread.start()
        context = browser.new_context()
        page = open_page(context, running.address)
        page.keyboard.press(key)
        wait_for(page, accepted=1 if key == "a" else 0)
        context.close()
        running.server.shutdown()
        thread.join()
    assert read_verdicts(folder) == {}


def find_barriers(page: Any) -> list[str]:
    """The rules of axe-core that the page breaks seriously, with the first element."""
    axe = pytest.importorskip("axe_playwright_python", reason="needs axe-playwright-python")
    # The page forbids scripts from elsewhere, so the rules are run by the debugger.
    page.evaluate((files(axe) / "axe.min.js").read_text())
    found = page.evaluate("axe.run({resultTypes: ['violations']})")
    return [
        f"{one['id']}: {one['nodes'][0]['html'][:120]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_barrier(browser: Any, review: Review, scheme: str) -> None:
    context = browser.new_context(
        viewport={"width": 1280, "height": 800}, color_scheme=scheme, bypass_csp=True
    )
    page = open_page(context, review.address)
    for key in ("a", "r", "s"):
        page.keyboard.press(key)
    wait_for(page, accepted=1, rejected=1, skipped=1)
    assert find_barriers(page) == []
    page.keyboard.press("o")
    playwright.expect(page.locator("#side h3").first).to_be_visible()
    assert find_barriers(page) == []
    context.close()


@pytest.mark.parametrize("width", [1280, 360])
def test_rows_of_text_are_shown_whole_in_the_large_view(
    browser: Any, texts: Review, width: int
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800}, bypass_csp=True)
    page = open_page(context, texts.address)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    playwright.expect(page.locator(".card dd").first).to_contain_text(".png")
    assert find_barriers(page) == []
    page.keyboard.press("o")
    playwright.expect(page.locator("#stage dl")).to_contain_text("has arrived in good order")
    playwright.expect(page.locator("#side .examples dl").first).to_be_visible()
    assert find_barriers(page) == []
    context.close()


def test_a_button_and_a_double_click_anywhere_on_a_card_open_the_large_view(page: Any) -> None:
    page.click("#open")
    playwright.expect(page.locator("#large")).to_be_visible()
    page.keyboard.press("o")
    playwright.expect(page.locator("#large")).to_be_hidden()
    page.dblclick(".card .words")
    playwright.expect(page.locator("#large")).to_be_visible()
