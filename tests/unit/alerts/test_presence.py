"""How long a run may be silent, by its own cadence, and what is said when it is for longer."""

from __future__ import annotations

import json
import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from monitor.alerts import presence
from monitor.alerts.judgement import judge, notice
from monitor.alerts.presence import Pace, announced, crashed, duration, silent, stepped, unstarted
from monitor.detect.contract import Context, Row


def paced(seconds, steps=10, first=0, at=1000.0):
    pace = Pace()
    for i in range(steps):
        pace = stepped(pace, first + i, at + i * seconds)
    return pace


def test_a_run_is_reported_between_two_and_four_minutes_at_ten_seconds_a_step():
    assert 120 <= paced(10.0).allowed("warning") <= 240 and paced(10.0).allowed("critical") == 600


def test_slow_runs_may_be_silent_for_longer():
    assert paced(300.0).allowed("warning") == 1500 and paced(300.0).allowed("critical") == 3000
    assert Pace().allowed("warning") == 120


def test_one_long_step_does_not_change_the_cadence():
    assert stepped(paced(10.0), 10, 5000.0).usual == 10.0


def test_rows_of_one_step_and_relived_steps_make_no_step_time():
    pace = paced(10.0)
    assert stepped(pace, 9, pace.at + 3).gaps == pace.gaps
    resumed = stepped(pace, 4, pace.at + 500)
    assert resumed.gaps == pace.gaps and resumed.step == 4
    assert stepped(resumed, 5, pace.at + 510).gaps[-1] == 10.0


def test_announced_silence_counts_until_its_end_whatever_is_logged_meanwhile():
    now = paced(10.0).at + 5
    pace = announced(paced(10.0), "expect", {"seconds": 900, "why": "evaluation"}, now)
    assert pace.allowed("warning") == 1020 and pace.why == "evaluation"
    assert stepped(pace, 9, now + 300).allowed("warning") == stepped(pace, 10, now + 300).allowed("warning") == 720
    assert stepped(pace, 10, now + 950).allowed("warning") == 120
    assert announced(pace, "checkpoint", {}, now + 100).allowed("warning") == 920
    assert announced(pace, "unpause", {}, now + 100) == replace(paced(10.0), heard=now + 100)
    for detail in ({}, {"seconds": -1}, {"seconds": "soon"}, {"seconds": True}, {"seconds": math.nan}):
        assert announced(paced(10.0), "expect", detail, now).allowed("warning") == 120


def test_a_pause_ends_with_the_next_row():
    paused = announced(paced(10.0), "pause", {}, paced(10.0).at + 5)
    assert math.isinf(paused.allowed("critical")) and math.isinf(paused.allowed_to_start("warning", lives=True))
    assert stepped(paused, 10, paused.heard + 5000).allowed("warning") == 120
    assert announced(paused, "unpause", {}, paused.heard + 1).allowed("warning") == 120


def test_the_first_step_may_take_long_while_the_client_speaks():
    fresh = Pace()
    assert (fresh.allowed_to_start("warning", lives=True), fresh.allowed_to_start("critical", lives=True)) == (1800, 7200)
    assert (fresh.allowed_to_start("warning", lives=False), fresh.allowed_to_start("critical", lives=False)) == (120, 600)
    assert announced(fresh, "expect", {"seconds": 3600}, 50.0).allowed_to_start("warning", lives=True) == 5400
    loading, gone = (unstarted(fresh, since_s=1900, unheard_s=seconds, severity="warning") for seconds in (20, 1900))
    assert (loading.detector, loading.limit) == ("stalled", 1800) and (gone.detector, gone.limit) == ("lost", 120)
    assert loading.title == "No step has ended since the run was started 32 min ago" and gone.title.endswith("and the client is silent")


def test_a_silent_client_is_lost_and_a_speaking_one_stalled():
    pace = paced(10.0)
    lives, gone = (silent(pace, since_s=130, unheard_s=seconds, severity="warning") for seconds in (20, 130))
    assert (lives.detector, gone.detector) == ("stalled", "lost")
    assert lives.title == "No step has ended for 130 s" and "step 9" in lives.evidence and "takes 10 s" in lives.evidence
    assert lives.baseline == 10.0 and lives.limit == 120.0


def test_a_crash_quotes_the_last_line_of_its_reason():
    said = crashed(paced(1.0), "crashed", "Traceback ...\nRuntimeError: CUDA out of memory\n")
    assert said.severity == "critical" and said.evidence.endswith("RuntimeError: CUDA out of memory")
    assert crashed(Pace(), "killed", None).title == "The run was killed"


def test_durations():
    assert [duration(s) for s in (0.04, 9.0, 130, 600, 7199, 36_000)] == ["0.0 s", "9.0 s", "130 s", "10 min", "120 min", "10.0 h"]


def test_a_notice_replaces_another_and_a_good_end_closes_it():
    rows = [Row(i, i, {"opt.loss": 1.0}) for i in range(5)]
    judged = judge("r", {}, rows, Context())
    pace = paced(1.0)
    stalled = notice("r", judged.state, silent(pace, since_s=130, unheard_s=3, severity="warning"), Context())
    assert [(t.detector, t.to_state, t.step) for t in stalled.transitions] == [("stalled", "warning", 4)]
    assert stalled.verdict.state == "warning" and stalled.verdict.sentence.startswith("No step has ended for 130 s")
    lost = notice("r", stalled.state, silent(pace, since_s=700, unheard_s=600, severity="critical"), Context())
    assert [(t.detector, t.to_state, t.reason) for t in lost.transitions] == [("stalled", "resolved", "replaced"), ("lost", "critical", "opened")]
    again = notice("r", lost.state, silent(pace, since_s=800, unheard_s=700, severity="critical"), Context())
    assert again.transitions == ()
    back = judge("r", lost.state, [Row(5, 5, {"opt.loss": 1.0})], Context())
    assert [(t.detector, t.to_state, t.reason) for t in back.transitions] == [("lost", "resolved", "returned")]
    ended = notice("r", lost.state, None, Context())
    assert [(t.detector, t.to_state, t.reason) for t in ended.transitions] == [("lost", "resolved", "ended")]
    assert notice("r", judged.state, None, Context()).transitions == ()


def test_a_run_that_crashed_before_its_first_row_is_told():
    said = notice("r", {}, crashed(Pace(), "crashed", "boom"), Context())
    assert [(t.detector, t.to_state, t.step) for t in said.transitions] == [("crashed", "critical", 0)]


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0, 1e6)), max_size=60), st.integers(0, 60))
def test_pace_survives_json_and_cutting(rows, cut):
    whole = Pace()
    for step, at in rows:
        whole = stepped(whole, step, at)
    half = Pace()
    for step, at in rows[:cut]:
        half = stepped(half, step, at)
    half = presence.load(json.loads(json.dumps(presence.dump(half))))
    for step, at in rows[cut:]:
        half = stepped(half, step, at)
    assert half == whole and len(whole.gaps) <= presence.GAPS and all(gap > 0 for gap in whole.gaps)
    paused = announced(whole, "pause", {}, whole.heard)
    assert presence.load(json.loads(json.dumps(presence.dump(paused), allow_nan=False))) == paused
    assert presence.load({"gaps": [1.0], "step": 3, "at": 5.0, "announced": 0.0}) == Pace((1.0,), 3, 5.0)
