"""The compare page: what differs, where the runs part, values side by side, seeds as one line, settings against outcomes."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from conftest import Visit
from looks import assert_accessible, assert_whole

SEEDS = [f"sweep-{lr}-{seed}" for lr in ("0.0001", "0.005") for seed in range(3)]
SWEEP = f"/compare?runs={','.join([*SEEDS, 'sweep-bonus'])}"

_TRACES = """(id) => document.querySelector(`#chart-${id} .plot`).data.map((t) => ({
  name: t.name, x: [...t.x], y: [...(t.y || [])], width: t.line?.width ?? null, fill: t.fill ?? null, text: t.text ?? null, mode: t.mode }))"""


def show(page: Any, chart: str) -> None:
    """Scrolls to a chart once nothing above it will grow any more."""
    page.get_by_role("heading", name="Settings and outcomes").wait_for()
    page.locator(f"#chart-{chart}").scroll_into_view_if_needed()
    page.wait_for_selector(f"#chart-{chart} .plot path.js-line[d]")


def traces(page: Any, chart: str = "m-reward-task-mean") -> list[dict[str, Any]]:
    show(page, chart)
    return list(page.evaluate(_TRACES, chart))


def cells(page: Any, region: str, row: str) -> list[str]:
    """The text of a row of a table, without its head."""
    found = page.get_by_role("region", name=region, exact=True).locator("tr", has=page.locator(f"th[scope=row]:text-matches('^{row}')"))
    return [text.strip() for text in found.first.locator("td").all_inner_texts()]


def point_of(page: Any, chart: str, name: str, step: int) -> tuple[float, float]:
    """Where a point of a line lies on the screen."""
    show(page, chart)
    page.wait_for_timeout(300)
    spot = page.evaluate(
        """([id, name, step]) => {
          const plot = document.querySelector(`#chart-${id} .plot`);
          const trace = plot.data.find((t) => t.name === name);
          const place = [...trace.x].indexOf(step);
          const { xaxis, yaxis } = plot._fullLayout;
          const box = plot.getBoundingClientRect();
          return [box.left + xaxis._offset + xaxis.d2p(step), box.top + yaxis._offset + yaxis.d2p(trace.y[place])];
        }""",
        [chart, name, step],
    )
    return spot[0], spot[1]


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
    assert sorted(trace["name"] for trace in traces(page)) == ["goblin-bonus", "learns, baseline"]


def test_a_reward_that_only_one_run_has_is_a_chart_and_a_row(site: Any, visit: Visit) -> None:
    page = visit(site, "/compare?runs=learns,goblin-bonus")
    page.get_by_role("heading", name="Where they part").wait_for()
    learns, goblin = cells(page, "Values", "Auxiliary reward: goblin")
    assert learns == "–" and float(goblin.split()[0]) > 1
    assert [trace["name"] for trace in traces(page, "m-reward-aux-goblin-mean")] == ["goblin-bonus"]


def test_the_baseline_is_in_the_address_and_marked(site: Any, visit: Visit) -> None:
    page = visit(site, "/compare?runs=learns,goblin-bonus,breaks-and-resumes&smooth=5")
    page.get_by_role("heading", name="Where they part").wait_for()
    assert cells(page, "Values", "Task reward")[0].count("(") == 0
    order = page.locator(".run-chip > a:first-of-type").all_inner_texts()
    page.locator(".run-chip", has_text="goblin-bonus").get_by_role("link", name="make baseline").click()
    page.wait_for_function("document.querySelectorAll('.run-chip')[1].querySelector('.state') && location.search.includes('baseline=goblin-bonus')")
    assert "smooth=5" in page.url, "what the driver put into the address stays"
    assert page.locator(".run-chip > a:first-of-type").all_inner_texts() == order, "colours stay with their runs"
    page.get_by_role("heading", name="Where they part").wait_for()
    learns, goblin, _ = cells(page, "Values", "Task reward")
    assert "(" not in goblin
    last, gap = (float(text.replace("−", "-")) for text in re.match(r"([\d.]+) ([+−][\d.]+)", learns).groups())  # type: ignore[union-attr]
    assert math.isclose(last - gap, float(goblin.split()[0]), abs_tol=0.02) and "better" in learns
    assert "best" in learns and learns.split("best")[1].count("(") <= 1
    widths = {trace["name"]: trace["width"] for trace in traces(page) if trace["width"] and trace["width"] > 1}
    assert widths["goblin-bonus, baseline"] > widths["learns"]
    page.go_back()
    page.wait_for_function("document.querySelectorAll('.run-chip')[0].querySelector('.state')")
    page.get_by_role("link", name="leave out").first.click()
    page.wait_for_function("document.querySelectorAll('.run-chip').length === 2")


def test_fewer_than_two_runs_say_how_to_choose(site: Any, visit: Visit) -> None:
    page = visit(site, "/compare?runs=learns")
    assert "Mark two or more runs" in page.inner_text(".empty")


def test_runs_that_are_not_compared_are_named(site: Any, visit: Visit) -> None:
    page = visit(site, "/compare?runs=learns,nobody,goblin-bonus")
    page.get_by_text("This collector holds no run nobody.").wait_for()
    assert page.locator(".run-chip").count() == 2
    page.goto(f"{site.url}/compare?runs=learns,nobody")
    page.get_by_text("This collector holds no run nobody.").wait_for()
    page.goto(f"{site.url}/compare?runs=waits,{','.join(f'r{i}' for i in range(30))}")
    page.get_by_text("The first 20 of 31 runs are compared.").wait_for()


def test_findings_that_fail_say_so_and_can_be_tried_again(site: Any, visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("dashboards.pages.compare._curves", None)
        page = visit(site, "/compare?runs=learns,goblin-bonus")
        page.get_by_role("heading", name="The runs could not be compared").wait_for()
        page.locator("#chart-m-reward-task-mean .main-svg").first.wait_for()
    page.get_by_role("link", name="Try again").click()
    page.get_by_role("heading", name="Where they part").wait_for()


def test_settings_that_are_nested_or_changed_while_running_differ(site: Any, visit: Visit) -> None:
    page = visit(site, "/compare?runs=sweep-0.005-0,sweep-bonus")
    page.get_by_role("heading", name="What differs in the set-up").wait_for()
    assert cells(page, "What differs", "aux.word") == ["–", "0.0, 0.5 from step 10"]
    assert cells(page, "What differs", "aux.length") == ["–", "0.1"]
    assert cells(page, "What differs", "optimizer") == ["sgd", "–"]
    assert cells(page, "What differs", "tags") == ["seeds, lr 0.005", "bonus"]


def test_runs_that_share_a_setting_become_a_mean_with_a_band(site: Any, visit: Visit) -> None:
    page = visit(site, f"{SWEEP}&group=lr&all=1")
    page.get_by_role("heading", name="Where they part").wait_for()
    assert page.locator(".group-name").all_inner_texts() == ["lr 0.0001 (n = 3)", "lr 0.005 (n = 3)", "lr 0.001 (n = 1)"]
    found = traces(page, "m-my-own-metric")
    mean = next(trace for trace in found if trace["name"] == "lr 0.005 (n = 3)")
    bands = [trace for trace in found if trace["name"] == "lr 0.005 (n = 3), band"]
    assert [trace["fill"] for trace in bands] == [None, "tonexty"]
    alone = next(trace for trace in found if trace["name"] == "lr 0.001 (n = 1)")
    assert not any(trace["name"].startswith("lr 0.001") and trace["fill"] for trace in found), "a run by itself has no band"
    assert alone["x"][-1] == 29
    rows = [site.get(f"runs/{uid}/series?metrics=my.own_metric")["series"]["my.own_metric"]["0"] for uid in SEEDS[3:]]
    values = [dict(zip(row["x"], row["y"], strict=True)) for row in rows]
    for step, many in ((20, 3), (41, 2), (55, 2), (65, 1)):
        there = [value[step] for value in values if value.get(step) is not None]
        assert len(there) == many, "what is not finite or not there does not count"
        place = mean["x"].index(step)
        assert math.isclose(mean["y"][place], sum(there) / many, rel_tol=1e-9)
        assert f"{many} run" in mean["text"][place]
        assert (bands[0]["y"][place], bands[1]["y"][place]) == (min(there), max(there))
    bad = next(trace for trace in found if trace["name"] == "not finite")
    assert [text for text in bad["text"] if "NaN at step 41" in text] == bad["text"] and len(bad["text"]) == 2
    page.locator("#chart-m-my-own-metric").hover()
    page.get_by_role("button", name="my.own_metric as a table").click()
    heads = page.locator("#chart-m-my-own-metric .card-foot th[scope=col]").all_inner_texts()
    assert "lr 0.005 (n = 3), mean" in heads and "lr 0.005 (n = 3), runs" in heads


def test_a_grouping_is_chosen_kept_in_the_address_and_taken_back(site: Any, visit: Visit) -> None:
    page = visit(site, SWEEP)
    page.wait_for_selector("[data-choice=group]")
    assert page.locator("[data-choice=group] option").all_inner_texts() == [
        "Run by run",
        *(f"By {key}" for key in ("aux.length", "aux.word", "clip", "lr", "optimizer", "seed", "tag")),
    ]
    page.select_option("[data-choice=group]", "clip")
    page.wait_for_selector(".group-name")
    assert "group=clip" in page.url
    assert page.locator(".group-name").all_inner_texts() == ["clip not set (n = 5)", "clip 0.2 (n = 2)"]
    page.go_back()
    page.wait_for_function("!document.querySelector('.group-name') && document.querySelector('[data-choice=group]').value === ''")
    page.goto(f"{site.url}{SWEEP}&group=tag")
    page.wait_for_selector(".group-name")
    assert page.locator(".group-name").all_inner_texts() == [
        "tag seeds (n = 6)",
        "tag lr 0.0001 (n = 3)",
        "tag lr 0.005 (n = 3)",
        "tag bonus (n = 1)",
    ]
    page.goto(f"{site.url}{SWEEP}&group=nothing.such")
    page.get_by_text("None of these runs has a setting called nothing.such").wait_for()


def test_a_click_on_a_curve_leads_to_its_run_at_that_step(site: Any, visit: Visit) -> None:
    page = visit(site, "/compare?runs=learns,goblin-bonus")
    for name, uid, step in (("goblin-bonus", "goblin-bonus", 45), ("learns, baseline", "learns", 45)):
        page.mouse.click(*point_of(page, "m-reward-task-mean", name, step))
        page.wait_for_function("([uid, step]) => location.pathname === `/run/${uid}` && location.search === `?step=${step}`", arg=[uid, step])
        page.wait_for_selector(f"[data-run='{uid}'] h1")
        page.go_back()
        page.wait_for_selector("[data-page=compare] h1")


def test_a_click_on_a_group_leads_to_its_nearest_run_and_its_table_has_links(site: Any, visit: Visit) -> None:
    page = visit(site, f"{SWEEP}&group=lr")
    page.mouse.click(*point_of(page, "m-reward-task-mean", "lr 0.005 (n = 3)", 65))
    page.wait_for_function("location.pathname === '/run/sweep-0.005-2' && location.search === '?step=65'")
    page.goto(f"{site.url}/compare?runs=learns,goblin-bonus")
    page.locator("#chart-m-reward-task-mean").hover()
    page.get_by_role("button", name="Task reward as a table").focus()
    page.keyboard.press("Enter")
    link = page.locator("#chart-m-reward-task-mean .card-foot td a").first
    link.focus()
    page.keyboard.press("Enter")
    page.wait_for_function("location.pathname.startsWith('/run/') && location.search.startsWith('?step=')")


def test_settings_and_outcomes_are_drawn_across_axes_and_told_in_a_table(site: Any, visit: Visit) -> None:
    page = visit(site, f"{SWEEP}#parallel")
    page.wait_for_selector("#parallel .figure .js-line")
    drawn = page.evaluate(
        """() => { const plot = document.querySelector('#parallel .figure');
        return { lines: plot.data.map((t) => [t.name, [...t.y]]), notes: plot.layout.annotations.map((a) => a.text) }; }"""
    )
    assert len(drawn["lines"]) == 7 and all(len(y) == len(drawn["lines"][0][1]) for _, y in drawn["lines"])
    for title in ("clip", "lr", "optimizer", "seed", "Last task reward", "Best task reward", "Last entropy"):
        assert title in drawn["notes"], title
    assert {"0.0001", "0.005", "adamw", "sgd", "none"} <= set(drawn["notes"])
    axis = page.evaluate("[...document.querySelectorAll('#parallel th[scope=col]')].map((t) => t.textContent)").index("clip") - 1
    assert [y[axis] < 0 for _, y in drawn["lines"]] == [True, True, False, True, True, False, True], "what is not set is not zero"
    page.get_by_text("As a table").click()
    row = page.get_by_role("region", name="Settings and outcomes as a table").locator("tr", has_text="with bonus")
    assert "none" in row.inner_text() and "0.001" in row.inner_text()
    row.get_by_role("link").click()
    page.wait_for_selector("[data-run='sweep-bonus'] h1")


def test_a_table_that_is_cut_off_shows_it_and_scrolls_by_keyboard_beside_its_first_column(site: Any, visit: Visit) -> None:
    page = visit(site, SWEEP, width=390)
    region = page.get_by_role("region", name="Values", exact=True)
    region.wait_for()
    assert region.evaluate("node => node.scrollWidth > node.clientWidth")
    assert "gradient" in region.evaluate("node => getComputedStyle(node).backgroundImage")
    head = region.locator("tbody th").first
    before = head.bounding_box()
    region.focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("node => node.scrollLeft > 40", arg=region.element_handle())
    after = head.bounding_box()
    assert before and after and abs(before["x"] - after["x"]) < 1, "the first column stays"


def test_runs_of_the_same_name_can_be_told_apart(site: Any, visit: Visit) -> None:
    page = visit(site, SWEEP)
    page.wait_for_selector(".run-chip")
    assert page.locator(".run-chip > a:first-of-type").all_inner_texts() == [*(f"sweep · {uid}" for uid in SEEDS), "with bonus"]
    page.goto(f"{site.url}/?project=sweep")
    page.wait_for_selector(".fleet tbody tr")
    assert sorted(page.locator(".fleet tbody .c-run a").all_inner_texts()) == sorted([*(f"sweep · {uid}" for uid in SEEDS), "with bonus"])


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_it_is_whole_and_accessible(site: Any, visit: Visit, theme: str) -> None:
    page = visit(site, f"{SWEEP}&group=lr", theme=theme)
    page.wait_for_selector("#parallel .figure .js-line")
    assert_accessible(page)
    assert_whole(page)
