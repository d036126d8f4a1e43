from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from monitor.deliver.sparkline import BAD, BARS, sparkline


def test_a_course_is_seen():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == BARS
    assert sparkline([5, 5, 5]) == "▁▁▁" and sparkline([1, 2]) == "" and sparkline([]) == ""
    assert sparkline([0, math.nan, 10, math.inf]) == f"▁{BAD}█{BAD}" and sparkline([math.nan] * 3) == BAD * 3
    assert sparkline(range(100), 4) == "▁▃▆█"


@given(st.lists(st.floats(), min_size=3, max_size=80))
def test_any_values_make_a_line(values):
    line = sparkline(values)
    assert len(line) == min(len(values), 32) and set(line) <= {*BARS, BAD}
    assert [each == BAD for each in line] == [not math.isfinite(value) for value in values[-32:]]
