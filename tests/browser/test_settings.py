"""The settings: who is told and whether that works, what is silenced, the thresholds in force, and what others would have raised."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Visit, _make_database
from looks import assert_accessible, assert_whole
from receiving import Receiver
from site_under_test import Site
from stories import Story, break_at, goblin, healthy

from monitor.deliver.webhook import Webhook

RULES = """
[detectors.no_signal]
floor = 0.1

[project.code-repair.detectors.kl_acceleration]
factor = 3

[channel.oncall]
kind = "slack"
url_env = "ONCALL_URL"

[channel.closed]
kind = "webhook"
url_env = "CLOSED_URL"

[[route]]
channels = ["oncall"]
match = {project = "math*"}
severity = "critical"
hours = "09:00-18:00"
zone = "Europe/Berlin"
repeat = "30m"

[[act]]
request = "stop"
match = {detector = "non_finite"}
"""

CHOSEN = "(() => { const field = document.activeElement; return field.value.slice(field.selectionStart, field.selectionEnd); })()"
TRIED = "[detectors.kl_acceleration]\nfactor = 1000000\n"


@pytest.fixture(scope="module")
def ruled_site(postgres: str, template_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A rules file, a receiver that takes messages, and three runs, of which two broke."""
    path = tmp_path_factory.mktemp("rules") / "vitals.toml"
    path.write_text(RULES)
    url = _make_database(postgres, template_database, f"vitals_ruled_{os.getpid()}")
    with (
        pytest.MonkeyPatch.context() as patch,
        Receiver() as receiver,
        Site(url, rules=path, webhook_url=receiver.url, allow_private_webhooks=True) as site,
    ):
        patch.setenv("ONCALL_URL", "https://hooks.slack.com/services/SECRET-PATH")
        patch.setenv("CLOSED_URL", "http://127.0.0.1:9/SECRET-PATH")
        Story(site, "learns", healthy, seed=1).open().steps(0, 60).finish()
        Story(site, "goblin-bonus", goblin, seed=2).open().steps(0, 50)
        Story(site, "breaks", healthy, seed=3, project="ablation").open().steps(0, 30, change=break_at(25))
        site.judge([Webhook("webhook", receiver.url, private=True)])
        yield site


def test_channels_say_how_they_are_and_never_their_secret(ruled_site: Any, visit: Visit) -> None:
    page = visit(ruled_site, "/settings")
    rows = {row.split()[0]: " ".join(row.split()) for row in page.locator("#channels tbody tr").all_inner_texts()}
    assert re.match(r"webhook webhook webhook at 127.0.0.1, not signed takes messages (just now|\d+ (s|min) ago) never 0", rows["webhook"])
    assert re.match(r"oncall slack .* not used yet never never 0", rows["oncall"])
    assert "SECRET-PATH" not in page.content()
    route = " ".join(page.inner_text("#routes tbody").split())
    assert route.startswith("oncall project math* critical on every day, 09:00 to 18:00 Europe/Berlin at once, critical again every 30m until")
    assert " ".join(page.inner_text("#acts tbody").split()) == "stop detector non_finite critical on in words only"


def test_a_test_message_says_whether_it_arrived(ruled_site: Any, visit: Visit) -> None:
    page = visit(ruled_site, "/settings#channels")
    page.locator("[data-test=webhook]").focus()
    page.keyboard.press("Enter")
    page.locator(".tested.good", has_text="Arrived in").wait_for()
    page.evaluate("vitals.tellDash('settings-stamp', Date.now())")
    page.wait_for_timeout(600)
    assert "Arrived in" in page.inner_text("[data-said-of=webhook]")
    page.locator("[data-test=closed]").click()
    page.locator(".tested.failed", has_text="Did not arrive: the connection to 127.0.0.1 failed").wait_for()


def test_a_receiver_that_is_used_no_more_is_forgotten(ruled_site: Any, visit: Visit) -> None:
    with Receiver(lambda _: 404) as gone:
        Story(ruled_site, "breaks-again", healthy, seed=4).open().steps(0, 30, change=break_at(25))
        ruled_site.judge([Webhook("former", gone.url, private=True)])
    page = visit(ruled_site, "/settings")
    page.locator("#channel-trouble", has_text="former takes nothing").wait_for()
    page.locator("[data-forget=former]").click()
    page.wait_for_selector("[data-forget=former]", state="detached")
    page.wait_for_function("!document.getElementById('channel-trouble').textContent")
    assert "former" not in [each["name"] for each in ruled_site.get("channels")]


def test_a_channel_that_is_wrongly_set_up_is_said(postgres: str, template_database: str, tmp_path: Path, visit: Visit) -> None:
    path = tmp_path / "vitals.toml"
    path.write_text('[channel.oncall]\nkind = "webhook"\nurl_env = "NOBODY_SET_THIS"\n')
    with Site(_make_database(postgres, template_database, f"vitals_unset_{os.getpid()}"), rules=path) as site:
        page = visit(site, "/settings")
        assert "the environment variable NOBODY_SET_THIS is not set" in page.inner_text("#channels .failed")
        assert page.locator("[data-test]").count() == 0


def test_thresholds_show_what_was_changed_beside_the_default(ruled_site: Any, visit: Visit) -> None:
    page = visit(ruled_site, "/settings#rules")
    changed = [" ".join(row.split()) for row in page.locator("#rules > .scroll tbody tr").all_inner_texts()]
    assert len(changed) == 2
    assert any("kl_acceleration factor" in row and "3 project code-repair" in row for row in changed)
    assert any("no_signal floor" in row and "0.2 0.1 every run" in row for row in changed)
    page.get_by_text("Optimizer: ").click()
    assert page.locator("#rules details[open] tbody tr").count() >= 3


def test_a_broken_rules_file_is_said_with_its_line(postgres: str, template_database: str, tmp_path: Path, visit: Visit) -> None:
    path = tmp_path / "vitals.toml"
    path.write_text("[detectors.no_signal]\nflor = 0.1\n")
    with Site(_make_database(postgres, template_database, f"vitals_wrong_{os.getpid()}"), rules=path) as site:
        page = visit(site, "/settings")
        assert "line 2" in page.inner_text("#rules .failed") and "did you mean 'floor'" in page.inner_text("#rules .failed")
        assert "Nobody is told of anything" in page.inner_text("#channels")


def test_silences_are_made_by_hand_seen_by_others_and_ended(ruled_site: Any, visit: Visit) -> None:
    page, other = visit(ruled_site, "/settings"), visit(ruled_site, "/settings")
    page.get_by_text("Silence something").click()
    page.get_by_role("button", name="Silence", exact=True).click()
    assert "Say what to silence" in page.inner_text("#silences .failed")
    page.fill("[data-matcher=project]", "ablation*")
    page.fill(".silence-form [name=reason]", "cluster moves")
    page.fill("#silences .author", "ada")
    page.get_by_role("button", name="Silence", exact=True).click()
    other.locator(".silence", has_text="by ada: cluster moves").wait_for()
    (stored,) = ruled_site.get("silences")
    assert stored["matcher"] == {"project": "ablation*"}
    other.get_by_role("button", name="End this silence").click()
    page.locator("#silences .none").wait_for()
    assert ruled_site.get("silences") == []


def test_a_back_test_says_which_runs_would_have_raised_other_alarms(ruled_site: Any, visit: Visit) -> None:
    page = visit(ruled_site, "/settings#backtest")
    assert '[project."code-repair".detectors.kl_acceleration]\nfactor = 3.0' in page.input_value("[name=rules]")
    page.fill("[name=rules]", "[detectors.non_finite]\nnothing = 1\n")
    page.get_by_role("button", name="Judge again").click()
    page.locator("#backtest .failed", has_text="non_finite has no threshold 'nothing'").wait_for()
    page.trouble.forgive("422")
    page.fill("[name=rules]", TRIED + "\n[detectors.no_signal]\nfloor = 0.1\n")
    page.get_by_role("button", name="Judge again").click()
    runs = ruled_site.get("runs")["total"]
    page.get_by_text(f"{runs} runs judged; 1 run would have raised other alarms.").wait_for()
    row = " ".join(page.locator(".results tbody tr").first.inner_text().split())
    assert "goblin-bonus" in row and "kl_acceleration at step" in row
    page.locator(".results", has_text="Of no run it is said what it came to").wait_for()
    assert page.inner_text("#backtest .failed") == ""
    page.select_option("#backtest [name=project]", "ablation")
    assert "project=ablation" in page.url
    page.reload()
    assert page.input_value("[name=rules]").startswith("[detectors.kl_acceleration]")
    page.get_by_role("button", name="Judge again").click()
    page.get_by_text("1 run judged; no alarm differs.").wait_for()
    page.locator("#rules > .scroll tbody tr", has_text="kl_acceleration").get_by_role("button", name="Try").click()
    assert page.evaluate(CHOSEN) == "1000000"
    page.fill("[name=rules]", TRIED)
    page.locator("#rules > .scroll tbody tr", has_text="no_signal").get_by_role("button", name="Try").click()
    assert page.input_value("[name=rules]") == TRIED + "\n[detectors.no_signal]\nfloor = 0.1\n"


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_page_is_whole_and_accessible(ruled_site: Any, visit: Visit, theme: str) -> None:
    page = visit(ruled_site, "/settings", theme=theme)
    page.get_by_text("Silence something").click()
    for summary in page.locator("#rules summary").all():
        summary.click()
    assert_accessible(page)
    assert_whole(page)


def test_keys_lead_to_it(ruled_site: Any, visit: Visit) -> None:
    page = visit(ruled_site, "/")
    page.wait_for_selector(".fleet tbody tr")
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.wait_for_selector("[data-page=settings] h1")
    assert page.title() == "Settings · rlvitals"
