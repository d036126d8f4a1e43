"""Runs one peer over runs read from standard input, inside the peers' own environment; knows nothing of this project.

In: one JSON object per run, ``{"case", "rows": [{"step", "values"}]}`` with names as TRL logs them. Out: one per run, ``{"case", "alarms":
[[row, detector, severity]]}``, alarms at warning or above only. Every peer runs with its defaults and sees row by row what was logged so far.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

Rows = list[dict[str, Any]]
Alarms = Iterator[tuple[int, str, str]]


def rlwatch(rows: Rows) -> Alarms:
    from rlwatch.config import load_config
    from rlwatch.core import RLWatch

    names = {"reward": "reward_mean", "kl": "kl_divergence", "clip_ratio/region_mean": "clip_fraction"}
    same = ("entropy", "reward_std", "loss", "learning_rate", "grad_norm", "advantage_std")
    with tempfile.TemporaryDirectory() as folder:
        config = load_config(None)
        config.framework, config.storage.log_dir = "manual", folder
        monitor = RLWatch(config)
        monitor.start()
        for index, row in enumerate(rows):
            values = {names.get(key, key): value for key, value in row["values"].items() if key in names or key in same}
            for alert in monitor.log_step(row["step"], **values):
                yield index, alert.detector, alert.severity
        monitor.stop()


def _doctor(rows: Rows, **options: Any) -> Alarms:
    from rl_doctor.live import LiveMonitor

    monitor = LiveMonitor(on_finding=lambda _: None, **options)
    for index, row in enumerate(rows):
        for finding in monitor.log(row["values"], step=row["step"]):
            yield index, finding.detector, finding.severity.name.lower()


def rldoctor(rows: Rows) -> Alarms:
    return _doctor(rows)


def rldoctor_early(rows: Rows) -> Alarms:
    return _doctor(rows, min_steps=20, check_every=1)


def rlprobe(rows: Rows) -> Alarms:
    from rlprobe.doctor.engine import diagnose_view
    from rlprobe.doctor.runview import RunView
    from rlprobe.schemas import RunManifest, StepRecord

    names = {
        "reward": "reward_mean",
        "reward_std": "reward_std",
        "kl": "kl_mean",
        "entropy": "entropy_mean",
        "clip_ratio/region_mean": "clip_fraction",
        "frac_reward_zero_std": "zero_variance_group_frac",
        "loss": "loss",
        "learning_rate": "lr",
        "grad_norm": "grad_norm",
        "completions/mean_length": "completion_len_mean",
        "completions/max_length": "completion_len_max",
        "completions/clipped_ratio": "truncation_rate",
        "repetition": "repetition_rate",
        "step_time": "step_time_s",
    }
    manifest = RunManifest(run_id="run", created_at="2026-01-01T00:00:00", algorithm="grpo")
    records: list[Any] = []
    seen: set[tuple[str, str]] = set()
    for index, row in enumerate(rows):
        values = {names[key]: value for key, value in row["values"].items() if key in names}
        parts = {key[8:-5]: value for key, value in row["values"].items() if key.startswith("rewards/") and key.endswith("/mean")}
        records.append(StepRecord(step=row["step"], reward_components=parts, **values))
        if len(records) < 30:
            continue
        for finding in diagnose_view(RunView(manifest, records)):
            if (finding.signature_id, finding.severity) not in seen:
                seen.add((finding.signature_id, finding.severity))
                yield index, finding.signature_id, {"warn": "warning"}.get(finding.severity, finding.severity)


TOOLS: dict[str, Callable[[Rows], Alarms]] = {
    "rlwatch": rlwatch,
    "rldoctor": rldoctor,
    "rldoctor_early": rldoctor_early,
    "rlprobe": rlprobe,
}


def main(tool: str) -> None:
    logging.disable(logging.CRITICAL)
    for line in sys.stdin:
        run = json.loads(line)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            alarms = [alarm for alarm in TOOLS[tool](run["rows"]) if alarm[2] in ("warning", "critical")]
        print(json.dumps({"case": run["case"], "alarms": alarms}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
