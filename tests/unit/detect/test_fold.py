"""The fold: pure, JSON-safe, and honest about what it cannot judge."""

from __future__ import annotations

import json
import math

from monitor.detect import fold
from monitor.detect.contract import Context, Finding, Row

CONTEXT = Context()


def run(rows: list[dict[str, float]], context: Context = CONTEXT) -> list[list[Finding]]:
    state, out = fold.initial(), []
    for i, values in enumerate(rows):
        state, found = fold.observe(state, Row(i, i, values), context)
        state = json.loads(json.dumps(state, allow_nan=False))
        out.append(found)
    return out


def test_nan_loss_is_critical_on_its_row_and_names_the_number() -> None:
    out = run([{"opt.loss": 0.1}, {"opt.loss": math.nan}, {"opt.loss": 0.1}])
    assert [len(found) for found in out] == [0, 1, 0]
    (finding,) = out[1]
    assert (finding.detector, finding.severity, finding.metric) == ("non_finite", "critical", "opt.loss")
    assert "nan" in finding.evidence


def test_a_custom_metric_is_never_judged() -> None:
    assert run([{"my.thing": math.nan}] * 3) == [[], [], []]


def test_observe_leaves_its_arguments_alone() -> None:
    state, _ = fold.observe(fold.initial(), Row(0, 0, {"opt.loss": 1.0}), CONTEXT)
    before = fold.dump(state)
    fold.observe(state, Row(1, 1, {"opt.loss": 2.0, "entropy.mean": 0.3}), CONTEXT)
    assert fold.dump(state) == before


def test_missing_inputs_are_said_once_and_organs_follow() -> None:
    state, _ = fold.observe(fold.initial(), Row(0, 0, {"opt.loss": 1.0}), CONTEXT)
    assert any("No learning signal: cannot judge" in line for line in fold.cannot_judge(state, CONTEXT))
    views = fold.organs(state, CONTEXT)
    assert views["signal"].state == "cannot judge"
    assert views["optimizer"].state == "healthy"
