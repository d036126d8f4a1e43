"""Random SIGKILLs of trainer, collector, worker and Postgres while a run logs; then: does Postgres hold what was logged?

    python -m bench.chaos --kills 100 --seed 1

The trainer writes down, outside the SDK, each step for which ``log`` has returned. Rows may be missing only among those that an attempt logged
in its last second before it was killed. Prints one JSON line; exit code 1 when a row is missing, doubled, changed or out of order.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.rig import Rig, Stored, rig

WINDOW_S = 1.0
RATE = 50.0
TARGETS = ("trainer", "trainer", "collector", "worker", "postgres")

TRAINER = """
import os, sys, time
import monitor.client
ledger, first = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND), int(sys.argv[2])
run = monitor.client.start("chaos", "run")
step = first
while not os.path.exists(sys.argv[3]):
    run.log({"x": step * 1.5, "constant": 1.0}, step=step)
    os.write(ledger, f"{run.attempt} {step} {time.time():.3f}\\n".encode())
    step += 1
    time.sleep(1 / float(sys.argv[4]))
run.finish(timeout=60)
"""


@dataclass(slots=True)
class Verdict:
    """What came of it. ``lost`` counts rows beyond the stated window, ``in_window`` those within it."""

    bench: str = "chaos"
    seed: int = 0
    kills: dict[str, int] = field(default_factory=dict)
    attempts: int = 0
    logged: int = 0
    stored: int = 0
    in_window: int = 0
    lost: int = 0
    doubled: int = 0
    changed: int = 0
    unordered: int = 0
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        return not (self.lost or self.doubled or self.changed or self.unordered)


def torment(kills: int, seed: int, *, pause: tuple[float, float] = (0.3, 1.5)) -> Verdict:
    """Run the experiment."""
    chance = random.Random(seed)
    began = time.monotonic()
    verdict = Verdict(seed=seed)
    with rig(worker=True) as stage:
        ledger, stop = stage.folder / "ledger", stage.folder / "stop"
        deaths: dict[str, float] = {}
        _start_trainer(stage, ledger, stop)
        for number in range(kills):
            time.sleep(chance.uniform(*pause))
            target = chance.choice(TARGETS)
            verdict.kills[target] = verdict.kills.get(target, 0) + 1
            stage.kill(target)
            if target == "trainer" and ledger.exists() and (lines := _read(ledger)):
                deaths.setdefault(lines[-1][0], time.time())
            time.sleep(chance.uniform(0, 0.5))
            _revive(stage, target, ledger, stop)
            print(f"\r{number + 1}/{kills} kills", end="", file=sys.stderr, flush=True)
        _quiesce(stage, stop)
        _compare(verdict, _read(ledger), stage.stored(), deaths)
    verdict.seconds = round(time.monotonic() - began, 1)
    return verdict


def _start_trainer(stage: Rig, ledger: Path, stop: Path) -> None:
    lines = _read(ledger) if ledger.exists() else []
    first = lines[-1][1] + 1 if lines else 0
    spool = str(stage.folder / "spool")
    stage.start("trainer", ["-c", TRAINER, str(ledger), str(first), str(stop), str(RATE)], VITALS_SPOOL_DIR=spool)


def _revive(stage: Rig, target: str, ledger: Path, stop: Path) -> None:
    if target == "postgres":
        stage.start_postgres()
    elif target == "trainer":
        _start_trainer(stage, ledger, stop)
    elif target == "collector":
        stage.start_collector(wait=False)
    for name in ("worker", "collector"):
        if stage.children[name].poll() is not None:
            stage.start_worker() if name == "worker" else stage.start_collector(wait=False)


def _quiesce(stage: Rig, stop: Path) -> None:
    """Let everything that waits arrive."""
    stage.until(stage.answers, "the collector to answer at the end")
    stop.touch()
    stage.children["trainer"].wait(90)
    stage.start("send", ["-m", "monitor.cli", "spool", "send", "--folder", str(stage.folder / "spool")])
    stage.children["send"].wait(90)


def _read(ledger: Path) -> list[tuple[str, int, float]]:
    rows = (line.split() for line in ledger.read_text().splitlines())
    return [(attempt, int(step), float(at)) for attempt, step, at in rows]


def _compare(verdict: Verdict, logged: list[tuple[str, int, float]], stored: list[Stored], deaths: dict[str, float]) -> None:
    verdict.attempts = len({attempt for attempt, _, _ in logged})
    verdict.logged, verdict.stored = len(logged), len(stored)
    kept: dict[tuple[str, int], int] = {}
    latest: dict[str, int] = {}
    for row in stored:
        kept[row.attempt, row.step] = kept.get((row.attempt, row.step), 0) + 1
        verdict.changed += row.values != {"x": row.step * 1.5, "constant": 1.0}
        verdict.unordered += row.step < latest.get(row.attempt, -1)
        latest[row.attempt] = row.step
    verdict.doubled = sum(count - 1 for count in kept.values())
    for attempt, step, at in logged:
        if (attempt, step) not in kept:
            if at >= deaths.get(attempt, float("inf")) - WINDOW_S:
                verdict.in_window += 1
            else:
                verdict.lost += 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(2), "big"))
    arguments = parser.parse_args()
    verdict = torment(arguments.kills, arguments.seed)
    print(file=sys.stderr)
    print(json.dumps(asdict(verdict) | {"good": verdict.good}))
    return 0 if verdict.good else 1


if __name__ == "__main__":
    raise SystemExit(main())
