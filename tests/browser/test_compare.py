"""The compare page: what differs, where the runs part, values side by side, curves on top of each other."""

from __future__ import annotations

from typing import Any

from conftest import Visit


def test_two_runs_are_compared_from_the_fleet(site: Any, visit: Visit) -> None:
    page = visit(site, "/")
    page.get_by_role("checkbox", name="Compare learns").check()
    page.get_by_role("checkbox", name="Compare goblin-bonus").check()
    page.get_by_role("button", name="Compare 2").click()
    page.wait_for_selector("[data-page=compare] h1")
    page.get_by_role("heading", name="Where they part").wait_for()
    assert "seed" in page.inner_text("#compare-findings")
    told = page.inner_text(".parts")
    assert "goblin-bonus parts first at step" in told or "learns parts first at step" in told
    step = int(told.split("step ")[1].split(" ")[0].replace(",", ""))
    assert 25 <= step <= 45
    page.locator("#chart-m-reward-task-mean").scroll_into_view_if_needed()
    page.wait_for_selector("#chart-m-reward-task-mean .main-svg")
    names = page.evaluate("document.querySelector('#chart-m-reward-task-mean .plot').data.map(t => t.name)")
    assert sorted(names) == ["goblin-bonus", "learns"]


def test_the_baseline_can_be_changed(site: Any, visit: Visit) -> None:
    page = visit(site, "/compare?runs=learns,goblin-bonus,breaks-and-resumes")
    assert page.locator(".run-chip").first.inner_text().startswith("learns")
    page.get_by_role("link", name="make baseline").first.click()
    page.wait_for_function("document.querySelector('.run-chip').textContent.startsWith('goblin-bonus')")
    page.get_by_role("link", name="leave out").first.click()
    page.wait_for_function("document.querySelectorAll('.run-chip').length === 2")


def test_fewer_than_two_runs_say_how_to_choose(site: Any, visit: Visit) -> None:
    page = visit(site, "/compare?runs=learns")
    assert "Mark two or more runs" in page.inner_text(".empty")
