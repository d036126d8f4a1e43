"""The trainer's own runs: what broke is seen, where it was seen before, and healthy runs are silent."""

from __future__ import annotations

import json

import pytest

from tests.streams import golden

STREAMS = golden.streams()
EXPECTED: dict[str, dict[str, int]] = json.loads(golden.EXPECTED.read_text())
HEALTHY = ("all-easy", "deceptive", "healthy", "async-clipped", "curriculum-switch", "goblin-bonus-with-kl", "many-epochs-clipped")


@pytest.mark.parametrize("name", STREAMS)
def test_first_alarms_are_where_they_were(name: str) -> None:
    assert golden.alarms(STREAMS[name]) == EXPECTED[name], "behaviour changed; look at it, then run `python -m tests.streams.golden`"


def test_healthy_streams_are_silent_and_broken_ones_are_not() -> None:
    assert {name for name, first in EXPECTED.items() if not first} == {name for name in STREAMS if name.startswith(HEALTHY)}


def test_a_farmed_bonus_is_seen_before_the_task_has_halved() -> None:
    for name in ("goblin-bonus", "calculator-bonus", "repetition-bonus", "length-explosion", "length-implosion"):
        task = [row["reward.task.mean"] for row in STREAMS[name]]
        first = min(EXPECTED[name].values())
        best = max(sum(task[i : i + 5]) / 5 for i in range(len(task) - 5))
        halved = next(i for i in range(10, len(task)) if sum(task[i - 2 : i + 1]) / 3 < best / 2)
        assert first < halved, name
