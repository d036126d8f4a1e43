"""Public logs where they lie: each is read, and long enough for its label. Skipped where they are not at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.detection import load
from monitor.adapters.readers import read

CASES = Path(os.environ.get("VITALS_CASES") or Path(__file__).parents[4] / "shared" / "cases")
LABELLED = [folder for name in ("real", "tiny") if (folder := CASES / name).joinpath("labels.json").is_file()]


@pytest.mark.skipif(not LABELLED, reason="set VITALS_CASES to a folder of labelled runs")
@pytest.mark.parametrize("case", load(LABELLED), ids=lambda case: case.name)
def test_a_labelled_log_is_read(case) -> None:  # type: ignore[no-untyped-def]
    log = read(case.path, case.task, case.aux)
    rows = list(log.rows)
    assert [row.index for row in rows] == list(range(len(rows)))
    assert len(rows) > max(case.damage or 0, 10)
    assert any(log.roles.task in row.values for row in rows)
    assert all(len(row.values) >= 2 for row in rows)
