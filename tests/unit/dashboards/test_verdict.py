"""The banner of a run: which alert speaks, in which order the others follow, and what is drawn behind the curves."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from typing import Any

from views import text_of

from dashboards import figures, rollouts, verdict
from dashboards.pages.alerts import in_order
from dashboards.words import flatten, number, pairs, pill
from monitor.store.queries import AlertView, Change, EventView, RolloutView, RunView

T0 = datetime(2026, 11, 30, tzinfo=UTC)


def an_alert(
    title: str, *, opened: int, severity: str = "critical", since: int | None = None, resolved: int | None = None, **finding: Any
) -> AlertView:
    told = {"title": title, "metric": "kl_ref.k3", "since_step": since, **finding}
    over = None if resolved is None else T0
    state = "open" if resolved is None else "resolved"
    return AlertView(opened, "r", "r", "p", "kl", "policy", severity, state, opened, T0, opened + 5, resolved, over, told)


def explained(alert: AlertView, by: str) -> AlertView:
    return dataclasses.replace(alert, changes=(Change(alert.opened_step, T0, "ok", "warning", "opened", f"{by} explains it"),))


def a_run(**changes: Any) -> RunView:
    fields: dict[str, Any] = {
        "id": 1,
        "uid": "r",
        "project": "p",
        "name": "r",
        "algorithm": "grpo",
        "signal": "reward",
        "task_reward": None,
        "aux_rewards": (),
        "tags": (),
        "label": None,
        "state": "running",
        "end_reason": None,
        "created_at": T0,
        "last_seen_at": T0,
        "finished_at": None,
        "last_step": 60,
        "seq": 61,
        "severity": "critical",
        "verdict": {},
        "judged_at": T0,
        "judged_seq": 61,
        "critical": 1,
        "warning": 0,
        "speed": 0.2,
    }
    return RunView(**(fields | changes))


def test_the_alert_that_the_verdict_names_leads() -> None:
    alerts = [an_alert("A", opened=10), an_alert("B", opened=12), an_alert("C", opened=3, severity="warning")]
    assert verdict.lead(alerts, "B, since step 12.") is alerts[1]
    assert verdict.lead(alerts) is alerts[0]
    assert verdict.lead([]) is None


def test_what_an_alert_explains_follows_it_however_new_it_is() -> None:
    cause = dataclasses.replace(an_alert("cause", opened=3), detector="aux")
    middle = dataclasses.replace(explained(an_alert("middle", opened=5), "aux"), detector="repetition")
    last = explained(an_alert("last", opened=9), "repetition")
    elsewhere = dataclasses.replace(explained(an_alert("elsewhere", opened=8), "aux"), run="other")
    told = in_order([last, elsewhere, middle, cause])
    assert [(alert.finding["title"], by and by.finding["title"]) for alert, by in told] == [
        ("elsewhere", None),
        ("cause", None),
        ("middle", "cause"),
        ("last", "middle"),
    ]


def test_the_banner_tells_evidence_and_remedy_in_the_order_it_began() -> None:
    alerts = [
        an_alert("late", opened=40, advice="second"),
        an_alert("early", opened=35, since=31, evidence="KL 1.2", step=1036, value=1.2, advice="first"),
    ]
    run = a_run(verdict={"state": "critical", "sentence": "early, since step 31.", "organs": {"pace": {"state": "healthy", "sentence": "fine"}}})
    told = text_of(verdict.banner(run, [*alerts, an_alert("gone", opened=5, resolved=9)]))
    assert told.index("Critical") < told.index("early, since step 31.") < told.index("KL 1.2") < told.index("first") < told.index("step  31")
    assert "at step 1,036 1.2" in " ".join(told.split())
    assert told.index("step  31") < told.index("step  40") and "gone" not in told and "fine" in told


def test_a_run_that_nobody_judged_says_so() -> None:
    assert "No row has been judged yet" in text_of(verdict.banner(a_run(severity="unknown", judged_at=None, judged_seq=0), []))
    assert "No row has arrived" in text_of(verdict.banner(a_run(seq=0, severity="unknown", judged_at=None, judged_seq=0), []))


def test_marks_are_json_whatever_the_finding_holds() -> None:
    alerts = [an_alert("A", opened=10, since=7, limit="Infinity", baseline=0.1), an_alert("B", opened=3, severity="watch")]
    events = [EventView(1, 0, 20, T0, "regime", {}), EventView(2, 0, 20, T0, "checkpoint", {}), EventView(3, 0, None, T0, "note", {})]
    band, line = json.loads(json.dumps(figures.marks(alerts, events), allow_nan=False))
    assert (band["onset"], band["step"], band["end"], band["limit"], band["baseline"]) == (7, 10, None, None, 0.1)
    assert line == {"kind": "event", "step": 20, "title": "regime"}


def test_nearest_step_with_samples() -> None:
    steps = [0, 10, 20]
    assert [rollouts.nearest(steps, wanted) for wanted in (None, -5, 0, 9, 10, 999)] == [20, 0, 0, 0, 10, 20]
    assert rollouts.nearest([], 3) is None


def test_a_sample_shows_its_pay_and_what_was_cut() -> None:
    turns = [{"role": "agent", "text": "a"}, {"role": "agent", "text": "b"}, {"role": "observation", "text": "c"}]
    sample = RolloutView(0, 4, 0, "worst", "g", True, -1.5, {"task": "NaN", "word": 0.5}, turns, 1200)
    told = text_of(rollouts.reader([4], 4, [sample]))
    assert "NaN" in told and "-1.5" in told and "cut by a limit" in told and "1,200 characters" in told
    assert told.count("Policy") == 1


def test_words() -> None:
    assert [number(value) for value in (0.123456, 12345.6, 7, None, "NaN", True)] == ["0.1235", "12,346", "7", "–", "NaN", "True"]
    assert flatten({"b": {"c": 1, "a": "x"}, "a": []}) == [("a", "[]"), ("b.a", "x"), ("b.c", "1")]
    assert "packages (20)" in text_of(pairs({"packages": {f"p{i}": i for i in range(20)}, "seed": 1}))
    assert "Not judged yet" in text_of(pill("nonsense"))


def test_a_spell_in_which_we_were_down_is_a_band_and_near_all_of_its_steps() -> None:
    spell = EventView(0, 0, 20, T0, "blind", {"component": "collector", "until": T0, "end": 40})
    (mark,) = figures.marks([], [spell])
    assert mark == {"kind": "event", "step": 20, "title": "blind", "end": 40}
    assert [bool(rollouts.moment_of(step, 1, [], [spell]).events) for step in (14, 15, 30, 45, 46)] == [False, True, True, True, False]
    assert "the collector was down until" in text_of(rollouts.moment_of(30, 1, [], [spell]).events and rollouts.detail(spell))
