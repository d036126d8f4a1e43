"""When a fault's cost is plain, which metrics moved first, and the intervals of an audit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.audit import Share, audit, wilson
from trainer.config import Config, changed
from trainer.damage import damage_step, fall_row, first_signals, halved_row
from trainer.verifier import Verifier


def rows(values: list[float], metric: str = "reward.audit.mean", **more: list[float]) -> list[dict[str, float]]:
    return [{metric: value} | {name.replace("__", "."): column[i] for name, column in more.items()} for i, value in enumerate(values)]


def test_halving() -> None:
    falling = [0.8] * 10 + [0.8, 0.6, 0.3, 0.1, 0.0, 0.0]
    assert damage_step(rows(falling), 10, {}) == 14
    assert damage_step(rows([0.8] * 20), 10, {}) is None


def test_the_task_reward_has_halved_when_its_mean_of_five_has() -> None:
    """A reward that is gone at once has halved at its third row, with two good ones still in the mean."""
    assert halved_row(rows([0.8] * 10 + [0.0] * 5, "reward.task.mean"), 10) == 12
    assert halved_row(rows([0.8] * 10 + [0.8, 0.6, 0.3, 0.1, 0.0, 0.0], "reward.task.mean"), 10) == 14
    assert halved_row(rows([0.8] * 10 + [0.5] * 9, "reward.task.mean"), 10) is None
    assert halved_row(rows([0.01] * 10 + [0.0] * 9, "reward.task.mean"), 10) is None
    assert halved_row(rows([0.8] * 2 + [0.0] * 9, "reward.task.mean"), 0) is None


def test_a_fall_is_a_third_of_the_best_mean_of_five() -> None:
    rising = [0.1 * i for i in range(10)]
    assert fall_row(rows([*rising, 0.9, 0.9, 0.9, 0.2, 0.9, 0.9])) is None
    assert fall_row(rows([*rising, 0.9, 0.9, 0.9, 0.4, 0.4, 0.4, 0.4])) == 16
    assert fall_row(rows([0.2] * 5 + [0.0] * 9)) is None
    assert fall_row(rows([])) is None


def test_behind_a_control() -> None:
    control = rows([min(0.9, 0.1 + 0.04 * i) for i in range(30)])
    assert damage_step(rows([0.1] * 30), 3, {"rule": "behind"}, control) == 13
    assert damage_step(control, 3, {"rule": "behind"}, control) is None


def test_gap() -> None:
    fooled = rows([0.1] * 12, reward__task__mean=[0.1] * 4 + [0.9] * 8)
    assert damage_step(fooled, 0, {"rule": "gap", "limit": 0.5}) == 7
    assert damage_step(rows([0.5] * 12, reward__task__mean=[0.5] * 12), 0, {"rule": "gap"}) is None


def test_first_signals_are_ordered_and_persistent() -> None:
    steady = [{"a": 1.0 + 0.01 * (i % 3), "b": 2.0 + 0.01 * (i % 2), "perf.x": float(i)} for i in range(10)]
    later = [{"a": 1.0, "b": 5.0, "perf.x": 99.0}, {"a": 9.0, "b": 5.0, "perf.x": 99.0}, {"a": 9.0, "b": 5.0, "perf.x": 99.0}]
    assert first_signals(steady + later, 10, steady) == [("b", 10), ("a", 11)]


@given(st.integers(0, 60), st.integers(1, 60))
def test_wilson(hits: int, more: int) -> None:
    count = hits + more
    low, high = wilson(hits, count)
    assert 0 <= low <= hits / count <= high <= 1
    wider_low, wider_high = wilson(hits, count, z=3)
    assert wider_low <= low and high <= wider_high


def test_nothing_counted() -> None:
    assert wilson(0, 0) == (0.0, 1.0) and str(Share()) == "none seen"


@pytest.mark.parametrize(
    ("faults", "solvable", "negatives", "positives"),
    [((), 1.0, 0.0, 0.0), (("unreachable",), 0.0, 1.0, 0.0), (("editable",), 1.0, 0.0, None), (("wrong",), 0.0, 1.0, None)],
)
def test_audit_of_verifiers(faults: tuple[str, ...], solvable: float, negatives: float, positives: float | None) -> None:
    verifier = Verifier()
    result = audit(changed(Config(), {"verifier": faults}), 12, verifier)
    verifier.close()
    assert result.solvable.hits == solvable * 12
    assert result.false_negative.hits == negatives * result.false_negative.count
    assert (result.false_positive.hits > 0) if positives is None else (result.false_positive.hits == 0)
    assert ("not solvable" in result.text) == (solvable == 0.0)
