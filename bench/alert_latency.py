"""From ``log`` of a gradient that is not finite to the alert at a webhook, while a hundred runs log a row a second.

    python -m bench.alert_latency [--runs N] [--seconds N] [--breaks N] [--history N]

The clients are processes of their own; collector, worker and Postgres are what ``vitals up`` starts, with durable commits; the receiver listens
on loopback and verifies the signature. Each run breaks ``--breaks`` times at random moments and recovers in between. ``--history`` puts so many
finished runs into the database first. Prints two JSON lines:

- *latency*: median, 99th percentile and maximum in seconds, whole and by part: from ``log`` to the commit of the row, to the transaction that
  judged it, to the lease of the delivery, to its arrival. ``alerts`` arrived out of ``expected``.
- *cpu*: shares of one core that collector, worker and Postgres used under this load, and when nothing happens for ``IDLE_S`` afterwards; and all
  that the machine did meanwhile, clients and strangers included.

Exit code 1 when an alert is missing or the 99th percentile is above :data:`TARGET_S`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.rig import Rig, rig
from monitor.cli.receiver import Receiver

TARGET_S = 1.0
PROCESSES = 4
WARM_UP_S = 10
IDLE_S = 10.0
APART = 30
"""Rows between two breaks of a run; an alert is over after ten good rows, after twenty once it has come back."""

CLIENT = """
import json, os, random, sys, time
import monitor.client
number, count, seconds, warm, breaks, apart = map(int, sys.argv[1:7])
with open(sys.argv[7]) as file: healthy = json.load(file)
chance, runs, bad = random.Random(number), {}, {}
for i in range(count):
    name = f"run-{number}-{i}"
    runs[name] = monitor.client.start("latency", name)
    places = sorted(chance.sample(range(seconds - warm - apart * (breaks - 1)), breaks))
    bad[name] = {warm + place + apart * k for k, place in enumerate(places)}
due, ledger = time.monotonic(), os.open(sys.argv[8], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for step in range(seconds + 5):
    for name, run in runs.items():
        values = {key: value * chance.uniform(0.95, 1.05) for key, value in healthy.items()}
        if step in bad[name]: values["opt.grad_norm"] = float("nan")
        at = time.time()
        run.log(values, step=step)
        if step in bad[name]: os.write(ledger, f"{name} {step} {at:.6f}\\n".encode())
        due += 1 / count
        time.sleep(max(0.0, due - time.monotonic()))
for run in runs.values(): run.finish(timeout=60)
"""

HEALTHY = {
    "reward.task.mean": 0.5,
    "reward.aux.mean": 0.15,
    "reward.total.mean": 0.65,
    "reward.total.std": 0.55,
    "entropy.mean": 0.3,
    "iw.mean": 1.0,
    "iw.max": 1.5,
    "iw.ess": 0.99,
    "kl_ref.k3": 0.004,
    "mismatch.kl.k3": 1e-5,
    "adv.nonzero_frac": 0.9,
    "adv.abs_max": 1.8,
    "group.reward_std": 0.5,
    "group.mixed_frac": 0.9,
    "len.completion.mean": 220.0,
    "len.truncated_frac": 0.01,
    "opt.policy_loss": -0.002,
    "opt.loss": -0.002,
    "opt.grad_norm": 0.35,
    "opt.lr": 1e-6,
    "perf.step_time_s": 1.0,
}

PARTS = """
    SELECT run.name, transition.step, extract(epoch FROM pg_xact_commit_timestamp(point.xmin)), extract(epoch FROM transition.at),
        extract(epoch FROM delivery_attempt.at)
    FROM transition JOIN run ON run.id = transition.run_id JOIN point ON point.run_id = run.id AND point.seq = transition.seq
        JOIN delivery ON delivery.transition_id = transition.id
        JOIN delivery_attempt ON delivery_attempt.delivery_id = delivery.id AND delivery_attempt.attempt = 1
    WHERE transition.to_state = 'critical'"""

HISTORY = """
    WITH old AS (
        INSERT INTO run (uid, project, name, state, next_seq, finished_at, watched)
        SELECT 'old-' || n, 'history', 'old-' || n, 'finished', 101, now(), false FROM generate_series(1, :n) n RETURNING id, finished_at
    ), judged AS (INSERT INTO evaluation (run_id, seq, rows, ended_at) SELECT id, 100, 100, finished_at FROM old)
    INSERT INTO rollup_cursor (run_id, seq) SELECT id, 100 FROM old"""

Place = tuple[str, int]


def measure(runs: int, seconds: int, breaks: int, history: int) -> list[dict[str, Any]]:
    """The two lines."""
    arrived: dict[Place, float] = {}

    def take(payload: Mapping[str, Any]) -> None:
        data = payload["data"]
        if data["to"] == "critical":
            arrived.setdefault((data["run_name"], data["step"]), time.time())

    receiver = Receiver(take)
    try:
        with rig(collector=False) as stage:
            stage.server.stop()
            stage.start_postgres(track_commit_timestamp="on")
            stage.execute(HISTORY, n=history)
            stage.execute("VACUUM ANALYZE")
            stage.execute("CHECKPOINT")
            stage.start_collector()
            stage.start_worker(VITALS_WEBHOOK_URL=receiver.url, VITALS_WEBHOOK_SECRET=receiver.secret, VITALS_ALLOW_PRIVATE_WEBHOOKS="1")
            ledger, busy = _drive(stage, runs, seconds, breaks)
            stage.until(lambda: len(arrived) >= len(ledger), "the last alert")
            time.sleep(2.0)
            idle = _cpu(stage, IDLE_S)
            parts = {(name, step): tuple(map(float, times)) for name, step, *times in stage.query(PARTS)}
    finally:
        receiver.close()
    about = {"bench": "alert_latency", "case": "latency", "runs": runs, "history": history, "expected": runs * breaks}
    return [about | _delays(ledger, arrived, parts), {"bench": "alert_latency", "case": "cpu", "busy": busy, "idle": idle}]


def _drive(stage: Rig, runs: int, seconds: int, breaks: int) -> tuple[dict[Place, float], dict[str, float]]:
    """Lets the clients log; returns when each bad row was logged, and what the load cost."""
    (stage.folder / "healthy.json").write_text(json.dumps(HEALTHY))
    for number in range(PROCESSES):
        share = runs // PROCESSES + (number < runs % PROCESSES)
        arguments = [str(each) for each in (number, share, seconds, WARM_UP_S, breaks, APART)]
        paths = [str(stage.folder / "healthy.json"), str(stage.folder / "ledger")]
        stage.start(f"client-{number}", ["-c", CLIENT, *arguments, *paths], VITALS_SPOOL_DIR=str(stage.folder / "spool"))
    time.sleep(WARM_UP_S)
    busy = _cpu(stage, seconds - 2 * WARM_UP_S)
    for number in range(PROCESSES):
        stage.children[f"client-{number}"].wait(seconds + 120)
    lines = (line.split() for line in (stage.folder / "ledger").read_text().splitlines())
    return {(name, int(step)): float(at) for name, step, at in lines}, busy


def _cpu(stage: Rig, seconds: float) -> dict[str, float]:
    """Shares of one core over the next ``seconds``."""
    names = ("collector", "worker", "postgres")

    def used() -> dict[str, float]:
        everything = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        busy = sum(int(each) for place, each in enumerate(everything[1:9]) if place not in (3, 4))
        return {name: stage.cpu_seconds(name) for name in names} | {"machine": busy / os.sysconf("SC_CLK_TCK")}

    before, began = used(), time.monotonic()
    time.sleep(seconds)
    after, lasted = used(), time.monotonic() - began
    return {name: round((after[name] - before[name]) / lasted, 3) for name in after}


def _delays(ledger: Mapping[Place, float], arrived: Mapping[Place, float], parts: Mapping[Place, tuple[float, ...]]) -> dict[str, Any]:
    done = [place for place in ledger if place in arrived]
    names = ("stored", "judged", "leased", "arrived")
    times = {place: (ledger[place], *parts[place], arrived[place]) for place in done}
    split = {name: _summary([each[i + 1] - each[i] for each in times.values()]) for i, name in enumerate(names)}
    return {"alerts": len(done), "ours": _summary([each[-1] - each[0] for each in times.values()]), "parts": split}


def _summary(samples: Sequence[float]) -> dict[str, float]:
    ordered = sorted(samples)
    if not ordered:
        return {}
    return {"median_s": round(median(ordered), 3), "p99_s": round(ordered[int(len(ordered) * 0.99)], 3), "max_s": round(ordered[-1], 3)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.alert_latency", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100, metavar="N", help="runs that log at the same time (default 100)")
    parser.add_argument("--seconds", type=int, default=120, metavar="N", help="how long they log (default 120)")
    parser.add_argument("--breaks", type=int, default=2, metavar="N", help="how often each breaks (default 2)")
    parser.add_argument("--history", type=int, default=0, metavar="N", help="finished runs in the database (default none)")
    given = parser.parse_args()
    if given.seconds < WARM_UP_S * 2 + APART * given.breaks:
        parser.error(f"--seconds must be at least {WARM_UP_S * 2 + APART * given.breaks} for so many breaks")
    latency, cpu = measure(given.runs, given.seconds, given.breaks, given.history)
    good = latency["alerts"] == latency["expected"] and latency["ours"]["p99_s"] <= TARGET_S
    print(json.dumps(latency | {"target_s": TARGET_S, "good": good}))
    print(json.dumps(cpu))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
