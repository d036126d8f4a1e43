"""Silence that says nothing: what a run has announced, and when nobody was looking."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from conftest import Visit, _make_database
from looks import assert_accessible, assert_whole
from site_under_test import Site
from sqlalchemy import func, insert, update
from stories import T0, Story, healthy

from monitor import wire
from monitor.store import tables

SHADES = """() => (document.querySelector('#chart-m-entropy-mean .plot').layout?.shapes || [])
  .filter((shape) => shape.type === 'rect' && shape.yref === 'paper').map((shape) => [shape.x0, shape.x1])"""


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


@pytest.fixture(scope="module")
def quiet_site(postgres: str, template_database: str) -> Iterator[Any]:
    """A run that evaluates, one that is paused, and two spells of ours: the worker's over steps 20 to 30, and the collector's five minutes ago."""
    with Site(_make_database(postgres, template_database, f"vitals_quiet_{os.getpid()}")) as site:
        now = time.time()
        for uid, kind, detail in (("evaluates", "expect", {"seconds": 1800, "why": "evaluation"}), ("paused", "pause", {})):
            Story(site, uid, healthy, seed=60).open().steps(0, 40, events=(wire.Event(now, kind, 39, detail),))
        Story(site, "later", healthy, seed=61).open().steps(0, 40)
        spells = [("worker", at(T0 + 81), at(T0 + 120.5)), ("collector", at(now - 600), at(now - 300))]
        site.change(
            *(insert(tables.blind).values(component=name, from_at=begin, to_at=end) for name, begin, end in spells),
            update(tables.run).where(tables.run.c.uid == "later").values(created_at=func.now()),
        )
        site.judge()
        yield site


def chips(page: Any) -> list[str]:
    return [" ".join(each.split()) for each in page.locator("#head-quiet > *").all_inner_texts()]


def test_the_head_says_which_silence_was_announced_and_when_nobody_was_looking(quiet_site: Any, visit: Visit) -> None:
    page = visit(quiet_site, "/run/evaluates", zone="UTC")
    (until,) = [each["until"] for each in quiet_site.get("presence")["announced"] if each["run"] == "evaluates"]
    page.wait_for_function("document.querySelector('#head-quiet time').textContent !== ''")
    said, blind = chips(page)
    assert re.fullmatch(rf"silence announced until (\w+ \d+, )?{at(until):%I:%M %p} \(evaluation\)", said)
    assert blind.startswith("the collector was down from ") and " to " in blind
    assert chips(visit(quiet_site, "/run/paused"))[0] == "silence announced until its next row (paused)"
    assert chips(visit(quiet_site, "/run/later")) == []


def test_a_spell_is_a_band_in_the_charts_and_a_line_in_the_list_of_events(quiet_site: Any, visit: Visit) -> None:
    page = visit(quiet_site, "/run/evaluates")
    page.locator("#chart-m-entropy-mean").scroll_into_view_if_needed()
    page.wait_for_function(f"({SHADES})().length === 1")
    assert page.evaluate(SHADES) == [[20, 30]]
    rows = [" ".join(row.split()) for row in page.locator("#events tbody tr").all_inner_texts()]
    assert any(row.startswith("20 blind the worker was down until ") for row in rows)
    page.locator("#chart-m-entropy-mean .plot .nsewdrag").click()
    page.locator("#pick", has_text="1 event").wait_for()


def test_what_is_announced_and_what_is_over_follow_by_themselves(quiet_site: Any, visit: Visit) -> None:
    story = Story(quiet_site, "comes-back", healthy, seed=62).open().steps(0, 40)
    quiet_site.change(update(tables.run).where(tables.run.c.uid == "comes-back").values(created_at=func.now()))
    quiet_site.judge()
    page = visit(quiet_site, "/run/comes-back")
    page.wait_for_function("document.getElementById('live').textContent === 'live'")
    assert chips(page) == []
    story.steps(40, 41, events=(wire.Event(time.time(), "pause", 40, {"why": "waits for its data"}),))
    quiet_site.judge()
    page.locator("#head-quiet", has_text="waits for its data").wait_for()
    story.steps(41, 43)
    quiet_site.judge()
    page.wait_for_function("document.querySelector('#head-quiet').children.length === 0")


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_page_is_whole_and_accessible(quiet_site: Any, visit: Visit, theme: str) -> None:
    page = visit(quiet_site, "/run/evaluates", theme=theme)
    page.wait_for_selector(".plot .main-svg")
    assert_accessible(page)
    assert_whole(page)
