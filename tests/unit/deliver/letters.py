"""Letters for tests: any that hypothesis can think of, and plain ones."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from monitor.alerts.entry import Entry
from monitor.deliver.digest import Digest
from monitor.deliver.letter import Excerpt
from monitor.deliver.message import Also, Message
from monitor.deliver.trial import Trial
from monitor.detect.contract import Finding

AT = datetime(2026, 3, 1, tzinfo=UTC)
UID = "6e0f5a4e-58a4-5d3c-9b8a-0d4d8c3b7a11"
words = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)
texts = st.one_of(words, st.text("&<>*`\n ab", max_size=400), st.builds(lambda w, n: w * n, words, st.integers(1, 100)))
numbers = st.one_of(st.floats(), st.none())
links = st.sampled_from(["", "http://host/run/1?step=7", "http://h/" + "x" * 4000])
states = st.sampled_from(["ok", "information", "watch", "warning", "critical", "resolved"])
metric_names = st.sampled_from(["iw.max", "my.metric", "opt.grad_norm"])
findings = st.builds(
    Finding, st.just("weights"), st.just("critical"), st.just(7), metric_names, texts, texts, texts, texts,
    st.floats(), numbers, numbers, st.integers(0, 7), texts, st.just(("opt.loss",)),
)  # fmt: skip
rollouts = st.builds(Excerpt, st.integers(0, 9), st.just("worst"), texts, st.dictionaries(words, st.floats(), max_size=8))
others = st.builds(Also, words, states, texts, st.integers(0, 9))
entries = st.builds(Entry, st.just(UID), st.just(UID), words, words, words, words, states, texts, st.integers(0, 9), st.just(AT))


@st.composite
def messages(draw: Any) -> Message:
    return Message(
        UID, "a", "run-1", draw(texts), draw(texts), "weights", "policy", draw(states), draw(states), "opened", 7, draw(st.integers(0, 7)), AT,
        draw(findings), draw(texts), draw(links), tuple(draw(st.lists(rollouts, max_size=3))), draw(st.sampled_from(["", "story"])),
        tuple(draw(st.lists(others, max_size=3))), tuple(draw(st.lists(st.floats(), max_size=50))), incident_link=draw(links),
    )  # fmt: skip


@st.composite
def digests(draw: Any) -> Digest:
    return Digest(UID, AT, tuple(draw(st.lists(entries, min_size=1, max_size=30))), draw(links), draw(st.booleans()), draw(links))


trials = st.builds(Trial, st.just(UID), st.just(AT), words, links)
letters = st.one_of(messages(), messages(), digests(), trials)


def message(**changes: Any) -> Message:
    """A critical alert of a run named goblin."""
    finding = Finding(
        "weights", "critical", 7, "iw.max", "Importance weights exploded.", "max 1412 against 1.1", "stale samples", "clip", 1412.5, 1.1, 10
    )
    facts = {
        "uid": "u", "alert": "a", "run": "r", "run_name": "goblin", "project": "repair", "detector": "weights", "organ": "policy", "from_state": "ok",
        "to_state": "critical", "reason": "opened", "step": 7, "opened_step": 7, "at": AT, "finding": finding,
    }  # fmt: skip
    return Message(**{**facts, **changes})
