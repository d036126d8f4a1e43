"""Alert by alert: what was raised, and who was told."""

from __future__ import annotations

from typing import Any

from conftest import Visit
from stories import Story, break_at, healthy

_BEGINNINGS = """() => {
  const lefts = [];
  for (const line of document.querySelectorAll('.facts-line')) {
    if (getComputedStyle(line).overflowX !== 'clip') lefts.push(Infinity);
    [...line.children].forEach((node, i) => {
      const [box, before] = [node.getBoundingClientRect(), node.previousElementSibling?.getBoundingClientRect()];
      const dot = box.left + parseFloat(getComputedStyle(node, '::before').left) + 8;
      if (before && box.top >= before.bottom - 2) lefts.push(dot - line.getBoundingClientRect().left);
    });
  }
  return [lefts, 0];
}"""


def test_an_alert_says_what_to_do_who_was_told_and_whether_it_arrived(site: Any, visit: Visit) -> None:
    page = visit(site, "/alerts?view=single&run=goblin-bonus")
    alert = page.locator("article.alert", has=page.get_by_role("heading", name="The auxiliary reward is being earned"))
    alert.wait_for()
    words = alert.inner_text()
    assert "Do first" in words and "goblin-bonus" in words
    deliveries = [" ".join(line.split()) for line in alert.locator(".delivery").all_inner_texts()]
    arrived = [line for line in deliveries if line.startswith("on-call arrived: warning at step ")]
    assert arrived and [line for line in deliveries if line.startswith("on-call arrived: critical at step ")]
    assert any(line.startswith("strict did not arrive: warning at step ") and "answered 422" in line for line in deliveries)
    assert any(line.startswith("nobody has not arrived yet") for line in deliveries)
    alert.get_by_role("link", name="goblin-bonus").click()
    page.wait_for_selector("[data-page=run] h1")


def test_each_alert_says_since_when_and_at_which_step_it_was_judged(site: Any, visit: Visit) -> None:
    page = visit(site, "/alerts?view=single&run=goblin-bonus")
    page.wait_for_selector("article.alert")
    found = site.get("alerts?run=goblin-bonus")
    assert any(each["finding"]["since_step"] < each["opened_step"] for each in found)
    for each in found:
        words = " ".join(page.locator(f"#alert-{each['id']}").text_content().split())
        assert f"step {min(each['finding']['since_step'], each['opened_step'])} to now" in words
        assert f"Step {each['finding']['step']}: " in words and f"at step {each['finding']['step']} " in words


def test_a_long_reason_why_a_message_did_not_arrive_fits_a_phone(site: Any, visit: Visit) -> None:
    page = visit(site, "/alerts?view=single", width=390)
    page.wait_for_selector(".delivery-refused")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.evaluate("document.querySelector('.delivery .dim').textContent = 'x'.repeat(300)")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_lines_of_facts_do_not_begin_with_a_dot(site: Any, visit: Visit) -> None:
    page = visit(site, "/alerts?view=single", width=390)
    page.wait_for_selector("article.alert .facts-line")
    first, cut = page.evaluate(_BEGINNINGS)
    assert len(first) >= 3 and all(left < cut for left in first)


def test_a_run_that_is_not_there_is_said_to_be_missing(site: Any, visit: Visit) -> None:
    page = visit(site, "/alerts?view=single&run=nope")
    page.wait_for_selector(".empty")
    assert "There is no such run" in page.inner_text(".empty") and "nope" in page.inner_text(".empty")


def test_an_alert_that_another_explains_says_why_nobody_was_told(site: Any, visit: Visit) -> None:
    page = visit(site, "/alerts?view=single&run=goblin-bonus")
    held = page.locator("article.alert", has=page.get_by_role("heading", name="The task reward is falling"))
    held.wait_for()
    titles = page.locator("article.alert h2").all_inner_texts()
    cause = titles.index("The auxiliary reward is being earned instead of the task")
    assert cause < titles.index("The task reward is falling from its best level")
    assert "held" in held.get_attribute("class") and not held.locator(".told").is_visible()
    held.locator("summary").first.click()
    assert "Nobody was told: The auxiliary reward is being earned instead of the task explains it." in held.inner_text()


def test_filters_are_links_and_new_alerts_appear(site: Any, visit: Visit) -> None:
    page = visit(site, "/alerts?view=single&q=turns-ill")
    page.wait_for_selector(".empty")
    Story(site, "turns-ill", healthy, seed=11).open().steps(0, 30, change=break_at(25))
    site.judge()
    page.wait_for_selector("article.alert")
    page.get_by_role("link", name="Resolved").click()
    page.wait_for_selector(".empty")
    assert "state=resolved" in page.url and "q=turns-ill" in page.url
    page.go_back()
    page.wait_for_selector("article.alert")
