"""Slack's message stays within Block Kit's limits whatever a letter holds."""

from __future__ import annotations

import json
import math

from hypothesis import given, settings
from letters import letters, message
from slack_sdk.models.blocks import Block

from monitor.deliver import slack
from monitor.deliver.message import MAX_EXCERPT, excerpt, figure


def strings(tree):
    if isinstance(tree, dict):
        for value in tree.values():
            yield from strings(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from strings(value)
    elif isinstance(tree, str):
        yield tree


@settings(max_examples=500, deadline=None)
@given(letters)
def test_any_letter_fits_block_kit(letter):
    sent = json.loads(json.dumps(slack.payload(letter), allow_nan=False))
    blocks = sent["blocks"]
    assert 0 < len(blocks) <= 50 and 0 < len(sent["text"]) <= 4000
    for block in blocks:
        if block["type"] != "rich_text":
            Block.parse(block).validate_json()
        if block["type"] == "header":
            assert block["text"]["type"] == "plain_text" and 0 < len(block["text"]["text"]) <= 150
        if block["type"] == "section":
            assert 0 < len(block.get("fields", [1])) <= 10
            for text in [block["text"]] if "text" in block else block["fields"]:
                assert 0 < len(text["text"]) <= (3000 if "text" in block else 2000)
                assert "<" not in text["text"] and ">" not in text["text"]
                assert text["text"].count("&") == sum(text["text"].count(e) for e in ("&amp;", "&lt;", "&gt;"))
        if block["type"] == "context":
            assert 0 < len(block["elements"]) <= 10
        if block["type"] == "rich_text":
            (quoted,) = block["elements"]
            assert quoted["type"] == "rich_text_preformatted" and 0 < len(quoted["elements"][0]["text"]) <= 3000
        if block["type"] == "actions":
            assert len(block["elements"][0]["url"]) <= 3000
    assert "<" not in sent["text"]


def test_nothing_in_a_finding_can_mention_a_channel_or_forge_a_link():
    evil = message(run_name="<!channel> & <http://evil|click>", verdict="<@U123>")
    assert "<" not in json.dumps(slack.payload(evil), ensure_ascii=False)


def test_what_a_person_reads_first():
    ways = {"link": "http://127.0.0.1:8470/run/r?step=7", "incident_link": "http://127.0.0.1:8470/incident/i"}
    sent = slack.payload(message(verdict="Importance weights exploded, since step 7.", **ways))
    assert sent["text"] == "Critical: Importance weights exploded (repair / goblin, step 7)"
    text = "\n".join(strings(sent))
    for part in ("max 1412 against 1.1", "stale samples", "clip", "1,412", "1.1", "Normal for this run", "Open the run"):
        assert part in text


def test_headings_tell_news_from_repetition():
    heads = {
        (state, reason): message(to_state=state, reason=reason).heading
        for state in ("warning", "critical")
        for reason in ("opened", "rose", "reopened")
    }
    assert heads["warning", "opened"] == "Warning" and heads["critical", "rose"] == "Now critical" and heads["warning", "reopened"] == "Warning again"
    assert message(to_state="resolved", reason="quiet").title == "Resolved: Importance weights exploded"


def test_a_closing_does_not_advise():
    assert [label for label, _ in message(to_state="resolved").paragraphs] == ["What it was"]


def test_figures():
    values = [math.nan, math.inf, -math.inf, 0.0, 1412.5, 0.04567891, 3e-7, 2.5e12, -3.0]
    assert [figure(v) for v in values] == ["NaN", "infinity", "-infinity", "0", "1,412", "0.04568", "3.000e-07", "2.500e+12", "-3"]


def test_an_excerpt_keeps_both_ends():
    long = "begin" + "x" * 10_000 + "end"
    cut = excerpt(long)
    assert len(cut) <= MAX_EXCERPT and cut.startswith("begin") and cut.endswith("end") and "characters" in cut
    assert excerpt("short") == "short"
