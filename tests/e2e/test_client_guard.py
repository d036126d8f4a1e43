"""The step gate on a real policy: the same seed with and without it. One keeps its reward, the other loses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean

import pytest

from monitor.wire import read_number

pytestmark = pytest.mark.timeout(900)
REPOSITORY = Path(__file__).resolve().parents[2]


def rewards(folder: Path, preset: str, steps: int, guard: bool) -> tuple[list[float], float]:
    """Task reward per step, and how many updates were refused."""
    rows = folder / f"{preset}-{guard}.jsonl"
    command = [sys.executable, "-m", "trainer", "--preset", preset, "--seed", "0", "--steps", str(steps), "--quiet", "--jsonl", str(rows)]
    done = subprocess.run(
        [*command, "--set", f"guard={str(guard).lower()}"], capture_output=True, text=True, cwd=REPOSITORY, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in rows.read_text().splitlines()[1:]]
    return [float(read_number(line["reward.task.mean"]) or 0.0) for line in lines], sum(line.get("opt.skipped", 0) for line in lines)


PRESETS = [("one-huge-update", 20, 26), ("huge-weight-batch", 25, 31), ("stale-async-unclipped", 15, 27)]


@pytest.mark.parametrize(("preset", "fault", "steps"), PRESETS)
def test_with_the_gate_a_run_keeps_the_reward_that_it_loses_without(tmp_path: Path, preset: str, fault: int, steps: int) -> None:
    with ThreadPoolExecutor(2) as side_by_side:
        both = [side_by_side.submit(rewards, tmp_path, preset, steps, guard) for guard in (True, False)]
    (guarded, skipped), (alone, none) = (one.result() for one in both)
    before = mean(guarded[fault - 5 : fault])
    assert guarded[:fault] == alone[:fault], "before the fault the gate changes nothing"
    assert mean(guarded[-5:]) >= 0.8 * before and skipped > 0 and len(guarded) == steps
    assert mean(alone[-5:]) <= 0.3 * before and none == 0
