"""Slack's message stays within Block Kit's limits whatever a finding holds."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime

import jsonschema_rs
from hypothesis import given, settings
from hypothesis import strategies as st
from slack_sdk.models.blocks import Block

from monitor.deliver import slack, webhook
from monitor.deliver.message import MAX_EXCERPT, Excerpt, Message, excerpt, figure
from monitor.deliver.schema import SCHEMA
from monitor.detect.contract import Finding

BODY = jsonschema_rs.validator_for(SCHEMA, validate_formats=True)
AT = datetime(2026, 3, 1, tzinfo=UTC)
words = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)
texts = st.one_of(words, st.text("&<>*`\n ab", max_size=400), st.builds(lambda w, n: w * n, words, st.integers(1, 100)))
numbers = st.one_of(st.floats(), st.none())
links = st.sampled_from(["", "http://host/run/1?step=7", "http://h/" + "x" * 4000])
states = st.sampled_from(["ok", "information", "watch", "warning", "critical", "resolved"])


@st.composite
def messages(draw):
    value = draw(st.floats())
    finding = Finding(
        "weights", "critical", 7, draw(st.sampled_from(["iw.max", "my.metric", "opt.grad_norm"])), draw(texts), draw(texts), draw(texts), draw(texts),
        value, draw(numbers), draw(numbers), 5, draw(texts), ("opt.loss",),
    )  # fmt: skip
    rollouts = st.builds(Excerpt, st.integers(0, 9), st.just("worst"), texts, st.dictionaries(words, st.floats(), max_size=8))
    return Message(
        "6e0f5a4e-58a4-5d3c-9b8a-0d4d8c3b7a11", "a", "run-1", draw(texts), draw(texts), "weights", "policy", draw(states), draw(states),
        "opened", 7, draw(st.integers(0, 7)), AT, finding, draw(texts), draw(links),
        tuple(draw(st.lists(rollouts, max_size=3))),
    )  # fmt: skip


def message(**changes):
    finding = Finding(
        "weights", "critical", 7, "iw.max", "Importance weights exploded.", "max 1412 against 1.1", "stale samples", "clip", 1412.5, 1.1, 10
    )
    facts = {
        "uid": "u", "alert": "a", "run": "r", "run_name": "goblin", "project": "repair", "detector": "weights", "organ": "policy", "from_state": "ok",
        "to_state": "critical", "reason": "opened", "step": 7, "opened_step": 7, "at": AT, "finding": finding,
    }  # fmt: skip
    return Message(**{**facts, **changes})


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
@given(messages())
def test_any_finding_fits_block_kit(message):
    sent = json.loads(json.dumps(slack.payload(message), allow_nan=False))
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
        if block["type"] == "actions":
            assert len(block["elements"][0]["url"]) <= 3000
    assert "<" not in sent["text"]


@given(messages())
def test_the_webhook_body_is_strict_json_and_matches_its_schema(message):
    BODY.validate(json.loads(json.dumps(webhook.body(message), allow_nan=False)))


def test_nothing_in_a_finding_can_mention_a_channel_or_forge_a_link():
    evil = message(run_name="<!channel> & <http://evil|click>", verdict="<@U123>")
    assert "<" not in json.dumps(slack.payload(evil), ensure_ascii=False)


def test_what_a_person_reads_first():
    sent = slack.payload(message(verdict="Importance weights exploded, since step 7.", link="http://127.0.0.1:8470/run/r?step=7"))
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
