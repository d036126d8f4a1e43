"""The bench of the detectors counts as it says it does."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from bench.detection import Alarm, Case, Outcome, incidents, load, main, poisson_interval, score, window


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
    assert total.causes == {"fault:entropy_explosion": [1, 1]}
    width = 25 - 15 + 1
    assert total.chance == pytest.approx((1 - (1 - width / 45)) + (1 - (1 - width / 45) ** 2))


def test_a_cause_is_named_by_the_first_alarm_only() -> None:
    assert score([outcome("fault:repetition", 45, (18,), 21, 15, "stale rollouts")]).causes == {"fault:repetition": [0, 1]}


@pytest.mark.parametrize(("count", "low", "high"), [(0, 0.0, 3.689), (1, 0.0253, 5.572), (5, 1.623, 11.668), (20, 12.217, 30.888)])
def test_poisson_intervals_are_the_exact_ones(count: int, low: float, high: float) -> None:
    assert poisson_interval(count) == (pytest.approx(low, abs=2e-3), pytest.approx(high, abs=2e-3))


def test_labels_and_logs_of_a_folder_are_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, broken in (("good.jsonl", False), ("bad.jsonl", True)):
        rows = [{"step": i, "reward.task.mean": 0.5, "entropy.mean": 0.4, "opt.loss": math.nan if broken and i >= 20 else 0.1} for i in range(40)]
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    labels = {"good.jsonl": {"outcome": "healthy", "damage_row": None}, "bad.jsonl": {"outcome": "collapse", "damage_row": 21, "declared": None}}
    (tmp_path / "labels.json").write_text(json.dumps(labels))
    assert [case.outcome for case in load([tmp_path])] == ["healthy", "collapse"]
    assert main(["--cases", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["score"]
    assert (found["caught"], found["broken"], found["healthy"], found["leads"]) == (1, 1, 1, [1])
