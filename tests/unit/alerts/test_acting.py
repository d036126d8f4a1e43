"""What a run is asked because of an alarm."""

from __future__ import annotations

from monitor.alerts.acting import Act, wanted
from monitor.alerts.routing import Facts

FACTS = Facts("math", "r1", "grpo", "non_finite", "optimizer", "critical", ("prod",))


def test_what_fits_is_asked_once_and_in_earnest_if_any_rule_is() -> None:
    acts = [Act("checkpoint"), Act("stop", {"detector": "non_*"}), Act("stop", {"tag": "prod"}, dry_run=False), Act("stop", severity="warning")]
    assert list(wanted(FACTS, acts).items()) == [("checkpoint", True), ("stop", False)]


def test_what_does_not_fit_is_not_asked() -> None:
    milder = Facts("math", "r1", "grpo", "non_finite", "optimizer", "warning")
    assert wanted(milder, [Act("stop", dry_run=False)]) == {}
    assert wanted(milder, [Act("pause", severity="warning", dry_run=False)]) == {"pause": False}
    assert wanted(FACTS, [Act("stop", {"project": "code"}, dry_run=False)]) == {}
