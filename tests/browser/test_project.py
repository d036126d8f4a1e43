"""A project's history: every run as a mark by the time it started, filters and pages in the address, several runs marked and compared."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from conftest import Visit, _make_database
from looks import assert_accessible, assert_whole
from site_under_test import Site, in_own_loop
from sqlalchemy import text
from stories import Story, healthy

from monitor.store import database

PROJECT = "weeks / of runs"
PATH = "/project/weeks%20%2F%20of%20runs"
MANY = 120

_MARKS = "() => Object.fromEntries(document.querySelector('.figure').data.map((t) => [t.name, [t.marker.symbol, [...t.y], t.yaxis]]))"


def _sql(site: Any, *statements: str) -> None:
    async def run() -> None:
        async with database.opened(site.database_url) as engine, engine.begin() as connection:
            for statement in statements:
                await connection.execute(text(statement))

    in_own_loop(run)


@pytest.fixture(scope="module")
def weeks(postgres: str, template_database: str) -> Iterator[Site]:
    """Two runs with rows, one that was called a collapse and one without a reward; and many that never sent a row, a day apart each."""
    with Site(_make_database(postgres, template_database, f"vitals_weeks_{os.getpid()}")) as site:
        Story(site, "learns", healthy, seed=1).open().steps(0, 20, hists=False, rollouts=0).finish()
        Story(site, "weeks-good", healthy, project=PROJECT, seed=31).open().steps(0, 20, hists=False, rollouts=0).finish()
        Story(site, "weeks-bad", healthy, project=PROJECT, seed=32).open().steps(0, 20, hists=False, rollouts=0, change=_lost).finish()
        Story(site, "weeks-blind", healthy, project=PROJECT, seed=33).open().steps(0, 20, hists=False, rollouts=0, change=_blind).finish()
        for number in range(MANY - 3):
            Story(site, f"weeks-old-{number:03}", healthy, project=PROJECT).open().finish()
        site.judge()
        now = datetime.now(UTC)
        ages = {"weeks-good": 1, "weeks-bad": 2, "weeks-blind": 3} | {f"weeks-old-{number:03}": 4 + number for number in range(MANY - 3)}
        _sql(
            site,
            *(f"UPDATE run SET created_at = '{now - timedelta(days=age)}' WHERE uid = '{uid}'" for uid, age in ages.items()),
            "UPDATE run SET outcome = 'collapse' WHERE uid = 'weeks-bad'",
        )
        yield site


def _lost(step: int, row: dict[str, Any]) -> None:
    row["reward.task.mean"] = 0.8 - 0.04 * step


def _blind(step: int, row: dict[str, Any]) -> None:
    del row["reward.task.mean"]


def names(page: Any) -> list[str]:
    return list(page.locator(".runs tbody th a").all_inner_texts())


def test_every_run_is_a_mark_and_a_row(weeks: Any, visit: Visit) -> None:
    page = visit(weeks, PATH)
    page.wait_for_selector(".figure .point")
    assert page.inner_text("h1") == PROJECT and page.inner_text(".facts-line b") == str(MANY)
    marks = page.evaluate(_MARKS)
    assert sum(len(y) for _, y, _ in marks.values()) == MANY, "also those without a reward"
    values = {name: y for name, (_, y, axis) in marks.items() if axis == "y"}
    assert sum(len(y) for y in values.values()) == 2 and min(min(y) for y in values.values()) < 0.3
    assert all("no finite reward" in name for name, (_, _, axis) in marks.items() if axis == "y2")
    assert names(page)[:3] == ["weeks-good", "weeks-bad", "weeks-blind"] and len(names(page)) == 50
    row = page.locator(".runs tbody tr").nth(1)
    assert "collapse" in row.inner_text() and "0.8" in row.inner_text()
    assert page.locator(".runs tbody tr").nth(2).locator("td").nth(5).inner_text() == "–", "what was not logged is not zero"


def test_pages_filters_and_choices_are_in_the_address(weeks: Any, visit: Visit) -> None:
    page = visit(weeks, PATH)
    page.get_by_role("link", name="Older").click()
    page.wait_for_function("document.querySelector('.paging').textContent.includes('51 to 100')")
    assert "page=2" in page.url and names(page)[0] == "weeks-old-047"
    page.get_by_role("link", name="Older").click()
    page.wait_for_function(f"document.querySelector('.paging').textContent.includes('101 to {MANY}')")
    page.go_back()
    page.wait_for_function("document.querySelector('.paging').textContent.includes('51 to 100')")
    page.select_option("[data-choice=weeks]", "4")
    page.wait_for_function("document.querySelector('.facts-line b').textContent === '27'")
    assert "page=" not in page.url and "weeks=4" in page.url
    page.select_option("[data-choice=label]", "collapse")
    page.wait_for_function("document.querySelectorAll('.runs tbody tr').length === 1")
    assert names(page) == ["weeks-bad"]
    page.select_option("[data-choice=label]", "")
    page.wait_for_function("document.querySelectorAll('.runs tbody tr').length > 20")
    page.select_option("[data-choice=by]", "label")
    page.wait_for_function("document.querySelector('.figure.js-plotly-plot')?.data.some((t) => t.name === 'collapse')")
    page.select_option("[data-choice=value]", "best")
    page.wait_for_function("document.querySelector('.figure.js-plotly-plot')?.layout.yaxis.title.text === 'best task reward'")
    page.reload()
    page.wait_for_selector(".figure .point")
    assert page.input_value("[data-choice=by]") == "label" and page.input_value("[data-choice=value]") == "best"
    page.goto(f"{weeks.url}{PATH}?label=starved")
    page.get_by_text("No run matches").wait_for()
    page.get_by_role("link", name="Show every run").click()
    page.wait_for_selector(".runs tbody tr")


def test_several_are_marked_across_pages_and_compared(weeks: Any, visit: Visit) -> None:
    page = visit(weeks, PATH)
    page.get_by_role("checkbox", name="Mark weeks-good").check()
    page.get_by_role("checkbox", name="Mark weeks-bad").focus()
    page.keyboard.press("Space")
    page.get_by_role("link", name="Older").click()
    page.get_by_role("checkbox", name="Mark weeks-old-050").check()
    page.get_by_role("button", name="Compare 3").click()
    page.wait_for_selector("[data-page=compare] h1")
    assert page.locator(".run-chip > a:first-of-type").all_inner_texts() == ["weeks-good", "weeks-bad", "weeks-old-050"]
    page.go_back()
    page.wait_for_selector(".runs tbody tr")
    assert page.get_by_role("button", name="Compare 3").is_enabled()


def test_a_click_on_a_mark_opens_its_run(weeks: Any, visit: Visit) -> None:
    page = visit(weeks, PATH)
    page.wait_for_selector(".figure .point")
    spot = page.evaluate(
        """() => { const plot = document.querySelector('.figure'); const { xaxis, yaxis } = plot._fullLayout;
        const box = plot.getBoundingClientRect();
        const trace = plot.data.find((t) => t.yaxis === 'y' && t.customdata.some((link) => link.endsWith('/weeks-bad')));
        const place = trace.customdata.findIndex((link) => link.endsWith('/weeks-bad'));
        return [box.left + xaxis._offset + xaxis.d2p(trace.x[place]), box.top + yaxis._offset + yaxis.d2p(trace.y[place])]; }"""
    )
    page.mouse.move(*spot)
    page.mouse.click(*spot)
    page.wait_for_selector("[data-run='weeks-bad'] h1")


def test_it_is_reached_from_the_fleet_and_from_a_run(weeks: Any, visit: Visit) -> None:
    page = visit(weeks, "/?group=project&q=learns")
    page.get_by_role("link", name="History of code-repair").click()
    page.wait_for_selector("[data-page=project] h1")
    assert page.inner_text("h1") == "code-repair"
    assert page.locator(".bar nav a[aria-current]").inner_text() == "Fleet"
    page.get_by_role("link", name="in the fleet").click()
    page.wait_for_selector(".fleet tbody tr")
    page.get_by_role("link", name="History", exact=True).click()
    page.wait_for_selector("[data-page=project] h1")
    page.goto(f"{weeks.url}/run/weeks-good")
    page.get_by_role("link", name=PROJECT).click()
    page.wait_for_selector("[data-page=project] h1")
    assert page.inner_text("h1") == PROJECT


def test_a_project_that_is_not_there_is_not_found(weeks: Any, visit: Visit) -> None:
    page = visit(weeks, "/project/nobody")
    page.trouble.forgive("404")
    assert "There is no such project" in page.inner_text("h1")


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_it_is_whole_and_accessible(weeks: Any, visit: Visit, theme: str) -> None:
    page = visit(weeks, PATH, theme=theme)
    page.wait_for_selector(".figure .point")
    assert_accessible(page)
    assert_whole(page)
