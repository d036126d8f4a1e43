"""How long ``log`` of 60 metrics blocks a training loop, next to trackio and W&B offline, and how soon a row is durable in Postgres.

    python -m bench.sdk_log                # blocking time, collector up and down; peers in an environment of their own, made on first use
    python -m bench.sdk_log --latency      # also: log() to commit in Postgres, 20 runs at 20 steps a second

Every tool runs in a process of its own, in turns (``--rounds``), in the same loop: 60 changing floats, then 2 ms of sleep as the training step
that lets background threads run. Prints JSON lines with ours, peer and ratio; times are microseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from bench.rig import REPOSITORY, Rig, rig

PEERS = {"trackio": "trackio==0.43.*", "wandb": "wandb==0.31.*"}
PEER_TITLES = {"trackio": "trackio", "wandb": "W&B offline"}
METRICS = 60
STEPS = 1500
WORKER = Path(__file__).with_name("log_worker.py")
LATENCY_PROCESSES, RUNS_PER_PROCESS, STEPS_PER_SECOND = 4, 5, 20

LOGGERS = """
import sys, threading, time
import monitor.client
number, count, seconds, rate = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
def log(name):
    with monitor.client.start("latency", name) as run:
        due = time.monotonic()
        for step in range(int(seconds * rate)):
            run.log({f"metric.{i}": step * 1.1 + i for i in range(60)}, step=step)
            due += 1 / rate
            time.sleep(max(0.0, due - time.monotonic()))
threads = [threading.Thread(target=log, args=(f"run-{number}-{i}",)) for i in range(count)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def peer_python() -> Path:
    """The Python of the peers' environment below the user's cache folder, made on first use."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlvitals" / "log-peers"
    python = base / "bin" / "python"
    if not (base / "ready").exists():
        print(f"making an environment for {', '.join(PEERS.values())} in {base}", file=sys.stderr)
        venv.create(base, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PEERS.values()], check=True, stderr=subprocess.DEVNULL)
        (base / "ready").touch()
    return python


def measured(tool: str, python: Path | str, variables: Mapping[str, str]) -> list[float]:
    """Seconds that each call of ``tool`` blocked, warm-up excluded."""
    with tempfile.TemporaryDirectory(prefix="vitals-log-") as folder:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("VITALS_", "WANDB_", "TRACKIO_"))}
        command = [str(python), str(WORKER), tool, folder, str(METRICS), str(STEPS)]
        done = subprocess.run(command, env=kept | dict(variables), capture_output=True, text=True, cwd=folder, check=False)
        if done.returncode:
            raise RuntimeError(f"{tool} failed: {done.stderr[-2000:]}")
        return [float(value) for value in json.loads(done.stdout.splitlines()[-1])]


def summary(samples: list[float]) -> dict[str, float]:
    ordered = sorted(samples)
    return {"median_us": round(median(ordered) * 1e6, 1), "p99_us": round(ordered[int(len(ordered) * 0.99)] * 1e6, 1)}


def blocking(rounds: int) -> Iterator[dict[str, Any]]:
    """Ours with the collector up and down against each peer."""
    tools: dict[str, tuple[str, Path | str, dict[str, str]]] = {}
    with rig() as stage:
        tools["ours, collector up"] = ("ours", sys.executable, {"PYTHONPATH": str(REPOSITORY), "VITALS_URL": stage.url})
        tools["ours, collector down"] = ("ours", sys.executable, {"PYTHONPATH": str(REPOSITORY), "VITALS_URL": "http://127.0.0.1:9"})
        for peer in PEERS:
            tools[peer] = (peer, peer_python(), {"WANDB_MODE": "offline", "WANDB_SILENT": "true"})
        samples: dict[str, list[float]] = {name: [] for name in tools}
        for number in range(rounds):
            for name, (tool, python, variables) in tools.items():
                print(f"round {number + 1}/{rounds}: {name}", file=sys.stderr)
                samples[name] += measured(tool, python, variables)
    for ours in ("ours, collector up", "ours, collector down"):
        for peer in PEERS:
            mine, theirs = summary(samples[ours]), summary(samples[peer])
            ratio = round(theirs["median_us"] / mine["median_us"], 1)
            yield {"bench": "sdk_log", "case": ours.partition(", ")[2], "ours": mine, "peer": {"name": PEER_TITLES[peer], **theirs}, "ratio": ratio}


def latency(seconds: float) -> dict[str, Any]:
    """log() to commit, as Postgres recorded the commits."""
    with rig(collector=False) as stage:
        stage.server.stop()
        stage.start_postgres(track_commit_timestamp="on")
        stage.start_collector()
        for number in range(LATENCY_PROCESSES):
            arguments = [str(number), str(RUNS_PER_PROCESS), str(seconds), str(STEPS_PER_SECOND)]
            stage.start(f"logger-{number}", ["-c", LOGGERS, *arguments], VITALS_SPOOL_DIR=str(stage.folder / "spool"))
        for number in range(LATENCY_PROCESSES):
            stage.children[f"logger-{number}"].wait(seconds + 60)
        return {"bench": "sdk_log", "case": "log to commit", **_delays(stage, int(seconds * STEPS_PER_SECOND))}


def _delays(stage: Rig, steps: int) -> dict[str, Any]:
    query = "SELECT extract(epoch FROM pg_xact_commit_timestamp(xmin) - at) FROM point"
    delays = sorted(float(row[0]) for row in stage.query(query))
    expected = LATENCY_PROCESSES * RUNS_PER_PROCESS * steps
    ours = {"median_s": round(median(delays), 3), "p99_s": round(delays[int(len(delays) * 0.99)], 3), "max_s": round(delays[-1], 3)}
    return {"rows": len(delays), "expected": expected, "ours": ours}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sdk_log", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latency", action="store_true", help="also measure log() to commit")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long the latency is measured")
    arguments = parser.parse_args()
    for line in blocking(arguments.rounds) if arguments.rounds else ():
        print(json.dumps(line), flush=True)
    if arguments.latency:
        print(json.dumps(latency(arguments.seconds)), flush=True)


if __name__ == "__main__":
    main()
