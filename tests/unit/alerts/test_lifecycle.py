"""The life of an alert, as rules and as laws."""

from __future__ import annotations

import json
import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from monitor.alerts import lifecycle
from monitor.alerts.book import LATE
from monitor.alerts.lifecycle import MOST_QUIET_ROWS, QUIET_ROWS, REOPEN_ROWS, Book, advance
from monitor.detect.contract import SEVERITIES, Finding, Row


def finding(severity: str, step: int, detector: str = "explosion", metric: str = "iw.max", value: float = 9.0) -> Finding:
    return Finding(detector, severity, step, metric, "The weights exploded", "max 9 against 1", "stale samples", "clip", value, 1.0, 5.0)


def play(script, book=None, first=0, steps=None):
    """Feed one row per entry: None is a quiet row, ``-`` a row without the metric, a severity a finding. Returns the book and all transitions."""
    book, seen = book or Book("run"), []
    for offset, entry in enumerate(script):
        index = first + offset
        step = steps[offset] if steps else index
        values = {} if entry == "-" else {"iw.max": 1.0}
        found = [finding(entry, step)] if entry in SEVERITIES else []
        book, changes = advance(book, Row(index, step, values), found)
        seen += changes
    return book, seen


def moves(transitions):
    return [(t.from_state, t.to_state, t.reason) for t in transitions]


def test_severity_rises_within_an_episode_and_never_falls():
    _, seen = play(["watch", "warning", "watch", "critical", "warning", "critical"])
    assert moves(seen) == [("ok", "watch", "opened"), ("watch", "warning", "rose"), ("warning", "critical", "rose")]
    assert len({t.alert for t in seen}) == 1
    assert [t.alarms for t in seen] == [False, True, True]


def test_an_alarm_resolves_after_ten_quiet_rows_and_not_after_nine():
    book, seen = play(["critical"] + [None] * (QUIET_ROWS - 1))
    assert moves(seen) == [("ok", "critical", "opened")]
    _, seen = play([None], book, first=QUIET_ROWS)
    assert moves(seen) == [("critical", "resolved", "quiet")]
    assert seen[0].step == QUIET_ROWS and seen[0].alarms


def test_rows_without_the_metric_are_not_quiet():
    book, seen = play(["warning"] + ["-"] * 50)
    assert len(seen) == 1 and book.open
    _, seen = play([None] * QUIET_ROWS, book, first=51)
    assert moves(seen) == [("warning", "resolved", "quiet")]


def test_a_finding_starts_the_quiet_again():
    book, seen = play(["warning"] + [None] * 9 + ["watch"] + [None] * 9)
    assert len(seen) == 1 and book.open


def test_watch_and_information_are_in_the_book_and_never_alarms():
    for severity in ("information", "watch"):
        book, seen = play([severity, severity])
        assert book.episodes["explosion"].state == severity
        _, closing = play([None] * QUIET_ROWS, book, first=2)
        assert moves(seen + closing) == [("ok", severity, "opened"), (severity, "ok", "quiet")]
        assert not any(t.alarms for t in seen + closing)


def test_information_beside_an_open_alarm_counts_as_quiet():
    _, seen = play(["warning"] + ["information"] * QUIET_ROWS)
    assert moves(seen) == [("ok", "warning", "opened"), ("warning", "resolved", "quiet")]


def test_flapping_reopens_one_alert_and_each_time_needs_more_quiet():
    book, seen, row, lengths = Book("run"), [], 0, []
    for _ in range(4):
        book, changes = play(["warning"], book, first=row)
        seen, row, quiet = seen + changes, row + 1, 0
        while book.open:
            book, changes = play([None], book, first=row)
            seen, row, quiet = seen + changes, row + 1, quiet + 1
        lengths.append(quiet)
    assert lengths == [10, 20, 40, 80]
    assert len({t.alert for t in seen}) == 1 and len({t.uid for t in seen}) == len(seen)
    assert [t.reason for t in seen] == ["opened", "quiet"] + ["reopened", "quiet"] * 3


def test_a_rapid_flapper_is_told_about_twice_and_no_more():
    """A condition that holds on every 15th row resolves once, returns once, and then simply stays open."""
    _, seen = play((["warning"] + [None] * 14) * 60)
    assert [t.reason for t in seen] == ["opened", "quiet", "reopened"]


def test_a_condition_that_returns_much_later_is_a_new_alert():
    _, seen = play(["warning"] + [None] * (QUIET_ROWS + REOPEN_ROWS + 1) + ["warning"])
    assert [t.reason for t in seen] == ["opened", "quiet", "opened"]
    assert seen[0].alert == seen[1].alert != seen[2].alert


def test_steps_lived_again_after_a_resume_do_not_fire_again():
    """Steps 0..60 with an alarm at 20 that resolves at 30; the run resumes from step 15 and passes 20 again."""
    book, seen = play([None] * 20 + ["warning"] + [None] * 39)
    assert moves(seen) == [("ok", "warning", "opened"), ("warning", "resolved", "quiet")]
    again = list(range(15, 60))
    after, seen = play([None] * 5 + ["warning"] * 5 + [None] * 35, book, first=60, steps=again)
    assert seen == [] and not after.open
    _, worse = play([None] * 5 + ["critical"], book, first=60, steps=again[:6])
    assert [t.to_state for t in worse] == ["critical"]


def test_an_open_alert_survives_a_resume_without_firing_again():
    book, seen = play([None] * 20 + ["critical"] * 5)
    assert len(seen) == 1
    _, seen = play([None] * 5 + ["critical"] * 5, book, first=25, steps=list(range(15, 25)))
    assert seen == []


def test_a_relapse_after_a_resume_that_looked_cured_is_told():
    """Rolled back to step 15, quiet until it resolved, then the same collapse: that is news."""
    book, _ = play([None] * 20 + ["critical"] * 5)
    _, seen = play([None] * 12 + ["critical"], book, first=25, steps=list(range(5, 18)))
    assert moves(seen) == [("critical", "resolved", "quiet"), ("resolved", "critical", "reopened")]


def test_the_most_severe_of_several_findings_of_a_detector_counts():
    row = Row(0, 0, {"iw.max": 1.0})
    _, seen = advance(Book("run"), row, [finding("watch", 0), finding("critical", 0), finding("warning", 0)])
    assert [t.to_state for t in seen] == ["critical"]


def test_non_finite_evidence_survives_json():
    odd = Finding("nan", "critical", 3, "opt.grad_norm", "t", "e", "c", "a", math.nan, -math.inf, math.inf, 2, "r", ("opt.loss",))
    book, _ = advance(Book("run"), Row(0, 3, {"opt.grad_norm": math.nan}), [odd])
    back = lifecycle.load(json.loads(json.dumps(lifecycle.dump(book), allow_nan=False)))
    got = back.episodes["nan"].finding
    assert math.isnan(got.value) and got.baseline == -math.inf and got.limit == math.inf and got.moved == ("opt.loss",)


entries = st.one_of(st.sampled_from([None, None, None, "-", *SEVERITIES]))
rows = st.lists(st.tuples(entries, entries, st.integers(-3, 5)), max_size=120)


def fold(book, script, first):
    """Two detectors on rows whose step moves forward or back; returns the book and the transitions."""
    seen = []
    for offset, (one, two, jump) in enumerate(script):
        step = max(0, first + offset + jump)
        values = {} if one == "-" else {"iw.max": 1.0}
        values |= {} if two == "-" else {"opt.grad_norm": 1.0}
        found = [finding(one, step)] if one in SEVERITIES else []
        found += [finding(two, step, "grad", "opt.grad_norm")] if two in SEVERITIES else []
        book, changes = advance(book, Row(first + offset, step, values), found)
        seen += changes
    return book, seen


@given(rows, st.integers(0, 120))
def test_cutting_a_stream_and_storing_the_book_between_changes_nothing(script, cut):
    whole, expected = fold(Book("run"), script, 0)
    half, first = fold(Book("run"), script[:cut], 0)
    stored = lifecycle.load(json.loads(json.dumps(lifecycle.dump(half), allow_nan=False)))
    assert stored == half
    end, second = fold(stored, script[cut:], min(cut, len(script)))
    assert first + second == expected and end == whole


@given(rows)
def test_transitions_form_chains_with_unique_stable_uids(script):
    _, seen = fold(Book("run"), script, 0)
    assert len({t.uid for t in seen}) == len(seen)
    for detector in ("explosion", "grad"):
        state = "ok"
        for t in (t for t in seen if t.detector == detector):
            assert t.from_state == ("ok" if t.reason == "opened" else state)
            assert (t.to_state != t.from_state or t.reason in ("outlived", "caught up")) and t.reason in lifecycle.REASONS
            assert t.reason != "rose" or lifecycle.rank(t.to_state) > lifecycle.rank(t.from_state)
            assert t.reason != "opened" or state in ("ok", "resolved")
            state = t.to_state
    _, again = fold(Book("run"), script, 0)
    assert again == seen
    _, other = fold(Book("another"), script, 0)
    assert not {t.uid for t in seen} & {t.uid for t in other}


@given(rows)
def test_every_open_alarm_was_announced_and_every_announcement_is_of_an_alarm(script):
    book, seen = fold(Book("run"), script, 0)
    told = {t.alert: t.to_state for t in seen if t.alarms}
    for episode in book.open:
        if lifecycle.is_alarm(episode.state):
            assert told[episode.uid] == episode.state
        assert episode.quiet < MOST_QUIET_ROWS


def late(book, is_late):
    return replace(book, late=is_late)


def test_what_late_rows_show_is_told_to_nobody_unless_it_still_holds_when_they_have_caught_up():
    book, seen = play(["warning", "critical"], late(Book("run"), True))
    assert moves(seen) == [("ok", "warning", "opened"), ("warning", "critical", "rose")]
    assert [(t.alarms, t.held_by, t.late) for t in seen] == [(False, LATE, True)] * 2
    still, seen = play(["critical", "critical"], late(book, False), first=2)
    assert [(t.from_state, t.to_state, t.reason, t.alarms, t.held_by) for t in seen] == [("critical", "critical", "caught up", True, "")]
    _, seen = play([None] * QUIET_ROWS, still, first=4)
    assert [(t.to_state, t.alarms) for t in seen] == [("resolved", True)]


def test_what_is_over_by_the_time_rows_have_caught_up_is_never_told():
    book, _ = play(["critical"] + [None] * 5, late(Book("run"), True))
    _, seen = play([None] * 20, late(book, False), first=6)
    assert [(t.to_state, t.alarms) for t in seen] == [("resolved", False)]


def test_the_end_of_what_was_told_is_told_even_by_late_rows():
    book, _ = play(["warning"])
    book, seen = play(["critical"] + [None] * QUIET_ROWS, late(book, True), first=1)
    assert [(t.to_state, t.alarms) for t in seen] == [("critical", False), ("resolved", True)]
    assert lifecycle.load(json.loads(json.dumps(lifecycle.dump(book)))) == book and book.late
