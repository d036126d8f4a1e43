"""Which alarms are one story, which are held by their cause, and what a person's closing does."""

from __future__ import annotations

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from monitor.alerts import lifecycle
from monitor.alerts.book import PRESENCE
from monitor.alerts.incident import SYMPTOMS, WINDOW
from monitor.alerts.lifecycle import QUIET_ROWS, Book, advance, close, is_alarm
from monitor.detect.contract import SEVERITIES, Finding, Row
from monitor.detect.registry import DETECTOR_BY_ID

METRICS = {"weight_explosion": "iw.max", "kl_acceleration": "kl_ref.k3", "entropy_high": "entropy.mean", "truncation": "len.truncated_frac"}


def finding(detector, severity, step, since=None):
    return Finding(detector, severity, step, METRICS.get(detector, "opt.loss"), f"{detector} holds", "e", "c", "a", 1.0, since_step=since)


def play(script, book=None, first=0):
    """``script``: row index -> {detector: severity}; every row holds every metric. Returns the book and the transitions."""
    book, seen = book or Book("run"), []
    for index in range(first, max(script, default=0) + 1):
        values = dict.fromkeys((*METRICS.values(), "opt.loss"), 1.0)
        found = [finding(detector, severity, index) for detector, severity in script.get(index, {}).items()]
        book, changes = advance(book, Row(index, index, values), found)
        seen += changes
    return book, seen


def told(transitions):
    return [(t.detector, t.to_state) for t in transitions if t.alarms]


def test_the_tables_name_real_detectors():
    assert set(SYMPTOMS) | {d for each in SYMPTOMS.values() for d in each} <= set(DETECTOR_BY_ID)
    assert not set(PRESENCE) & set(DETECTOR_BY_ID)


def test_nothing_explains_itself_in_the_end():
    def follow(detector, seen):
        assert detector not in seen
        for each in SYMPTOMS.get(detector, ()):
            follow(each, (*seen, detector))

    for detector in SYMPTOMS:
        follow(detector, ())


def test_a_symptom_is_held_while_its_cause_is_open_and_its_end_is_not_told_either():
    script = {5: {"weight_explosion": "critical"}, 6: {"weight_explosion": "critical", "kl_acceleration": "warning"}, 30: {}}
    _, seen = play(script)
    assert told(seen) == [("weight_explosion", "critical"), ("weight_explosion", "resolved")]
    held = [t for t in seen if t.detector == "kl_acceleration"]
    assert [(t.to_state, t.held_by, t.reason) for t in held] == [("warning", "weight_explosion", "opened"), ("resolved", "", "quiet")]
    assert len({t.incident for t in seen}) == 1 and seen[0].incident


def test_a_symptom_that_came_first_or_is_worse_is_told():
    _, first = play({5: {"kl_acceleration": "warning"}, 7: {"weight_explosion": "warning", "kl_acceleration": "warning"}})
    assert told(first) == [("kl_acceleration", "warning"), ("weight_explosion", "warning")]
    _, worse = play({5: {"weight_explosion": "warning"}, 7: {"weight_explosion": "warning", "kl_acceleration": "critical"}})
    assert told(worse) == [("weight_explosion", "warning"), ("kl_acceleration", "critical")]


def test_a_held_symptom_that_rises_above_its_cause_is_told():
    rows = {5: {"weight_explosion": "warning"}, 6: {"weight_explosion": "warning", "kl_acceleration": "warning"}}
    _, seen = play({**rows, 8: {"weight_explosion": "warning", "kl_acceleration": "critical"}})
    assert told(seen) == [("weight_explosion", "warning"), ("kl_acceleration", "critical")]


def test_a_symptom_that_outlives_its_cause_is_told_then():
    script = {5: {"weight_explosion": "warning"}, **{i: {"kl_acceleration": "warning"} for i in range(6, 20)}}
    _, seen = play(script)
    assert told(seen) == [("weight_explosion", "warning"), ("weight_explosion", "resolved"), ("kl_acceleration", "warning")]
    last = seen[-1]
    assert (last.reason, last.from_state, last.to_state, last.step) == ("outlived", "warning", "warning", 15)


def test_a_symptom_that_goes_a_little_later_than_its_cause_is_not_told():
    script = {5: {"weight_explosion": "warning"}, **{i: {"kl_acceleration": "warning"} for i in range(6, 10)}, 40: {}}
    _, seen = play(script)
    assert told(seen) == [("weight_explosion", "warning"), ("weight_explosion", "resolved")]


def test_in_one_row_the_cause_speaks_and_not_the_symptom():
    for order in (("weight_explosion", "kl_acceleration"), ("kl_acceleration", "weight_explosion")):
        _, seen = play({5: dict.fromkeys(order, "warning")})
        assert told(seen) == [("weight_explosion", "warning")]


def test_far_apart_is_another_incident_and_holds_nothing():
    far = 5 + WINDOW + 1
    script = {i: {"weight_explosion": "warning"} for i in range(5, far)}
    _, seen = play({**script, far: {"weight_explosion": "warning", "kl_acceleration": "warning"}})
    assert told(seen) == [("weight_explosion", "warning"), ("kl_acceleration", "warning")]
    assert len({t.incident for t in seen}) == 2


def test_a_chain_of_alarms_each_within_the_window_is_one_incident():
    script = {0: {"entropy_high": "warning"}, 9: {"entropy_high": "warning", "truncation": "warning"}}
    _, seen = play({**script, 18: {"truncation": "warning", "kl_acceleration": "warning"}})
    assert len({t.incident for t in seen if is_alarm(t.to_state)}) == 1


def test_watch_belongs_to_no_incident_until_it_becomes_an_alarm():
    _, seen = play({3: {"truncation": "watch"}, 4: {"truncation": "warning"}})
    assert [bool(t.incident) for t in seen] == [False, True]


def test_closed_by_hand_stays_closed_while_the_condition_goes_on():
    book, _ = play({i: {"truncation": "warning"} for i in range(5)})
    book, seen = close(book, Row(4, 4, {}), {"truncation"}, "by hand")
    assert [(t.from_state, t.to_state, t.reason, t.alarms) for t in seen] == [("warning", "resolved", "by hand", True)]
    book, seen = play({i: {"truncation": "warning"} for i in range(5, 60)}, book, 5)
    assert seen == []
    _, worse = play({60: {"truncation": "critical"}}, book, 60)
    assert told(worse) == [("truncation", "critical")]
    _, seen = play({60 + QUIET_ROWS + 2: {"truncation": "warning"}}, book, 60)
    assert told(seen) == [("truncation", "warning")]


def test_presence_ends_with_the_next_row_whatever_it_holds():
    book, seen = advance(Book("run"), Row(7, 30, {}), [finding("stalled", "warning", 30)])
    assert told(seen) == [("stalled", "warning")]
    book, seen = advance(book, Row(7, 31, {"some.metric": 1.0}), [])
    assert [(t.to_state, t.reason, t.alarms) for t in seen] == [("resolved", "returned", True)]


def test_a_stall_at_a_step_seen_before_is_news():
    book, _ = advance(Book("run"), Row(7, 30, {}), [finding("stalled", "warning", 30)])
    book, _ = advance(book, Row(7, 10, {"m": 1.0}), [])
    for index in range(8, 60):
        book, _ = advance(book, Row(index, 10, {"m": 1.0}), [])
    _, seen = advance(book, Row(60, 10, {}), [finding("stalled", "warning", 10)])
    assert told(seen) == [("stalled", "warning")]


names = st.sampled_from([*METRICS, "non_finite", "grad_spike"])
scripts = st.lists(st.dictionaries(names, st.sampled_from(SEVERITIES), max_size=4), max_size=80)


@given(scripts, st.integers(0, 80))
def test_every_open_alarm_is_told_or_held_by_an_open_one_and_cuts_change_nothing(script, cut):
    rows = dict(enumerate(script))
    book, seen = play(rows)
    for episode in book.open:
        if is_alarm(episode.state):
            root = episode
            while root.told != root.state and not root.quiet:
                cause = book.episodes[root.held_by]
                assert is_alarm(cause.state) and lifecycle.rank(cause.state) >= lifecycle.rank(root.state)
                root = cause
    heard = [t for t in seen if t.alarms]
    for alert in {t.alert for t in heard}:
        own = [t.to_state for t in heard if t.alert == alert]
        assert own[0] != "resolved" and all(a != b for a, b in itertools.pairwise(own))
    half, first = play({i: each for i, each in rows.items() if i < cut})
    stored = lifecycle.load(json.loads(json.dumps(lifecycle.dump(half))))
    end, second = play({i: each for i, each in rows.items() if i >= cut}, stored, min(cut, len(rows)))
    assert first + second == seen and end == book


def test_a_story_ends_with_its_damage() -> None:
    """A bonus that has been farmed stops growing; while the task stays ruined, its alarm is not over."""

    def states(ruined: int) -> dict[str, str]:
        script: dict[int, dict[str, str]] = {index: {} for index in range(60)}
        for index in range(5, 12):
            script[index]["aux_divergence"] = "critical"
        for index in range(8, ruined):
            script[index]["peak_and_fall"] = "critical"
        return {name: episode.state for name, episode in play(script)[0].episodes.items()}

    assert states(ruined=60) == {"aux_divergence": "critical", "peak_and_fall": "critical"}
    assert states(ruined=30) == {"aux_divergence": "resolved", "peak_and_fall": "resolved"}
    assert states(ruined=0) == {"aux_divergence": "resolved"}
