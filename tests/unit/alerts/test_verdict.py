"""One word and one sentence for a run and for each of its organs."""

from __future__ import annotations

from monitor.alerts.lifecycle import Book, advance
from monitor.alerts.verdict import STATES, verdict
from monitor.detect.contract import Finding, OrganView, Row

HEALTHY = {"policy": OrganView("healthy", "4 of 4 checks can judge."), "optimizer": OrganView("healthy", "2 of 2 checks can judge.")}


def finding(severity, step, detector, metric, title, evidence="12 against 1"):
    return Finding(detector, severity, step, metric, title, evidence, "cause", "advice", 12.0, 1.0, 5.0)


def book(*findings):
    state = Book("run")
    for index, each in enumerate(findings):
        state, _ = advance(state, Row(index, each.step, {each.metric: each.value}), [each])
    return state


def test_a_quiet_run_is_healthy_and_says_what_that_rests_on():
    said = verdict(Book("run"), HEALTHY)
    assert said.state == "healthy" and said.sentence == "Nothing is wrong with policy and optimizer."
    assert {name: part.state for name, part in said.organs.items()} == {"policy": "healthy", "optimizer": "healthy"}


def test_the_most_severe_alert_speaks_and_the_others_are_reasons_in_order():
    said = verdict(
        book(
            finding("warning", 3, "entropy", "entropy.mean", "Entropy is falling"),
            finding("critical", 5, "weights", "iw.max", "Importance weights exploded"),
            finding("watch", 6, "grad", "opt.grad_norm", "KL is odd"),
        ),
        HEALTHY,
    )
    assert said.state == "critical" and said.since_step == 5
    assert said.sentence == "Importance weights exploded, since step 5."
    assert said.reasons == ("12 against 1", "warning since step 3: entropy is falling", "watch since step 6: KL is odd")
    assert said.organs["policy"].state == "critical" and said.organs["optimizer"].state == "watch"


def test_among_equals_the_first_mover_speaks():
    said = verdict(book(finding("warning", 3, "b", "iw.max", "First"), finding("warning", 5, "a", "iw.max", "Second")), HEALTHY)
    assert said.sentence == "First, since step 3."


def test_among_equals_a_cause_speaks_before_what_follows_from_it():
    kl = finding("critical", 3, "kl_acceleration", "kl_ref.k3", "KL is accelerating")
    aux = finding("critical", 5, "aux_divergence", "reward.aux.mean", "The auxiliary reward is farmed")
    said = verdict(book(kl, aux), HEALTHY)
    assert said.sentence == "The auxiliary reward is farmed, since step 5."
    assert said.reasons[1:] == ("critical since step 3: KL is accelerating",)


def test_solved_and_missing_inputs_are_said():
    organs = {
        "signal": OrganView("solved", "Every group passes."),
        "policy": OrganView("cannot judge", "Nothing was logged.", ("no entropy logged",)),
    }
    said = verdict(Book("run"), organs)
    assert said.state == "solved" and said.organs["policy"].reasons == ("no entropy logged",)
    said = verdict(Book("run"), {"policy": organs["policy"]})
    assert said.state == "cannot judge" and said.state in STATES
    said = verdict(Book("run"), {"policy": organs["policy"], "optimizer": HEALTHY["optimizer"]})
    assert said.state == "healthy" and said.reasons == ("policy cannot be judged: nothing was logged.",)
    said = verdict(Book("run"), {"policy": organs["policy"], "pace": organs["policy"], "optimizer": HEALTHY["optimizer"]})
    assert said.reasons == ("policy and pace cannot be judged: what judging them needs has not been logged.",)


def test_information_changes_no_verdict_but_is_mentioned():
    said = verdict(book(finding("information", 3, "spike", "opt.grad_norm", "One spike of the gradient")), HEALTHY)
    assert said.state == "healthy" and said.organs["optimizer"].reasons == ("One spike of the gradient.",)
