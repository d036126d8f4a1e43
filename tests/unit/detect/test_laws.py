"""Laws that hold for every detector by being in the registry."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monitor.detect import examples, fold
from monitor.detect.contract import Context, Row
from monitor.detect.registry import DETECTOR_BY_ID, DETECTORS
from monitor.metrics import CATALOGUE
from tests.unit.detect.streams import alarms, first, walk

NAMES = [metric.name for metric in CATALOGUE] + ["reward.fn.check.mean", "reward.aux.format.mean", "eval.task.mean", "my.own.metric"]
REWARDS = ("reward.task.mean", "reward.aux.mean", "reward.aux.format.mean", "reward.audit.mean", "reward.total.mean", "eval.task.mean")
ALARMING = [d.id for d in DETECTORS if first(walk(examples.FIRES[d.id].rows()), d.id) is not None]
wild = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, 1.0, -1.0, 1e-300, 1e300, 0.5])
wild_rows = st.lists(st.dictionaries(st.sampled_from(NAMES), wild, max_size=25), min_size=1, max_size=40)
relaxed = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@relaxed
@given(wild_rows)
def test_no_value_ever_raises_and_the_state_is_always_json(rows: list[dict[str, float]]) -> None:
    walk(rows, through_json=True)


@relaxed
@given(wild_rows)
def test_storing_the_state_changes_nothing(rows: list[dict[str, float]]) -> None:
    assert repr(walk(rows, through_json=True)) == repr(walk(rows))


def test_storing_the_state_between_rows_changes_no_finding_of_a_broken_run() -> None:
    for detector in ("aux_divergence", "eval_gap"):
        rows = examples.FIRES[detector].rows()
        assert repr(walk(rows, through_json=True)) == repr(walk(rows))


@settings(relaxed, max_examples=6)
@given(st.randoms(use_true_random=False), st.sampled_from(ALARMING))
def test_order_of_metrics_and_unknown_ones_change_nothing(random: object, detector: str) -> None:
    rows = examples.FIRES[detector].rows()
    shuffled = []
    for row in rows:
        items = [*row.items(), ("mine.a", 3.0), ("mine.b", math.nan)]
        random.shuffle(items)  # type: ignore[attr-defined]
        shuffled.append(dict(items))
    assert repr(walk(shuffled)) == repr(walk(rows))


@relaxed
@given(st.sets(st.sampled_from(NAMES), max_size=40), st.sampled_from(ALARMING), st.integers(0, 69))
def test_missing_inputs_never_raise_and_are_said(gone: set[str], detector: str, row: int) -> None:
    rows = [{k: v for k, v in values.items() if k not in gone} for values in examples.FIRES[detector].rows()]
    rows[row] = {}
    state = fold.initial()
    for i, values in enumerate(rows):
        state, _ = fold.observe(state, Row(i, i, values), Context())
    said = fold.cannot_judge(state, Context())
    for each in DETECTORS:
        exact = {name for choice in each.needs for name in choice} - {"task", "aux"}
        if exact and exact <= gone and "task" not in {n for c in each.needs for n in c} and "aux" not in {n for c in each.needs for n in c}:
            assert any(line.startswith(each.title) for line in said)


@pytest.mark.parametrize("detector", ALARMING)
@pytest.mark.parametrize(("scale", "offset"), [(3.0, 1.0), (0.2, -5.0)])
def test_scaling_rewards_does_not_lose_the_alarm(detector: str, scale: float, offset: float) -> None:
    def scaled(row: Mapping[str, float]) -> dict[str, float]:
        return {name: scale * value + offset if name in REWARDS else value for name, value in row.items()}

    rows = [scaled(row) for row in examples.FIRES[detector].rows()]
    assert first(walk(rows), detector) is not None


@pytest.mark.parametrize("detector", ALARMING)
def test_logging_every_fifth_row_does_not_lose_the_alarm(detector: str) -> None:
    example = examples.FIRES[detector]
    rows = dataclasses.replace(example, at=example.at * 5).rows(350)
    steps = list(range(0, 350, 5))
    assert [f for _, f in alarms(walk([rows[s] for s in steps], steps=steps))], "the run broke and nobody said so"


@relaxed
@given(wild_rows, wild_rows)
def test_observe_changes_neither_state_nor_row(before: list[dict[str, float]], after: list[dict[str, float]]) -> None:
    state = fold.initial()
    for i, values in enumerate(before):
        state, _ = fold.observe(state, Row(i, i, values), Context())
    kept, row = fold.dump(state), Row(len(before), 0, dict(after[0]))
    fold.observe(state, row, Context())
    assert fold.dump(state) == kept
    assert repr(row.values) == repr(after[0])


def test_the_state_stays_small() -> None:
    state, sizes = fold.initial(), []
    for i in range(400):
        state, _ = fold.observe(state, Row(i, i, examples.healthy(i)), Context())
        if i in (199, 399):
            sizes.append(len(fold.dump(state)))
    assert sizes[1] < 1.05 * sizes[0] < 40_000


@pytest.mark.parametrize("detector", [d.id for d in DETECTORS if d.parameters])
def test_every_threshold_can_be_overridden(detector: str) -> None:
    """Each parameter is read under its own name: an override of all of them to a value that nothing reaches silences the detector's own gate."""
    known = DETECTOR_BY_ID[detector]
    example = examples.FIRES[detector]
    asked: list[str] = []

    class Spy(dict[str, float]):
        def get(self, name: str, default: object = None) -> object:  # type: ignore[override]
            asked.append(name)
            return next(p.default for p in known.parameters if p.name == name)

    walk(example.rows(), dataclasses.replace(example.context, limits={detector: Spy()}))
    assert set(asked) <= {p.name for p in known.parameters}
    assert asked
