"""The incident page: the cascade with its evidence, who was told, and what people do about it."""

from __future__ import annotations

import os
from typing import Any

import pytest
from conftest import Visit, _make_database, expected_failures
from looks import assert_accessible, assert_whole
from site_under_test import Site
from stories import Story, break_at, goblin, healthy

LEAD = "The auxiliary reward is being earned instead of the task"


def ill(site: Any, uid: str, seed: int) -> str:
    """The incident's page of a new run that broke."""
    Story(site, uid, healthy, seed=seed).open().steps(0, 30, change=break_at(25))
    site.judge()
    return str(site.incident(uid))


def test_the_first_mover_is_on_top_and_what_it_explains_is_quieter_below(site: Any, visit: Visit) -> None:
    page = visit(site, site.incident("goblin-bonus"))
    assert page.locator("h1").inner_text() == LEAD
    rows = page.locator(".link")
    assert LEAD in rows.first.inner_text() and rows.first.get_attribute("open") is not None
    words = rows.first.inner_text()
    assert all(label in words for label in ("Evidence", "Likely cause", "Do first", "Refuted if"))
    held = page.locator(".link.held")
    assert held.count() == rows.count() - 1 > 0
    assert "held: follows from the first mover" in held.first.inner_text()
    held.first.locator("summary").click()
    assert "aux_divergence explains it" in held.first.inner_text()


def test_charts_stand_around_the_onset_and_rollouts_show_it(site: Any, visit: Visit) -> None:
    page = visit(site, site.incident("goblin-bonus"))
    page.locator("#chart-reward-components").scroll_into_view_if_needed()
    page.wait_for_selector("#chart-reward-components .main-svg")
    low, high = page.evaluate("document.querySelector('#chart-reward-components .plot').layout.xaxis.range")
    assert 20 < low < 31 and high >= 49
    assert page.locator(".chart").count() >= 3
    page.wait_for_selector(".sample")
    assert "Step 40" in page.inner_text(".steps")
    page.get_by_role("button", name="Before it began step 30").click()
    page.wait_for_function("document.querySelector('.steps').textContent.includes('Step 30')")
    assert "step=30" in page.url
    page.click("#unzoom")
    page.wait_for_function("document.querySelector('#chart-reward-components .plot').layout.xaxis.range[0] <= 0")


def test_it_says_who_was_told_and_whether_it_arrived(site: Any, visit: Visit) -> None:
    page = visit(site, site.incident("goblin-bonus"))
    told = page.inner_text("#incident-told").replace("\n", " ")
    assert "on-call arrived" in told and "nobody has not arrived yet" in told and "All connection attempts failed" in told
    assert "nobody was told: another explains them" in told
    assert "the condition became more severe" in page.inner_text("#incident-log")


def test_acts_are_shown_at_once_stored_and_seen_by_others(site: Any, visit: Visit) -> None:
    path = ill(site, "acted-on", 21)
    page, other = visit(site, path), visit(site, path)
    page.fill(".acts .author", "ada")
    page.fill(".acts .words", "on it, <b>now</b>")
    page.get_by_role("button", name="Acknowledge").focus()
    page.keyboard.press("Enter")
    page.get_by_text("ada is on it").wait_for()
    page.locator("#incident-log", has_text="on it, <b>now</b>").wait_for()
    assert page.input_value(".acts .words") == ""
    other.get_by_text("ada is on it").wait_for()
    assert site.get(f"incidents{path.removeprefix('/incident')}")["acknowledged_by"] == "ada"
    other.reload()
    other.get_by_role("button", name="Take back").click()
    page.get_by_text("Nobody is on it").wait_for()
    page.get_by_role("button", name="True", exact=True).click()
    page.locator("#incident-log", has_text="true alarm").wait_for()
    page.select_option(".acts .outcome", "instability")
    page.wait_for_function("!document.querySelector('.acts .now').textContent.includes('Saving')")
    assert site.get("runs/acted-on")["outcome"] == "instability"
    page.get_by_role("button", name="Resolve").click()
    page.get_by_text("It is over").wait_for()
    page.locator("#incident-head .state", has_text="Resolved").wait_for()
    assert page.get_by_role("button", name="Acknowledge").get_attribute("aria-disabled") == "true"
    page.reload()
    page.get_by_text("It is over").wait_for()
    assert page.locator(".acts [data-mark=true]").get_attribute("aria-pressed") == "true"
    assert page.input_value(".acts .author") == "ada"


def test_a_silence_is_made_and_ended_here(site: Any, visit: Visit) -> None:
    path = ill(site, "silenced[1]", 22)
    page = visit(site, path)
    page.locator(".silencing > summary").click()
    page.get_by_role("button", name="Silence", exact=True).click()
    assert "Say why" in page.inner_text(".acts .failed")
    page.fill(".silence-form [name=reason]", "a known bad node")
    page.get_by_role("button", name="Silence", exact=True).click()
    page.locator(".silences", has_text="a known bad node").get_by_role("button", name="End this silence").wait_for()
    (stored,) = site.get("silences")
    assert stored["matcher"] == {"run": "silenced[[]1]"}
    page.reload()
    page.get_by_role("button", name="End this silence").click()
    page.wait_for_selector(".silence", state="detached")
    page.wait_for_function("!document.querySelector('.acts .now').textContent.includes('Saving')")
    assert site.get("silences") == []


def test_what_was_not_done_is_taken_back_and_said(site: Any, visit: Visit) -> None:
    page = visit(site, ill(site, "unanswered", 23))
    page.get_by_text("Nobody is on it").wait_for()
    page.fill(".acts .words", "keep these words")
    with expected_failures(page):
        site.stop()
        page.get_by_role("button", name="Acknowledge").click()
        page.locator(".failed", has_text="did not answer").wait_for()
        assert "Nobody is on it" in page.inner_text(".acts .now") and page.input_value(".acts .words") == "keep these words"
        site.start()
        page.wait_for_function("document.getElementById('live').textContent === 'live'")
    page.get_by_role("button", name="Acknowledge").click()
    page.get_by_text("somebody is on it").wait_for()
    assert page.inner_text(".acts .failed") == ""


def test_with_a_token_only_those_who_logged_in_can_act(postgres: str, template_database: str, visit: Visit) -> None:
    with Site(_make_database(postgres, template_database, f"vitals_token_{os.getpid()}"), token="correct-horse-battery") as site:
        path = ill(site, "guarded", 24)
        page = visit(site, path)
        page.fill("#token", "correct-horse-battery")
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("button", name="Acknowledge").click()
        page.get_by_text("somebody is on it").wait_for()
        page.locator("#incident-log", has_text="acknowledged it").wait_for()
        with expected_failures(page):
            page.context.clear_cookies()
            page.get_by_role("button", name="Take back").click()
            page.locator(".failed", has_text="not logged in").get_by_role("link", name="Log in").click()
            page.wait_for_selector("#token")
        assert site.get("incidents?run=guarded")[0]["state"] == "acknowledged"


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_page_is_whole_and_accessible(site: Any, visit: Visit, theme: str) -> None:
    page = visit(site, site.incident("goblin-bonus"), theme=theme)
    page.wait_for_selector(".plot .main-svg")
    page.locator(".silencing > summary").click()
    assert_accessible(page)
    assert_whole(page)


def test_a_row_can_be_named_by_the_address(site: Any, visit: Visit) -> None:
    path = site.incident("goblin-bonus")
    last = site.get(f"incidents{path.removeprefix('/incident')}")["alerts"][-1]
    page = visit(site, f"{path}#alert-{last['id']}")
    page.locator(f"#alert-{last['id']}[open]").wait_for()


def test_a_growing_incident_is_drawn_anew(site: Any, visit: Visit) -> None:
    story = Story(site, "worsens", goblin, seed=25).open().steps(0, 34)
    site.judge()
    page = visit(site, site.incident("worsens"))
    before = page.locator(".entry").count()
    story.steps(34, 45)
    site.judge()
    page.wait_for_function(f"document.querySelectorAll('.entry').length > {before}")
