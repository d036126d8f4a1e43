from __future__ import annotations

from streams import first, walk


def test_a_fall_begins_after_its_best_row_and_not_in_the_rise_before_it() -> None:
    rise = [0.5 + 0.02 * i + 0.01 * (i % 3) for i in range(20)]
    level = [0.9 + 0.01 * (i % 3) for i in range(12)]
    fall = [0.9 - 0.12 * i for i in range(1, 8)]
    rows = [{"reward.task.mean": value, "kl_ref.k3": 0.02 * (i + 1)} for i, value in enumerate([*rise, *level, *fall])]
    fired = first(walk(rows), "peak_and_fall")
    assert fired is not None
    _, finding = fired
    assert finding.since_step is not None and 30 <= finding.since_step <= 35
