"""Where a run's rows go: a collector, a JSONL file, the terminal. Each sink takes rows in order and is closed with the run's end."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TextIO

import monitor.client
from monitor.wire import spelled
from trainer.config import Config
from trainer.faults import Fault
from trainer.training import Row


class Sink(Protocol):
    """Takes rows and events of a run."""

    def row(self, row: Row) -> None: ...

    def event(self, kind: str, step: int, detail: Mapping[str, Any]) -> None: ...

    def close(self, state: str, reason: str | None) -> None: ...


def declared(config: Config, preset: str, fault: Fault | None = None) -> dict[str, Any]:
    """What a run says of itself: the fields of ``monitor.wire.RunStart`` that follow from its settings, and the change of them that is planned."""
    planned = {} if fault is None else {"fault": {"at_step": fault.at_step, "for_steps": fault.for_steps, "patch": dict(fault.patch)}}
    return {
        "config": asdict(config) | {"preset": preset} | planned,
        "algorithm": config.algorithm,
        "signal": "teacher_kl" if config.rule.teacher or config.rule.source != "policy" else "reward",
        "task_reward": "reward.task.mean",
        "aux_rewards": [f"reward.aux.{part}.mean" for part, weight in config.aux.items() if weight],
    }


class Collector:
    """Sends rows, rollouts and events to a collector in the background."""

    def __init__(self, url: str | None, project: str, name: str, declaration: Mapping[str, Any], resume: bool = False) -> None:
        self.run = monitor.client.start(project, name, url=url, accepts=("stop",), resume="auto" if resume else "never", **declaration)

    def row(self, row: Row) -> None:
        self.run.log(row.values, step=row.step, hists=row.hists)
        self.run.log_rollouts(row.step, row.rollouts)

    def event(self, kind: str, step: int, detail: Mapping[str, Any]) -> None:
        self.run.event(kind, step=step, **detail)

    def close(self, state: str, reason: str | None) -> None:
        self.run.finish(state, reason)


class Jsonl:
    """What the run declares, then one JSON object per row, ``{"step": 0, "reward.task.mean": 0.5, ...}``, with events between them; non-finite
    numbers are spelled as strings. ``vitals diagnose`` judges the file as the run would be judged live."""

    def __init__(self, path: Path, head: Mapping[str, Any], resume_at: int | None = None) -> None:
        kept = _rows_before(path, resume_at) if resume_at is not None and path.exists() else []
        self.file: TextIO = path.open("w")
        self._write(head)
        self.file.writelines(kept)
        self.file.flush()

    def row(self, row: Row) -> None:
        self._write({"step": row.step, **row.values})

    def event(self, kind: str, step: int, detail: Mapping[str, Any]) -> None:
        self._write({"step": step, "event": kind, "detail": dict(detail)})

    def close(self, state: str, reason: str | None) -> None:
        self.file.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        self.file.write(json.dumps(spelled(line)) + "\n")
        self.file.flush()


def _rows_before(path: Path, step: int) -> list[str]:
    """Whole lines of an interrupted file whose step lies before ``step``."""
    kept = []
    for line in path.read_text().splitlines(keepends=True):
        try:
            if line.endswith("\n") and json.loads(line)["step"] < step:
                kept.append(line)
        except (ValueError, KeyError, TypeError):
            continue
    return kept


class Terminal:
    """A progress bar with the rewards: redrawn in place on a terminal, one line every ten steps elsewhere."""

    def __init__(self, steps: int, stream: TextIO | None = None) -> None:
        self.steps = steps
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()

    def progress(self, label: str, share: float) -> None:
        """The warm start's progress."""
        if self.live:
            self._show(label, share, "")

    def row(self, row: Row) -> None:
        done = row.step + 1
        if self.live or done % 10 == 0 or done == self.steps or row.step == 0:
            self._show("step", done / self.steps, _summary(row, self.steps))

    def event(self, kind: str, step: int, detail: Mapping[str, Any]) -> None:
        self.note(f"step {step}: {kind} " + ", ".join(f"{key}={value}" for key, value in detail.items()))

    def note(self, text: str) -> None:
        self.stream.write(("\r\x1b[K" if self.live else "") + text + "\n")
        self.stream.flush()

    def close(self, state: str, reason: str | None) -> None:
        self.note(f"{state}{': ' + reason if reason else ''}")

    def _show(self, label: str, share: float, text: str) -> None:
        full = round(share * 24)
        line = f"{label} [{'#' * full}{'.' * (24 - full)}] {text}"
        self.stream.write(f"\r\x1b[K{line}" if self.live else line + "\n")
        self.stream.flush()


def _summary(row: Row, steps: int) -> str:
    v = row.values
    parts = [f"{row.step + 1}/{steps}"]
    for label, name in (("task", "reward.task.mean"), ("audit", "reward.audit.mean"), ("aux", "reward.aux.mean"), ("length", "len.completion.mean")):
        if name in v:
            parts.append(f"{label} {v[name]:.3g}")
    parts.append(f"{v['perf.step_time_s']:.2f} s")
    return "  ".join(parts)
