"""The alerts page: what was raised, and who was told."""

from __future__ import annotations

from typing import Any

from conftest import Visit
from stories import Story, break_at, healthy


def test_an_alert_says_what_to_do_who_was_told_and_whether_it_arrived(site: Any, visit: Visit) -> None:
    page = visit(site, "/alerts?run=goblin-bonus")
    alert = page.locator("article.alert", has_text="The auxiliary reward is being earned")
    alert.wait_for()
    words = alert.inner_text()
    assert "Do first" in words and "goblin-bonus" in words
    assert "on-call arrived" in words.replace("\n", " ")
    assert "nobody" in words and "nobody arrived" not in words.replace("\n", " ")
    alert.get_by_role("link", name="goblin-bonus").click()
    page.wait_for_selector("[data-page=run] h1")


def test_an_alert_that_another_explains_says_why_nobody_was_told(site: Any, visit: Visit) -> None:
    page = visit(site, "/alerts?run=goblin-bonus")
    held = page.locator("article.alert", has_text="The task reward is falling")
    held.wait_for()
    assert "Nobody was told: aux_divergence explains it." in held.inner_text()


def test_filters_are_links_and_new_alerts_appear(site: Any, visit: Visit) -> None:
    page = visit(site, "/alerts?q=turns-ill")
    page.wait_for_selector(".empty")
    Story(site, "turns-ill", healthy, seed=11).open().steps(0, 30, change=break_at(25))
    site.judge()
    page.wait_for_selector("article.alert")
    page.get_by_role("link", name="Resolved").click()
    page.wait_for_selector(".empty")
    assert "state=resolved" in page.url and "q=turns-ill" in page.url
    page.go_back()
    page.wait_for_selector("article.alert")
