"""Where a series changed, whatever its size."""

from __future__ import annotations

from monitor.detect.stats import change_point


def test_the_split_is_where_the_level_changes_and_huge_values_do_not_raise() -> None:
    assert change_point([1.0, 1.0, 1.0, 5.0, 5.0]) == 3
    assert change_point([0.0, 0.0, 0.0, 1e200, 1e200]) in range(5)
