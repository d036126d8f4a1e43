"""The fleet: the ill runs first, each with its reason; search, filters and order live in the address; rows follow the data."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Visit
from looks import assert_accessible, assert_whole
from stories import Story, healthy

_GROUPED = """() => {
  const groups = {};
  let group = null;
  for (const row of document.querySelectorAll('.fleet tbody tr')) {
    if (row.dataset.run) groups[group].push(row.dataset.run);
    else groups[(group = row.querySelector('button').textContent)] = [];
  }
  return groups;
}"""


def names(page: Any) -> list[str]:
    return page.locator(".fleet tbody .c-run a").all_inner_texts()


def test_the_ill_come_first_with_their_reason(site: Any, visit: Visit) -> None:
    page = visit(site, "/")
    row = page.locator(".fleet tbody tr").first
    row.wait_for()
    assert row.locator(".pill").inner_text() == "Critical"
    assert "since step" in row.locator(".why").inner_text()
    urgency = [
        page.evaluate("s => vitals.URGENCY.findIndex(u => vitals.SEVERITIES[u] === s)", text) for text in page.locator(".c-verdict").all_inner_texts()
    ]
    assert urgency == sorted(urgency)
    learns = page.locator("tr", has=page.get_by_role("link", name="learns", exact=True))
    learns.locator(".c-reward .spark").wait_for()
    assert 0.85 < float(learns.locator(".c-reward .last").inner_text()) <= 1
    assert learns.locator(".c-step").inner_text().startswith("59")


def test_a_value_that_is_not_finite_is_marked(site: Any, visit: Visit) -> None:
    page = visit(site, "/?q=breaks")
    page.locator(".c-kl .spark").wait_for()
    assert names(page) == ["breaks-and-resumes"]
    wide = """() => {
      const all = (place, text) => document.querySelectorAll(`.fleet ${place}`).forEach((node) => (node.textContent = text));
      all('.c-spark .last', '3 not finite'), all('.pill', 'Not judged yet'), all('.c-step .sub', '1,230 steps/s');
      const fleet = document.querySelector('.fleet');
      return fleet.scrollWidth - fleet.clientWidth;
    }"""
    assert page.evaluate(wide) <= 0, "what curves that hold nothing finite say leaves the last column in view"


def test_search_filters_and_order_are_in_the_address(site: Any, visit: Visit) -> None:
    page = visit(site, "/")
    page.wait_for_selector(".fleet tbody tr")
    everything = set(names(page))
    page.fill("#fleet-search", "ablation")
    page.wait_for_function("document.querySelectorAll('.fleet tbody tr').length === 2")
    assert set(names(page)) == {"breaks-and-resumes", "long"} and "q=ablation" in page.url
    page.fill("#fleet-search", "")
    page.wait_for_function(f"document.querySelectorAll('.fleet tbody tr').length === {len(everything)}")
    page.get_by_role("button", name="Step", exact=False).first.click()
    page.get_by_role("button", name="Step", exact=False).first.click()
    assert "sort=-step" in page.url and names(page)[0] == "long"
    page.reload()
    page.wait_for_selector(".fleet tbody tr")
    assert names(page)[0] == "long"
    page.select_option("#fleet-state", "running")
    page.wait_for_function("![...document.querySelectorAll('.c-run a')].some(a => a.textContent === 'long')")
    page.fill("#fleet-search", "nothing is called this")
    page.get_by_role("button", name="Show every run").click()
    page.wait_for_function(f"document.querySelectorAll('.fleet tbody tr').length === {len(everything)}")


def test_runs_are_grouped_and_a_group_folds(site: Any, visit: Visit) -> None:
    page = visit(site, "/?q=demo")
    page.wait_for_selector(".fleet tbody tr")
    page.select_option("#fleet-group", "project")
    page.wait_for_selector(".group-row")
    assert "group=project" in page.url
    heads = page.locator(".group-row button").all_inner_texts()
    assert heads[0] == "code-repair" and "ablation" in heads, "the group of the illest run comes first"
    order = page.evaluate(_GROUPED)
    assert "goblin-bonus" in order["code-repair"] and sorted(order["ablation"]) == ["breaks-and-resumes", "long"]
    assert "critical" in page.locator(".group-row").first.inner_text()
    page.get_by_role("button", name="code-repair", exact=True).first.click()
    page.wait_for_function("![...document.querySelectorAll('.c-run a')].some(a => a.textContent === 'goblin-bonus')")
    page.reload()
    page.wait_for_selector(".group-row")
    assert page.input_value("#fleet-group") == "project"


def shown(page: Any) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = page.evaluate(_GROUPED)
    return groups


def comes(page: Any, wanted: dict[str, list[str]]) -> None:
    """Waits until the page shows these groups; the router draws it once more after it did."""
    page.wait_for_timeout(500)
    page.wait_for_function(f"(wanted) => JSON.stringify(({_GROUPED})()) === JSON.stringify(wanted)", arg=wanted)


def menu(page: Any) -> Any:
    page.locator("#fleet-views > summary").click()
    return page.locator("#fleet-views > div")


def test_a_view_is_saved_under_a_name_and_comes_back_with_all_of_its_state(site: Any, visit: Visit) -> None:
    page = visit(site, "/?q=demo&sort=-step&group=project")
    page.wait_for_selector(".group-row")
    page.get_by_role("button", name="code-repair", exact=True).first.click()
    page.wait_for_function("!document.querySelector('[data-run=goblin-bonus]')")
    assert "fold=code-repair" in page.url
    menu(page).get_by_placeholder("Name what is shown").fill("the <b>rest</b>")
    page.keyboard.press("Enter")
    page.locator("#fleet-views > summary", has_text="the <b>rest</b>").wait_for()
    saved, held = page.url, shown(page)
    assert held["code-repair"] == [] and len(held["ablation"]) == 2

    menu(page).get_by_role("link", name="Every run").click()
    page.wait_for_function("!document.querySelector('.group-row') && document.querySelector('[data-run=goblin-bonus]')")
    assert page.url.endswith("/") and page.inner_text("#fleet-views > summary") == "Views"
    page.keyboard.press("v")
    assert page.evaluate("document.activeElement.textContent") == "Every run"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    comes(page, held)
    assert page.url == saved
    page.go_back()
    page.wait_for_function("!document.querySelector('.group-row') && document.querySelector('[data-run=goblin-bonus]')")
    page.go_forward()
    comes(page, held)
    assert page.input_value("#fleet-search") == "demo"

    page.get_by_role("link", name="Fleet", exact=True).click()
    page.wait_for_function("!document.querySelector('.group-row') && document.querySelector('[data-run=goblin-bonus]')")
    assert page.input_value("#fleet-search") == "" and page.url.endswith("/")
    page.go_back()
    comes(page, held)

    page.select_option("#fleet-group", "algorithm")
    page.locator("#fleet-views > summary", has_text="the <b>rest</b>, changed").wait_for()
    assert "fold=" not in page.url
    menu(page).get_by_role("button", name="Save").click()
    page.reload()
    page.wait_for_selector(".group-row")
    assert page.inner_text("#fleet-views > summary") == "the <b>rest</b>" and "GRPO" in shown(page)


def test_a_view_is_a_link_that_another_browser_opens_and_keeps_or_forgets(site: Any, visit: Visit) -> None:
    page = visit(site, "/?view=mine&project=ablation&fold=Nothing%2Cof%2520this")
    page.wait_for_selector(".fleet tbody tr")
    assert sorted(names(page)) == ["breaks-and-resumes", "long"]
    assert page.inner_text("#fleet-views > summary") == "mine"
    assert "mine, not saved here" in menu(page).inner_text()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy a link to what is shown").click()
    page.locator("#toast", has_text="The link is copied.").wait_for()
    assert visit(site, page.evaluate("navigator.clipboard.readText()").removeprefix(site.url)).input_value("#fleet-project") == "ablation"
    page.get_by_role("button", name="Save", exact=True).click()
    page = page.context.new_page()
    page.goto(site.url)
    page.wait_for_selector(".fleet tbody tr")
    menu(page).get_by_role("link", name="mine").click()
    page.wait_for_function("document.querySelectorAll('.fleet tbody tr').length === 2")
    menu(page).get_by_role("button", name="Forget mine").click()
    page.reload()
    page.wait_for_selector(".fleet tbody tr")
    assert "mine, not saved here" in menu(page).inner_text()


def test_marked_runs_stay_marked_from_view_to_view(site: Any, visit: Visit) -> None:
    page = visit(site, "/?project=ablation")
    page.wait_for_selector(".fleet tbody tr")
    page.get_by_role("checkbox", name="Compare long").check()
    menu(page).get_by_role("link", name="Every run").click()
    page.wait_for_selector("[data-run=goblin-bonus]")
    assert page.get_by_role("checkbox", name="Compare long").is_checked() and "mark=long" in page.url


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_menu_of_views_is_whole_and_accessible(site: Any, visit: Visit, theme: str) -> None:
    page = visit(site, "/?view=mine&group=project", theme=theme)
    page.wait_for_selector(".group-row")
    menu(page)
    assert_accessible(page)
    assert_whole(page)


def test_a_tag_filters_and_groups(site: Any, visit: Visit) -> None:
    Story(site, "tagged", healthy, seed=12, tags=["sweep", "lr-high"]).open().steps(0, 5)
    page = visit(site, "/?group=tag")
    page.wait_for_selector(".group-row")
    order = page.evaluate(_GROUPED)
    assert order["sweep"] == order["lr-high"] == ["tagged"] and "learns" in order["demo"]
    page.get_by_role("button", name="sweep", exact=True).last.click()
    page.wait_for_function("document.querySelectorAll('.fleet tbody tr[data-run]').length === 2")
    assert "tag=sweep" in page.url
    page.get_by_role("checkbox").first.check()
    assert page.get_by_role("checkbox").last.is_checked()
    page.get_by_role("button", name="tag sweep").click()
    page.wait_for_function("document.querySelectorAll('.fleet tbody tr[data-run]').length > 4")


def test_a_new_run_appears_without_a_reload(site: Any, visit: Visit) -> None:
    page = visit(site, "/")
    page.wait_for_selector(".fleet tbody tr")
    Story(site, "late-arrival", healthy, seed=9).open().steps(0, 5)
    page.get_by_role("link", name="late-arrival", exact=True).wait_for()
    page.get_by_role("link", name="late-arrival", exact=True).click()
    page.wait_for_selector("[data-run='late-arrival'] h1")
