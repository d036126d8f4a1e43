"""The bench of the detectors counts as it says it does."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from bench.detection import load, main, table
from bench.scoring import CAUSES, Alarm, Case, Outcome, causes_of, incidents, poisson_interval, score, window
from monitor.detect import cause
from trainer import presets


def outcome(
    kind: str, rows: int, alarms: tuple[int, ...], damage: int | None = None, injected: int | None = None, cause: str = "entropy pushed up"
) -> Outcome:
    case = Case("x", Path("x"), kind, damage, injected, None, ())
    return Outcome(case, rows, [Alarm(row, "any", "warning", cause) for row in alarms])


def test_alarms_within_ten_rows_are_one_incident() -> None:
    assert incidents([]) == 0
    assert incidents([5, 15, 25]) == 1
    assert incidents([30, 5, 16]) == 3


@pytest.mark.parametrize(
    ("rows", "damage", "injected", "expected"),
    [(40, 4, None, (-6, 8)), (40, 27, None, (17, 31)), (200, 70, None, (55, 80)), (45, 16, 15, (15, 20)), (30, 28, 8, (18, 29))],
)
def test_the_window_follows_the_length_of_the_run(rows: int, damage: int, injected: int | None, expected: tuple[int, int]) -> None:
    assert window(Case("x", Path("x"), "collapse", damage, injected, None, ()), rows) == (max(injected or 0, expected[0]), expected[1])


def test_caught_missed_false_and_noisy_are_told_apart() -> None:
    total = score(
        [
            outcome("fault:entropy_explosion", 45, (18,), 21, 15),
            outcome("fault:entropy_explosion", 45, (3, 40), 21, 15),
            outcome("healthy", 100, (10, 12, 60)),
            outcome("healthy", 100, ()),
            outcome("flat", 100, (1, 50, 90)),
        ]
    )
    assert (total.caught, total.broken, total.leads) == (1, 2, [3])
    assert (total.false, total.healthy_rows) == (3, 230)
    assert (len(total.noisy), total.healthy) == (1, 2)
    mode = total.modes["fault:entropy_explosion"]
    assert (mode.caught, mode.broken, mode.named, mode.asked) == (1, 2, 1, 1)
    width = 25 - 15 + 1
    assert total.chance == pytest.approx((1 - (1 - width / 45)) + (1 - (1 - width / 45) ** 2))


def test_rows_of_another_run_are_not_counted_again() -> None:
    fork, fault = outcome("healthy", 100, (10, 60)), outcome("fault:entropy_explosion", 45, (3, 12, 18), 21, 15)
    fork.case, fault.case = replace(fork.case, shared=40), replace(fault.case, shared=10)
    total = score([fork, fault])
    assert (total.false, total.healthy_rows, total.caught) == (2, 60 + 5, 1)


def test_a_cause_is_named_by_the_first_alarm_only() -> None:
    mode = score([outcome("fault:repetition", 45, (18,), 21, 15, "stale rollouts")]).modes["fault:repetition"]
    assert (mode.named, mode.asked) == (0, 1)


@pytest.mark.parametrize(
    ("halved", "alarms", "before", "soon", "ahead"),
    [
        (25, (24,), 1, 1, [1]),
        (25, (25,), 0, 1, [0]),
        (25, (28, 30), 0, 1, [-3]),
        (25, (29,), 0, 0, [-4]),
        (25, (14,), 0, 0, []),
        (25, (14, 15), 1, 1, [10]),
        (25, (), 0, 0, []),
        (None, (20,), 1, 1, [1]),
        (None, (21,), 0, 1, [0]),
    ],
)
def test_in_time_is_before_the_task_reward_has_halved(halved: int | None, alarms: tuple[int, ...], before: int, soon: int, ahead: list[int]) -> None:
    result = outcome("fault:lr-too-high", 45, alarms, 21, 15)
    result.case = replace(result.case, halved=halved)
    total = score([result, outcome("collapse", 45, (20,), 21), outcome("flat", 45, (20,), None, 15)])
    assert total.before == (before, soon, 1)
    assert total.modes["fault:lr-too-high"].ahead == ahead
    assert len(total.late) == 1 - before


def test_the_table_has_one_line_per_fault() -> None:
    total = score([outcome("fault:goblin-bonus", 45, (18,), 21, 15, "auxiliary reward farmed"), outcome("collapse", 45, (44,), 21)])
    assert table(total).splitlines()[2:] == [
        "| collapse | 1 | 0/1 | - | - | - | - | - |",
        "| goblin-bonus | 1 | 1/1 | 1/1 | 1/1 | 3 | any 1 | 1/1 |",
    ]


def test_every_fault_that_has_a_cause_among_ours_is_asked_for_it() -> None:
    names = {preset for preset in presets.names() if presets.load(preset).kind == "fault"}
    unknown = {name for name in names if not causes_of(f"fault:{name}")}
    assert unknown == {"history-leak", "key-leak", "self-distill-live-teacher"}
    known = {str(value.name) for value in vars(cause).values() if isinstance(value, cause.Cause)}
    assert {word for _, words in CAUSES for word in words} <= known


@pytest.mark.parametrize(("count", "low", "high"), [(0, 0.0, 3.689), (1, 0.0253, 5.572), (5, 1.623, 11.668), (20, 12.217, 30.888)])
def test_poisson_intervals_are_the_exact_ones(count: int, low: float, high: float) -> None:
    assert poisson_interval(count) == (pytest.approx(low, abs=2e-3), pytest.approx(high, abs=2e-3))


def test_labels_and_logs_of_a_folder_are_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, broken in (("good.jsonl", False), ("bad.jsonl", True)):
        rows = [{"step": i, "reward.task.mean": 0.5, "entropy.mean": 0.4, "opt.loss": math.nan if broken and i >= 20 else 0.1} for i in range(40)]
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    labels = {
        "good.jsonl": {"outcome": "healthy", "damage_row": None},
        "bad.jsonl": {"outcome": "collapse", "damage_row": 21, "declared": None, "halved_row": 23, "fault_injected_at_step": 20},
    }
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    assert [case.outcome for case in load([tmp_path])] == ["healthy", "collapse"]
    assert main(["--cases", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["score"]
    assert (found["caught"], found["broken"], found["healthy"], found["leads"]) == (1, 1, 1, [1])
    assert found["before_halving"] == [1, 1, 1] and found["modes"]["collapse"]["ahead"] == [3]
