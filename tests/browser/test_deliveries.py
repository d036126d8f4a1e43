"""The delivery log, and a receiver that takes nothing, which every page speaks of."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Visit, _make_database
from looks import assert_accessible, assert_whole
from receiving import Receiver
from site_under_test import Site
from sqlalchemy import func, update
from stories import Story, break_at, healthy

from monitor.deliver.webhook import Webhook
from monitor.store import tables


@pytest.fixture(scope="module")
def busy_site(postgres: str, template_database: str) -> Iterator[Any]:
    """Two runs that broke, and three receivers: one takes messages, one refuses them, one says that its address is wrong."""
    with (
        Receiver() as good,
        Receiver(lambda _: 422) as strict,
        Receiver(lambda _: 404) as gone,
        Site(_make_database(postgres, template_database, f"vitals_busy_{os.getpid()}")) as site,
    ):
        for seed, uid in enumerate(("first", "second")):
            Story(site, uid, healthy, seed=30 + seed).open().steps(0, 30, change=break_at(25))
        where = {"on-call": good.url, "strict": strict.url, "gone": gone.url}
        site.judge([Webhook(name, url, private=True) for name, url in where.items()])
        yield site


@pytest.fixture(scope="module")
def crowded_site(postgres: str, template_database: str) -> Iterator[Any]:
    """Twelve runs that broke at once, and a receiver that takes one message at a time and only the second attempt."""
    with (
        Receiver(lambda number: 503 if number == 1 else 204) as slow,
        Site(_make_database(postgres, template_database, f"vitals_crowd_{os.getpid()}")) as site,
    ):
        for number in range(12):
            Story(site, f"run-{number}", healthy, seed=50 + number).open().steps(0, 30, change=break_at(25), rollouts=0)
        for _ in range(2):
            channel = Webhook("slow", slow.url, private=True)
            channel.interval_s = 1.0
            site.judge([channel])
            site.change(update(tables.delivery).values(due_at=func.now()), update(tables.channel).values(next_at=None, rest_until=None))
        yield site


def test_a_digest_is_one_row_for_each_attempt_and_names_every_incident(crowded_site: Any, visit: Visit) -> None:
    page = visit(crowded_site, "/deliveries")
    (second, first) = rows(page)
    changes = re.search(r"(\d+) changes at once, in 12 runs", second)
    assert changes and "delivered (204), attempt 2" in second and "failed (503)" in first and "answered 503" in first
    page.locator("summary", has_text="changes at once").first.click()
    carried = page.locator(".carried").first.locator("li")
    assert carried.count() == int(changes[1]) >= 12
    assert len({link.get_attribute("href") for link in carried.locator("a").all()}) == 12
    page.get_by_role("link", name="Every attempt").last.click()
    page.get_by_text("of one message").wait_for()
    assert len(rows(page)) == 2 and "message=" in page.url
    page.go_back()
    page.wait_for_selector(".of-one", state="detached")
    page = visit(crowded_site, f"/deliveries?incident={crowded_site.incident('run-3').removeprefix('/incident/')}")
    assert len(rows(page)) == 2 and "in 12 runs" in rows(page)[0]
    page.locator("summary", has_text="changes at once").first.click()
    page.locator(".carried a").first.click()
    page.wait_for_selector("[data-page=incident] h1")
    page = visit(crowded_site, "/deliveries?message=nonsense")
    assert "no such message" in page.inner_text(".empty")


def rows(page: Any) -> list[str]:
    return [" ".join(text.split()) for text in page.locator("table.cards tbody tr").all_inner_texts()]


def test_each_attempt_says_what_came_of_it(busy_site: Any, visit: Visit) -> None:
    page = visit(busy_site, "/deliveries")
    told = rows(page)
    delivered = [row for row in told if "on-call" in row]
    assert delivered and all("delivered (204)" in row and " ms " in row for row in delivered)
    assert all("refused (422)" in row and "answered 422" in row for row in told if "strict" in row)
    assert any("gone" in row and "failed (404)" in row for row in told)
    page.locator("table.cards tbody a").first.click()
    page.wait_for_selector("[data-page=incident] h1")


def test_receiver_outcome_and_incident_are_filters_in_the_address(busy_site: Any, visit: Visit) -> None:
    page = visit(busy_site, "/deliveries")
    everything = len(rows(page))
    page.get_by_role("link", name="strict").first.click()
    page.wait_for_function("![...document.querySelectorAll('table.cards tbody tr')].some((row) => !row.innerText.includes('strict'))")
    assert "channel=strict" in page.url
    page.get_by_role("link", name="Delivered", exact=True).click()
    page.locator(".empty", has_text="No delivery matches").wait_for()
    assert "outcome=delivered" in page.url and "channel=strict" in page.url
    page.go_back()
    page.wait_for_selector("table.cards")
    page.locator(".receiver", has_text="strict").click()
    page.wait_for_function(f"document.querySelectorAll('table.cards tbody tr').length === {everything}")
    page = visit(busy_site, busy_site.incident("first"))
    page.get_by_role("link", name="Every attempt").click()
    page.wait_for_selector("table.cards")
    assert rows(page) and all("first" in row for row in rows(page))
    page.get_by_role("link", name="Show every incident").click()
    page.wait_for_function(f"document.querySelectorAll('table.cards tbody tr').length === {everything}")


def test_a_receiver_that_takes_nothing_is_told_of_on_every_page(busy_site: Any, visit: Visit) -> None:
    for path in ("/", "/run/first", "/alerts", "/compare", "/deliveries", busy_site.incident("second")):
        page = visit(busy_site, path)
        banner = page.locator("#channel-trouble", has_text="gone takes nothing: its address or our secret is wrong.")
        banner.wait_for()
        assert "2 messages wait" in banner.inner_text() and "strict" not in banner.inner_text()
    banner.get_by_role("link", name="what was tried").click()
    page.wait_for_selector(".receiver.chosen")
    assert page.url.endswith("/deliveries?channel=gone") and "gone" in page.inner_text(".receiver.chosen")


def test_new_attempts_appear(busy_site: Any, visit: Visit) -> None:
    page = visit(busy_site, "/deliveries?channel=late")
    page.wait_for_selector(".empty")
    Story(busy_site, "third", healthy, seed=33).open().steps(0, 30, change=break_at(25))
    busy_site.judge([Webhook("late", "http://127.0.0.1:9/hook", private=True)])
    page.wait_for_selector("table.cards")
    assert "failed" in rows(page)[0]


def test_without_a_delivery_it_says_how_they_come(empty_site: Any, visit: Visit) -> None:
    page = visit(empty_site, "/deliveries")
    assert "VITALS_SLACK_WEBHOOK_URL" in page.inner_text(".empty")
    page = visit(empty_site, "/deliveries?outcome=failed")
    assert "No delivery matches" in page.inner_text(".empty")
    page = visit(empty_site, "/deliveries?incident=nonsense")
    assert "no such incident" in page.inner_text(".empty")


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_a_digest_is_whole_and_accessible(crowded_site: Any, visit: Visit, theme: str) -> None:
    page = visit(crowded_site, "/deliveries", theme=theme)
    for each in page.locator("summary", has_text="changes at once").all():
        each.click()
    assert_accessible(page)
    assert_whole(page)


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_page_is_whole_and_accessible(busy_site: Any, visit: Visit, theme: str) -> None:
    page = visit(busy_site, "/deliveries", theme=theme)
    page.wait_for_selector("#channel-trouble p")
    assert_accessible(page)
    assert_whole(page)


def test_keys_lead_to_it(busy_site: Any, visit: Visit) -> None:
    page = visit(busy_site, "/")
    page.wait_for_selector(".fleet tbody tr")
    page.keyboard.press("g")
    page.keyboard.press("d")
    page.wait_for_selector("[data-page=deliveries] h1")
    assert page.title() == "Deliveries · rlvitals"
    page.keyboard.press("g")
    page.keyboard.press("i")
    page.wait_for_selector("[data-page=inbox] h1")
