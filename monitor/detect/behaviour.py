"""Detectors of what the policy does in its environment, as far as scalars tell. Surges of words, tools and exploits are read from rollouts."""

from __future__ import annotations

from monitor.detect import cause, strain
from monitor.detect.contract import Detector, Finding, Parameter, State
from monitor.detect.rules import support
from monitor.detect.view import View
from monitor.detect.words import called, upper

FAILURES = ("env.error_frac", "env.tool_fail_frac")


def _environment_errors(view: View, memory: State) -> tuple[State, Finding | None]:
    strain = view.strains.get("environment")
    share = view.limit(ENVIRONMENT_ERRORS, "share")
    if strain is None or strain.value < share or view.held("environment", 3) < 2:
        return memory, None
    signs = support(view, "environment")
    return memory, view.finding(
        ENVIRONMENT_ERRORS,
        "warning" if signs else "watch",
        strain.metric,
        strain.value,
        title="More and more episodes end in errors of the environment",
        evidence=f"{upper(called(strain.metric))}: {strain.value:.0%}, {strain.normal:.0%} is normal for this run"
        + (f"; with it {', '.join(signs)}." if signs else "; nothing else moved."),
        why=cause.ENVIRONMENT,
        baseline=strain.normal,
        limit=share,
    )


ENVIRONMENT_ERRORS = Detector(
    id="environment_errors",
    organ="behaviour",
    title="Environment errors",
    needs=(FAILURES,),
    rule="A fifth or more of the episodes or tool calls fail where far fewer did; an alarm once something else moves too.",
    formula="error or tool failure share >= share and 15 points above its baseline by 4 noise units on 2 of 3 rows, with a second group",
    source="an environment that fails looks like a policy that fails: separate them before tuning either",
    remedy=cause.ENVIRONMENT.remedy,
    judge=_environment_errors,
    parameters=(
        *strain.parameters("environment_errors"),
        Parameter("share", 0.2, "fraction", "least share of failing episodes or tool calls"),
    ),
)
