"""The run page: verdict, live charts, marks, attempts, rollouts."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import Visit, expected_failures
from stories import Story, break_at, goblin, healthy

_READ = """(place) => {
  const plot = document.querySelector(place);
  const stroke = (line) => ({ dash: line && line.dash, width: line && line.width });
  const plain = (t) => ({ name: t.name, x: [...t.x], y: [...t.y], text: t.text, fill: t.fill, ...stroke(t.line), yaxis: t.yaxis });
  return { data: plot.data.map(plain), layout: plot.layout };
}"""
_STRIDE = """(stride) => {
  const x = document.querySelector('#chart-m-entropy-mean .plot').data.find((t) => t.name === 'Entropy').x;
  return x[1] - x[0] === stride;
}"""

_AT_TOP = """(id) => {
  const top = document.getElementById(id)?.getBoundingClientRect().top;
  const bottomed = innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
  return top != null && scrollY > 200 && (Math.abs(top - 106) < 40 || bottomed);
}"""
_TOUCHING = """(card) => {
  const boxes = (kind) => [...document.querySelectorAll(`${card} ${kind} text`)].map((node) => node.getBoundingClientRect());
  const touch = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  return boxes('.xtick').flatMap((x) => boxes('.ytick').filter((y) => touch(x, y)).map((y) => [x.x, x.y, y.x, y.y]));
}"""

_SHOWN = """([from, to]) => {
  const range = document.querySelector('#chart-m-entropy-mean .plot').layout?.xaxis.range;
  return range && range[0] === from && range[1] === to;
}"""
_FINE = """([from, to]) => {
  const plot = document.querySelector('#chart-m-entropy-mean .plot');
  const { range } = plot.layout?.xaxis || {};
  const x = plot.data?.find((t) => t.name === 'Entropy').x;
  return range && range[0] > from && range[1] < to && x.length > 100 && x[1] - x[0] === 1700;
}"""


def drawn(page: Any, chart: str) -> Any:
    """The figure Plotly drew in a card, once it is there."""
    page.locator(f"#chart-{chart}").scroll_into_view_if_needed()
    page.wait_for_selector(f"#chart-{chart} .main-svg")
    return page.evaluate(_READ, f"#chart-{chart} .plot")


def wander(ys: list[float]) -> float:
    """The length of the way up and down."""
    return sum(abs(a - b) for a, b in pairwise(ys))


def test_the_verdict_says_what_is_wrong_since_when_and_what_to_do(site: Any, visit: Visit) -> None:
    page = visit(site, "/run/goblin-bonus")
    assert page.locator(".headline .pill").first.inner_text() == "Critical"
    assert re.search(r"since step \d+", page.locator(".sentence").inner_text())
    words = page.locator(".headline .facts").first.inner_text()
    assert "Evidence" in words and "Do first" in words
    starts = [int(text.removeprefix("step ").replace(",", "")) for text in page.locator(".bar-row .when").all_inner_texts()]
    assert starts == sorted(starts)


def test_charts_show_alert_bands_and_a_second_axis_for_a_bonus_that_dwarfs_the_task(site: Any, visit: Visit) -> None:
    page = visit(site, "/run/goblin-bonus")
    figure = drawn(page, "reward-components")
    task = next(trace for trace in figure["data"] if trace["name"] == "task")
    assert task["x"] == list(range(50)) and task["y"][-1] < 0.2
    assert any(shape["type"] == "rect" for shape in figure["layout"]["shapes"])
    label = page.get_attribute("#chart-reward-components .plot", "aria-label")
    assert "task" in label and "step 49" in label
    marks = [mark for mark in json.loads(page.get_attribute("#marks", "data-marks")) if mark["kind"] == "alert"]
    own = min(mark["onset"] for mark in marks if mark["metric"] in ("reward.task.mean", "reward.aux.mean"))
    assert min(mark["onset"] for mark in marks) < own, "they moved with another finding before"
    bands = [shape for shape in figure["layout"]["shapes"] if shape["type"] == "rect" and shape["xref"] == "x"]
    assert min(shape["x0"] for shape in bands) == own


def test_what_is_not_finite_is_marked_and_older_attempts_are_faded(site: Any, visit: Visit) -> None:
    page = visit(site, "/run/breaks-and-resumes")
    figure = drawn(page, "m-opt-grad-norm")
    marks = next(trace for trace in figure["data"] if trace["name"] == "not finite")
    assert marks["x"] == [36, 37, 38, 39]
    faded = [trace for trace in figure["data"] if trace["name"].endswith("attempt 1")]
    assert faded and faded[0]["dash"] == "dot" and min(faded[0]["x"]) == 29
    lived = [trace for trace in figure["data"] if trace["name"] == "Gradient norm"]
    assert sorted(x for trace in lived for x in trace["x"]) == list(range(55))
    assert any(shape["type"] == "line" and shape["x0"] == 20 for shape in figure["layout"]["shapes"])


def test_a_constant_lies_inside_its_axis_without_letters(site: Any, visit: Visit) -> None:
    page = visit(site, "/run/learns")
    figure = drawn(page, "m-opt-lr")
    low, high = figure["layout"]["yaxis"]["range"]
    assert low <= 0.25 * 5e-4 and 5e-4 < high <= 2e-3
    ticks = page.locator("#chart-m-opt-lr .ytick").all_text_contents()
    assert len(ticks) >= 3 and not any(letter in tick for tick in ticks for letter in "µmnf")


def test_the_audit_does_not_hide_a_task_reward_that_equals_it(site: Any, visit: Visit) -> None:
    page = visit(site, "/run/goblin-bonus")
    lines = {trace["name"]: trace for trace in drawn(page, "reward-components")["data"]}
    assert lines["task"]["width"] > lines["audit"]["width"] and lines["audit"]["dash"] == "dash" and lines["task"]["dash"] == "solid"


def test_labels_of_the_axes_do_not_touch(site: Any, visit: Visit) -> None:
    page = visit(site, "/run/learns")
    for chart in ("m-opt-lr", "m-entropy-mean", "group-outcomes", "lengths"):
        drawn(page, chart)
        assert page.evaluate(_TOUCHING, f"#chart-{chart}") == [], chart


def test_a_link_to_a_section_scrolls_there_although_it_is_made_later(site: Any, visit: Visit) -> None:
    page = visit(site, "/run/goblin-bonus#organ-optimizer")
    page.wait_for_function(_AT_TOP, arg="organ-optimizer")
    page.locator(".organ a, .bar-row a").first.scroll_into_view_if_needed()
    page.locator(".bar-row summary").first.click()
    page.get_by_role("link", name="See the charts of").first.click()
    page.wait_for_function(_AT_TOP, arg=page.url.split("#")[1])
    page.goto(site.url + "/alerts?view=single&run=goblin-bonus")
    link = page.locator("article.alert .facts-line a").first
    link.wait_for()
    link.click()
    page.wait_for_selector("[data-page=run] h1")
    page.wait_for_function(_AT_TOP, arg=page.url.split("#")[1])
    drawn(page, "m-entropy-mean")


def test_a_run_that_is_not_there_is_said_to_be_missing(site: Any, visit: Visit) -> None:
    page = visit(site, "/run/nope")
    assert page.inner_text("h1") == "There is no such run" and "nope" in page.inner_text(".empty")
    page.trouble.forgive("404")
    assert page.request.get(f"{site.url}/run/nope").status == 404
    assert page.request.get(f"{site.url}/run/learns").status == 200


def test_a_long_run_is_drawn_in_buckets_with_their_envelope_and_a_zoom_reads_it_finer(site: Any, visit: Visit) -> None:
    page = visit(site, "/run/long")
    figure = drawn(page, "m-entropy-mean")
    line = next(trace for trace in figure["data"] if trace["name"] == "Entropy")
    assert len(line["x"]) < 1000 and line["x"][1] - line["x"][0] == 16
    assert any(trace["fill"] == "toself" for trace in figure["data"])
    page.evaluate("Plotly.relayout(document.querySelector('#chart-m-entropy-mean .plot'), {'xaxis.range[0]': 1000, 'xaxis.range[1]': 1200})")
    page.wait_for_function(_STRIDE, arg=1)
    assert "zoom=1000-1200" in page.url
    page.locator("#chart-m-opt-grad-norm").scroll_into_view_if_needed()
    page.wait_for_function(_STRIDE.replace("entropy-mean", "opt-grad-norm").replace("'Entropy'", "'Gradient norm'"), arg=1)
    page.select_option("#axis", "tokens")
    page.wait_for_function("document.querySelector('#chart-m-opt-grad-norm .plot').layout.xaxis.range[0] > 1e6")
    shown = page.evaluate("document.querySelector('#chart-m-opt-grad-norm .plot').layout.xaxis.range")
    assert shown == pytest.approx([1700 * 1001, 1700 * 1201], rel=0.02)
    page.reload()
    page.locator("#chart-m-entropy-mean").scroll_into_view_if_needed()
    page.wait_for_function(_FINE, arg=[1700 * 990, 1700 * 1210])
    page.select_option("#axis", "time")
    page.wait_for_function("document.querySelector('#chart-m-entropy-mean .plot').layout.xaxis.type === 'date'")
    assert "zoom=1000-1200" in page.url
    page.click("#unzoom")
    page.select_option("#axis", "step")
    page.wait_for_function("document.querySelector('#chart-m-entropy-mean .plot').data.find(t => t.name === 'Entropy').x.at(-1) > 4900")


def test_axes_and_smoothing_are_in_the_address(site: Any, visit: Visit) -> None:
    page = visit(site, "/run/learns?axis=tokens&smooth=5")
    figure = drawn(page, "m-entropy-mean")
    assert figure["layout"]["xaxis"]["title"]["text"] == "tokens"
    assert max(figure["data"][-1]["x"]) == 1700 * 60
    raw, smooth = figure["data"][-2:]
    assert wander(smooth["y"]) < wander(raw["y"])
    page.select_option("#axis", "time")
    page.wait_for_function("document.querySelector('#chart-m-entropy-mean .plot').layout.xaxis.type === 'date'")
    assert "axis=time" in page.url


def test_the_newest_steps_stay_in_view(site: Any, visit: Visit) -> None:
    story = Story(site, "goes-on", healthy, seed=21).open().steps(0, 1500, hists=False, rollouts=0)
    page = visit(site, "/run/goes-on?newest=100")
    drawn(page, "m-entropy-mean")
    page.wait_for_function(_SHOWN, arg=[1399, 1499])
    page.wait_for_function(_STRIDE, arg=1)
    story.steps(1500, 1550, hists=False, rollouts=0)
    page.wait_for_function(_SHOWN, arg=[1449, 1549])
    page.select_option("#newest", "")
    page.wait_for_function("document.querySelector('#chart-m-entropy-mean .plot').layout.xaxis.range[0] === 0")
    assert "newest" not in page.url


def test_charts_are_found_by_their_words(site: Any, visit: Visit) -> None:
    page = visit(site, "/run/learns")
    drawn(page, "m-entropy-mean")
    page.keyboard.press("/")
    page.keyboard.type("policy kl")
    page.wait_for_function("document.querySelectorAll('.chart:not([hidden])').length === 1")
    assert page.locator("#chart-m-kl-ref-k3").is_visible() and not page.locator("#organ-reward").is_visible()
    assert "chart=policy+kl" in page.url and "1 of" in page.inner_text("#find")
    page.reload()
    page.wait_for_function("document.querySelectorAll('.chart:not([hidden])').length === 1")
    drawn(page, "m-kl-ref-k3")
    page.fill("#chart-search", "")
    page.wait_for_function("document.querySelectorAll('.chart:not([hidden])').length > 10")


def test_a_run_leads_to_its_comparison(site: Any, visit: Visit) -> None:
    page = visit(site, "/run/learns")
    page.get_by_role("link", name="compare with others").click()
    page.wait_for_selector(".fleet tbody tr")
    assert page.get_by_role("checkbox", name="Compare learns").is_checked()
    page.get_by_role("checkbox", name="Compare goblin-bonus").check()
    assert "mark=learns%2Cgoblin-bonus" in page.url
    page.get_by_role("button", name="Compare 2").click()
    page.get_by_role("heading", name="Where they part").wait_for()


def test_a_person_tells_the_run_what_it_came_to_its_name_and_to_stop(site: Any, visit: Visit) -> None:
    Story(site, "is-told", healthy, seed=41).open().steps(0, 5)
    page = visit(site, "/run/is-told")
    acts = page.locator("#run-acts")
    acts.locator("summary").click()
    acts.get_by_label("It came to").select_option("flat")
    page.wait_for_function("document.getElementById('toast').textContent.includes('flat')")
    acts.get_by_label("It is shown as").fill("The flat one")
    acts.get_by_role("button", name="Save").click()
    page.wait_for_function("document.querySelector('h1').textContent === 'The flat one'")
    assert [button.inner_text() for button in acts.locator("[data-ask]").all()] == ["Stop", "Checkpoint"]
    acts.get_by_role("button", name="Stop").click()
    acts.get_by_role("button", name="Really stop it").click()
    acts.get_by_text("Asked to stop").wait_for()
    page.reload()
    page.wait_for_selector("#run-acts summary")
    assert page.inner_text("h1") == "The flat one"
    page.locator("#run-acts summary").click()
    assert page.locator("#run-acts .outcome").input_value() == "flat" and page.locator("[data-ask=stop]").is_disabled()
    with expected_failures(page):
        page.route("**/outcome", lambda route: route.fulfill(status=503, json={"error": "The database is away."}))
        page.locator("#run-acts .outcome").select_option("hacked")
        page.get_by_text("The database is away.").wait_for()
    assert page.locator("#run-acts .outcome").input_value() == "flat"


def test_heat_map_and_table(site: Any, visit: Visit) -> None:
    page = visit(site, "/run/learns")
    page.locator("#chart-m-len-completion-hist").scroll_into_view_if_needed()
    page.wait_for_selector("#chart-m-len-completion-hist .main-svg")
    z = page.evaluate(
        "(() => { const t = document.querySelector('#chart-m-len-completion-hist .plot').data[0]; return [t.x.length, t.z.length]; })()"
    )
    assert z[0] == 60 and z[1] > 5
    page.get_by_role("button", name="Entropy as a table").click(force=True)
    page.wait_for_selector("#chart-m-entropy-mean table")
    assert page.locator("#chart-m-entropy-mean tbody tr").count() >= 20


def test_every_chart_has_a_table_also_the_heat_map(site: Any, visit: Visit) -> None:
    page = visit(site, "/run/learns")
    for chart in ("m-len-completion-hist", "group-outcomes"):
        drawn(page, chart)
        page.locator(f"#chart-{chart} .to-table").click(force=True)
        cells = page.locator(f"#chart-{chart} tbody tr").first.locator("td").all_inner_texts()
        assert len(cells) == 3 and all(cells), chart
    low, half, high = (float(cell) for cell in page.locator("#chart-m-len-completion-hist tbody tr").first.locator("td").all_inner_texts())
    assert 8 < low < half < high < 100 and 20 < half < 34


def test_a_chart_and_a_run_can_be_saved(site: Any, visit: Visit) -> None:
    page = visit(site, "/run/learns")
    drawn(page, "m-entropy-mean")
    save = page.locator("#chart-m-entropy-mean .menu")
    save.locator("summary").click()
    with page.expect_download() as picture:
        save.get_by_role("button", name="PNG").click()
    assert picture.value.suggested_filename == "learns-m-entropy-mean.png"
    assert Path(picture.value.path()).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    save.locator("summary").click()
    with page.expect_download() as rows:
        save.get_by_role("link", name="CSV").click()
    lines = Path(rows.value.path()).read_text().splitlines()
    assert lines[0] == "attempt,step,time,entropy.mean" and len(lines) == 61
    page.locator("#export summary").click()
    with page.expect_download() as everything:
        page.get_by_role("link", name="Every row as CSV").click()
    assert "my.own_metric" in Path(everything.value.path()).read_text().splitlines()[0].split(",")


def test_what_was_normal_in_healthy_runs_of_the_kind_lies_behind_the_curves(site: Any, visit: Visit) -> None:
    for uid, seed in (("well-1", 31), ("well-2", 32)):
        Story(site, uid, healthy, seed=seed, project="sweep").open().steps(0, 60).finish()
        site.post(f"runs/{uid}/outcome", {"outcome": "healthy"})
    Story(site, "like-them", healthy, seed=33, project="sweep").open().steps(0, 40)
    page = visit(site, "/run/like-them")
    drawn(page, "m-entropy-mean")
    page.wait_for_function("document.querySelector('#chart-m-entropy-mean .normal').textContent !== ''")
    figure = drawn(page, "m-entropy-mean")
    (band,) = (shape for shape in figure["layout"]["shapes"] if shape["type"] == "rect")
    assert 0.3 < band["y0"] < 0.37 < 0.42 < band["y1"] < 0.5
    assert "2 healthy runs" in page.get_attribute("#chart-m-entropy-mean .normal", "title")
    drawn(page, "m-opt-lr")
    assert page.inner_text("#chart-m-opt-lr .normal") == ""


def test_rollouts_are_read_by_step(site: Any, visit: Visit) -> None:
    page = visit(site, "/run/goblin-bonus?step=42")
    page.wait_for_selector(".sample")
    assert "Step 40" in page.inner_text(".steps")
    assert page.locator(".sample h3").all_inner_texts() == ["Best", "Worst", "Random"]
    assert "<script>alert(1)</script>" in page.locator(".pick-worst").inner_text()
    assert "# step 40" in page.locator(".pick-best .role-agent").inner_text()
    page.get_by_role("button", name="Earlier").click()
    page.wait_for_function("document.querySelector('.steps').textContent.includes('Step 30')")
    assert "step=30" in page.url
    page.evaluate("document.querySelector('#chart-m-entropy-mean').scrollIntoView()")
    page.wait_for_selector("#chart-m-entropy-mean .main-svg")
    box = page.locator("#chart-m-entropy-mean .nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + box["height"] / 2)
    page.wait_for_timeout(150)
    page.mouse.click(box["x"] + box["width"] * 0.9, box["y"] + box["height"] / 2)
    page.wait_for_function("/Step 40/.test(document.querySelector('.steps').textContent)")


def test_a_click_on_a_curve_says_what_happened_there(site: Any, visit: Visit) -> None:
    page = visit(site, "/run/breaks-and-resumes")
    drawn(page, "m-kl-ref-k3")
    box = page.locator("#chart-m-kl-ref-k3 .nsewdrag").first.bounding_box()
    place = box["x"] + box["width"] * 37 / 54.5
    page.mouse.move(place, box["y"] + box["height"] / 2)
    page.wait_for_selector("#chart-m-kl-ref-k3 .hoverlayer .legend, #chart-m-kl-ref-k3 .hoverlayer .hovertext")
    page.mouse.click(place, box["y"] + box["height"] / 2)
    bar = page.locator("#pick")
    bar.get_by_text(re.compile(r"Step 3[678]: [1-9]\d* finding")).wait_for()
    assert "rollouts of step 30" in bar.inner_text()
    bar.get_by_role("link", name="Read").click()
    happened = page.locator(".happened")
    happened.wait_for()
    assert not bar.is_visible()
    assert "is not a finite number" in happened.inner_text()
    page.goto(site.url + "/run/breaks-and-resumes?step=22")
    page.wait_for_selector(".happened")
    assert "regime" in page.inner_text(".happened") and "clip off" in page.inner_text(".happened")


def test_new_rows_and_a_new_verdict_arrive_without_a_reload(site: Any, visit: Visit) -> None:
    story = Story(site, "grows", healthy, seed=6).open().steps(0, 20)
    site.judge()
    page = visit(site, "/run/grows")
    drawn(page, "m-opt-grad-norm")
    assert "Critical" not in page.locator(".headline .pill").first.inner_text()
    story.steps(20, 30, change=break_at(28))
    page.wait_for_function("document.querySelector('#chart-m-opt-grad-norm .plot').data.some(t => t.name === 'not finite')")
    page.wait_for_function("document.getElementById('head-step').textContent === '29'")
    site.judge()
    page.wait_for_function("document.querySelector('.headline .pill').textContent === 'Critical'")


def test_a_metric_that_comes_later_gets_its_chart(site: Any, visit: Visit) -> None:
    story = Story(site, "adds-one", healthy, seed=7).open().steps(0, 10)
    page = visit(site, "/run/adds-one")
    drawn(page, "m-entropy-mean")
    story.steps(10, 12, change=lambda step, row: row.update({"eval.task.mean": 0.5}))
    page.wait_for_selector("#chart-m-eval-task-mean")


def test_the_page_says_when_the_server_is_away_and_resumes(site: Any, visit: Visit) -> None:
    story = Story(site, "survives", goblin, seed=8).open().steps(0, 20)
    page = visit(site, "/run/survives")
    drawn(page, "m-entropy-mean")
    with expected_failures(page):
        site.stop()
        page.wait_for_function("document.getElementById('live').textContent === 'disconnected'")
        site.start()
        story.steps(20, 25)
        page.wait_for_function("document.getElementById('live').textContent === 'live'")
    page.wait_for_function("document.getElementById('head-step').textContent === '24'")
