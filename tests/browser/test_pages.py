"""Every page as a visitor meets it first: at three widths, dark and light, without an error, an overflow or a request to another host."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Visit
from looks import assert_accessible, assert_whole

PAGES = {
    "/": ".fleet tbody tr",
    "/run/goblin-bonus": ".plot .main-svg",
    "/run/waits": ".empty",
    "/alerts": "article.case",
    "/no/such/page": ".empty",
    "/incident/NOPE": ".empty",
}
MISSING = {
    "/run/NOPE": ("There is no such run", "Go to the fleet", ".fleet tbody tr"),
    "/incident/NOPE": ("There is no such incident", "Go to the alerts", "article.case"),
    "/incident/00000000-0000-0000-0000-000000000000": ("There is no such incident", "Go to the alerts", "article.case"),
    "/incident/": ("There is no such incident", "Go to the alerts", "article.case"),
    "/nope": ("Nothing lives here", "Go to the fleet", ".fleet tbody tr"),
}


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_whole_as_the_first_request_at_every_width(site: Any, visit: Visit, path: str, theme: str) -> None:
    page = visit(site, path, theme=theme, width=1920)
    page.wait_for_selector(PAGES[path])
    if PAGES[path] == ".empty" and path != "/run/waits":
        page.trouble.forgive("404")
    assert_whole(page)


@pytest.mark.parametrize("path", MISSING)
def test_what_is_not_there_is_said_with_its_status_and_a_way_back(site: Any, visit: Visit, path: str) -> None:
    title, way, there = MISSING[path]
    page = visit(site, path)
    page.trouble.forgive("404")
    assert page.request.get(site.url + path).status == 404
    assert page.inner_text("h1") == title and page.title() == f"{title} · rlvitals"
    page.get_by_role("link", name=way).click()
    page.wait_for_selector(there)
    page.go_back()
    page.get_by_role("heading", level=1, name=title).wait_for()


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("path", ["/", "/run/goblin-bonus", "/alerts", "/incident/NOPE"])
def test_no_serious_violation_of_accessibility(site: Any, visit: Visit, path: str, theme: str) -> None:
    page = visit(site, path, theme=theme)
    page.wait_for_selector(PAGES[path])
    if path == "/incident/NOPE":
        page.trouble.forgive("404")
    assert_accessible(page)


def test_an_empty_fleet_teaches_how_to_start(empty_site: Any, visit: Visit) -> None:
    page = visit(empty_site, "/")
    page.wait_for_selector(".note .code")
    assert "monitor.client.start" in page.inner_text(".note .code")
    assert empty_site.url in page.inner_text(".note")


def test_the_api_answers_unknown_paths_itself(site: Any, visit: Visit) -> None:
    page = visit(site, "/")
    answer = page.request.get(site.url + "/api/v1/nope")
    assert answer.status == 404 and answer.headers["content-type"].startswith("application/json")


def test_themes_and_keys(site: Any, visit: Visit) -> None:
    page = visit(site, "/")
    page.wait_for_selector(".fleet tbody tr")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.keyboard.press("?")
    page.wait_for_selector("dialog#keys[open]")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.wait_for_selector("article.case")
    page.go_back()
    page.wait_for_selector(".fleet tbody tr")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "fleet-search"
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.wait_for_selector("article.case")
    page.keyboard.press("/")
    page.wait_for_function("document.activeElement.id === 'fleet-search'")
    page.keyboard.press("Escape")
    page.wait_for_selector(".fleet tbody tr")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-page=run] h1")
