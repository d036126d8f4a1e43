"""The inbox: incidents that wait for somebody, filters in the address, and acts on several at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Visit, _make_database, expected_failures
from looks import assert_accessible, assert_whole
from receiving import Receiver
from site_under_test import Site
from stories import Story, break_at, goblin, healthy

from monitor.deliver.webhook import Webhook


@pytest.fixture(scope="module")
def full_site(postgres: str, template_database: str) -> Iterator[Any]:
    """Five runs that broke in two projects and two ways, one that got over it, and a receiver."""
    with Receiver() as receiver, Site(_make_database(postgres, template_database, f"vitals_inbox_{os.getpid()}")) as site:
        Story(site, "goblin-bonus", goblin, seed=2).open().steps(0, 50)
        for seed, uid in enumerate(("breaks-1", "breaks-2", "breaks-3", "breaks[4]"), 40):
            Story(site, uid, healthy, seed=seed, project="ablation").open().steps(0, 30, change=break_at(25))
        recovers = Story(site, "recovers", healthy, seed=3, project="ablation").open().steps(0, 40, change=break_at(36))
        recovers.open("b").steps(30, 55)
        site.judge([Webhook("on-call", receiver.url, private=True)])
        yield site


def shown(page: Any, runs: set[str]) -> None:
    """Waits until the list holds the incidents of exactly these runs."""
    page.wait_for_function(
        "(runs) => { const found = [...document.querySelectorAll('.case .facts-line > a')].map((link) => link.textContent).sort();"
        " return JSON.stringify(found) === JSON.stringify(runs); }",
        arg=sorted(runs),
    )


ILL = {"goblin-bonus", "breaks-1", "breaks-2", "breaks-3", "breaks[4]"}


def test_each_story_is_one_line_with_its_cause_and_who_was_told(full_site: Any, visit: Visit) -> None:
    page = visit(full_site, "/alerts")
    shown(page, ILL)
    goblins = page.locator(".case", has_text="goblin-bonus")
    assert goblins.locator("h2").inner_text() == "The auxiliary reward is being earned instead of the task"
    words = " ".join(goblins.inner_text().split())
    assert "more alerts" in words and "Lower the weight of the auxiliary reward" in words and "on-call was told" in words
    goblins.locator("h2 a").click()
    page.wait_for_selector("[data-page=incident] h1")
    page.go_back()
    shown(page, ILL)


def test_the_badge_counts_stories_and_the_run_leads_to_its_own(full_site: Any, visit: Visit) -> None:
    page = visit(full_site, "/run/goblin-bonus")
    page.wait_for_function("document.getElementById('open-incidents').textContent === '5'")
    page.get_by_role("link", name="Take it on").click()
    page.wait_for_selector("[data-page=incident] h1")
    assert page.url.endswith(full_site.incident("goblin-bonus"))


def test_filters_are_in_the_address(full_site: Any, visit: Visit) -> None:
    page = visit(full_site, "/alerts")
    shown(page, ILL)
    page.get_by_role("button", name="Resolved", exact=True).click()
    shown(page, {"recovers"})
    assert "state=resolved" in page.url
    page.get_by_role("button", name="All", exact=True).click()
    shown(page, {*ILL, "recovers"})
    page.select_option("[data-filter=project]", "ablation")
    shown(page, {*ILL, "recovers"} - {"goblin-bonus"})
    page.select_option("[data-filter=project]", "")
    page.select_option("[data-filter=detector]", "kl_acceleration")
    shown(page, {"goblin-bonus"})
    page.reload()
    shown(page, {"goblin-bonus"})
    assert page.input_value("[data-filter=detector]") == "kl_acceleration"
    page.select_option("[data-filter=detector]", "")
    page.fill("#inbox-search", "finite BREAKS-2")
    shown(page, {"breaks-2"})
    page.fill("#inbox-search", "%")
    page.get_by_role("button", name="Show all that is unresolved").click()
    shown(page, ILL)
    assert page.url.endswith("/alerts")
    page = visit(full_site, "/alerts?run=breaks-1&severity=critical&state=open")
    shown(page, {"breaks-1"})
    page.get_by_role("button", name="Show every run").click()
    shown(page, ILL)


def test_several_are_acknowledged_by_keyboard_and_others_see_it(full_site: Any, visit: Visit) -> None:
    page, other = visit(full_site, "/alerts?q=breaks"), visit(full_site, "/alerts?state=acknowledged")
    shown(page, ILL - {"goblin-bonus"})
    for _ in range(2):
        page.keyboard.press("j")
        page.keyboard.press("x")
    page.get_by_text("2 selected").wait_for()
    page.fill(".bulk .author", "ada")
    page.fill(".bulk .said", "known node")
    page.locator("[data-bulk=acknowledge]").focus()
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelectorAll('.case .state-acknowledged').length === 2")
    page.wait_for_selector(".bulk", state="hidden")
    other.wait_for_function("document.querySelectorAll('.case').length === 2")
    taken = full_site.get("incidents?state=acknowledged")
    assert len(taken) == 2 and all(each["acknowledged_by"] == "ada" for each in taken)
    assert [note["text"] for each in taken for note in full_site.get(f"incidents/{each['uid']}")["notes"]] == ["known node"] * 2


def test_what_was_not_done_is_said_with_its_reason(full_site: Any, visit: Visit) -> None:
    page = visit(full_site, "/alerts?q=breaks")
    shown(page, ILL - {"goblin-bonus"})
    page.locator("[data-all]").check()
    page.get_by_text("4 selected").wait_for()
    # Somebody closes one of them before this page hears of it.
    earlier = full_site.get("pulse")
    page.route("**/api/v1/pulse", lambda route: route.fulfill(json=earlier))
    page.wait_for_timeout(100)
    full_site.post(f"incidents/{full_site.get('incidents?run=breaks-3')[0]['uid']}/resolve", {"author": "bob"})
    with expected_failures(page):
        page.locator("[data-bulk=resolve]").click()
        page.locator("#inbox > .failed", has_text="3 of 4 resolved").wait_for()
        assert "breaks-3: Not done. incident: is over already." in page.inner_text("#inbox > .failed")
    page.wait_for_selector(".empty")
    assert len(full_site.get("incidents?state=resolved&q=breaks")) == 4


def test_runs_of_those_selected_are_silenced(full_site: Any, visit: Visit) -> None:
    page = visit(full_site, "/alerts?state=any&q=breaks")
    shown(page, ILL - {"goblin-bonus"})
    for run in ("breaks-1", "breaks[4]"):
        page.locator(".case", has_text=run).locator("[data-check]").check()
    page.get_by_role("button", name="Silence", exact=True).first.click()
    page.fill(".bulk [name=reason]", "maintenance")
    page.locator(".bulk .silence-form").get_by_role("button", name="Silence").click()
    page.locator("#toast", has_text="2 incidents silenced").wait_for()
    assert sorted(each["matcher"]["run"] for each in full_site.get("silences")) == ["breaks-1", "breaks[[]4]"]


def test_a_new_incident_appears_and_says_why_nobody_was_told(full_site: Any, visit: Visit) -> None:
    page = visit(full_site, "/alerts?q=turns-ill")
    page.wait_for_selector(".empty")
    Story(full_site, "turns-ill", healthy, seed=11).open().steps(0, 30, change=break_at(25))
    full_site.judge()
    page.wait_for_selector("article.case")
    assert "Nobody was told: no channel is set up" in page.inner_text(".case-told")


def test_nothing_wrong_a_run_that_is_missing_and_no_answer_are_said(empty_site: Any, visit: Visit) -> None:
    page = visit(empty_site, "/alerts?run=nope")
    assert "There is no such run" in page.inner_text(".empty")
    page.close()
    page = visit(empty_site, "/alerts")
    assert "Nothing is wrong" in page.inner_text(".empty")
    with expected_failures(page):
        empty_site.stop()
        try:
            page.get_by_role("button", name="Resolved", exact=True).click()
            page.get_by_text("The incidents could not be read").wait_for()
        finally:
            empty_site.start()
        page.get_by_text("No incident matches").wait_for()


def test_alert_by_alert_is_a_link_away(full_site: Any, visit: Visit) -> None:
    page = visit(full_site, "/alerts?run=goblin-bonus")
    shown(page, {"goblin-bonus"})
    page.get_by_role("link", name="Alert by alert").click()
    page.wait_for_selector("article.alert")
    assert "run=goblin-bonus" in page.url
    page.get_by_role("link", name="Incident by incident").click()
    page.wait_for_selector("article.case")


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_page_is_whole_and_accessible(full_site: Any, visit: Visit, theme: str) -> None:
    page = visit(full_site, "/alerts?state=any", theme=theme)
    page.wait_for_selector("article.case")
    page.locator("[data-check]").first.check()
    page.locator("[data-silence]").click()
    assert_accessible(page)
    assert_whole(page)
