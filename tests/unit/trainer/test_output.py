"""A run's file says what the run would have said to a collector, also after it was interrupted."""

from __future__ import annotations

import math
from pathlib import Path

from monitor.adapters.readers import read
from trainer.config import Config, changed
from trainer.faults import Fault
from trainer.output import Jsonl, declared
from trainer.training import Row

NAMES = ("reward.task.mean", "reward.aux.partial.mean", "reward.aux.word.mean")


def test_a_file_is_read_as_the_run_declared_it_and_continued_without_gap_or_duplicate(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    head = {"run": "r", **declared(changed(Config(), {"algorithm": "self-distill", "aux.word": 0.5}), "healthy")}
    for resume_at, last in ((None, 4), (3, 5)):
        sink = Jsonl(path, head, resume_at)
        for step in range(resume_at or 0, last):
            if step in (2, 3):
                sink.event("regime", step, {"temperature": 0.8, "verifier": ("flaky",)})
            sink.row(Row(step, dict.fromkeys(NAMES, 0.1 * step) | {"opt.loss": math.nan}))
        sink.close("stopped", None)
    log = read(path)
    rows = list(log.rows)
    assert [(row.step, row.segment, row.regime) for row in rows] == [(0, 0, False), (1, 0, False), (2, 0, True), (3, 0, True), (4, 0, False)]
    assert all(set(row.values) == {*NAMES, "opt.loss"} for row in rows)
    assert (log.header["algorithm"], log.header["signal"], log.header["config"]["preset"]) == ("self-distill", "teacher_kl", "healthy")
    assert (log.roles.task, log.roles.aux) == (NAMES[0], NAMES[1:])
    assert not log.notes


def test_a_planned_change_is_part_of_the_declared_configuration() -> None:
    config = declared(Config(), "goblin-bonus", Fault(10, {"aux.word": 0.5, "kl": 0.0}))["config"]
    assert config["fault"] == {"at_step": 10, "for_steps": None, "patch": {"aux.word": 0.5, "kl": 0.0}}
    assert "fault" not in declared(Config(), "healthy")["config"]
