"""The fleet: the ill runs first, each with its reason; search, filters and order live in the address; rows follow the data."""

from __future__ import annotations

from typing import Any

from conftest import Visit
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
