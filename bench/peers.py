"""Other monitors on the same runs: each in an environment of its own, with its defaults, fed what our readers read under TRL's names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.scoring import Alarm, Case, Outcome
from monitor.adapters.readers import ReadError, read

PACKAGES = ("rlwatch==0.5.1", "rldoctor==0.2.0", "rlprobe==0.1.0")
TOOLS = {
    "rlwatch": "rlwatch 0.5.1",
    "rldoctor": "rl-doctor 0.2.0 as shipped",
    "rldoctor_early": "rl-doctor 0.2.0, history minimum 20, every row",
    "rlprobe": "rlprobe 0.1.0",
}
WORKER = Path(__file__).with_name("peer_worker.py")

NAMES = {
    "entropy.mean": "entropy",
    "entropy.mc": "entropy",
    "kl_ref.k3": "kl",
    "reward.total.mean": "reward",
    "reward.total.std": "reward_std",
    "group.reward_std": "reward_std",
    "group.zero_var_frac": "frac_reward_zero_std",
    "opt.loss": "loss",
    "opt.policy_loss": "loss",
    "opt.lr": "learning_rate",
    "opt.grad_norm": "grad_norm",
    "update.clip_frac": "clip_ratio/region_mean",
    "len.completion.mean": "completions/mean_length",
    "len.completion.max": "completions/max_length",
    "len.truncated_frac": "completions/clipped_ratio",
    "rep.adjacent_frac": "repetition",
    "perf.step_time_s": "step_time",
    "eval.task.mean": "eval/reward",
}


def environment() -> Path:
    """The Python of the peers' environment, made on first use below the user's cache folder."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlvitals" / "peers"
    python = base / "bin" / "python"
    if not (base / "ready").exists():
        print(f"making an environment for {', '.join(PACKAGES)} in {base}", file=sys.stderr)
        venv.create(base, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True, stderr=subprocess.DEVNULL)
        (base / "ready").touch()
    return python


def as_trl(values: Mapping[str, float], case_task: str, aux: Sequence[str]) -> dict[str, float]:
    """A row under TRL's names; numbers that are not finite stay what they are."""
    out: dict[str, float] = {}
    for name, value in values.items():
        if name in NAMES:
            out.setdefault(NAMES[name], value)
    if "reward" not in out and case_task in values:
        out["reward"] = values[case_task]
    for role, name in (("task", case_task), *((f"aux{n}", name) for n, name in enumerate(aux))):
        if name in values:
            out[f"rewards/{role}/mean"] = values[name]
    return out


def _rows(case: Case) -> list[dict[str, Any]]:
    log = read(case.path, case.task, case.aux)
    rows: list[dict[str, Any]] = [{"step": row.step, "values": as_trl(row.values, log.roles.task, log.roles.aux)} for row in log.rows]
    last = rows[0]["step"] - 1
    for row in rows:  # no peer knows resumes: steps go on counting
        last = row["step"] = max(row["step"], last + 1)
    return rows


def run(cases: Sequence[Case]) -> dict[str, list[Outcome]]:
    """The outcome of every case for every peer."""
    python = environment()
    known: dict[str, list[dict[str, Any]]] = {}
    errors: dict[str, str] = {}
    for case in cases:
        try:
            known[case.name] = _rows(case)
        except ReadError as error:
            errors[case.name] = str(error)
    text = "".join(json.dumps({"case": name, "rows": rows}) + "\n" for name, rows in known.items())
    found: dict[str, list[Outcome]] = {}
    for tool, title in TOOLS.items():
        start = time.perf_counter()
        done = subprocess.run([python, WORKER, tool], input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{title} failed: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
            continue
        alarms = {answer["case"]: answer["alarms"] for answer in map(json.loads, done.stdout.splitlines())}
        found[title] = [
            Outcome(case, len(known.get(case.name, ())), [Alarm(*alarm) for alarm in alarms.get(case.name, ())], error=errors.get(case.name))
            for case in cases
        ]
        print(f"{title}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    return found
