"""Times one logger's calls, inside that logger's own environment: ``log_worker.py TOOL FOLDER METRICS STEPS``. Prints seconds per call."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

WARM_UP = 100
STEP_S = 0.002

Log = Callable[[dict[str, float]], Any]


def ours(folder: str) -> tuple[Log, Callable[[], Any]]:
    import monitor.client

    run = monitor.client.start("bench", "log", spool_dir=f"{folder}/spool")
    return run.log, lambda: run.finish(timeout=0.5)


def trackio(folder: str) -> tuple[Log, Callable[[], Any]]:
    os.environ["TRACKIO_DIR"] = folder
    import trackio

    run = trackio.init(project="bench", name="log", embed=False)
    return run.log, trackio.finish


def wandb(folder: str) -> tuple[Log, Callable[[], Any]]:
    import wandb

    run = wandb.init(project="bench", name="log", dir=folder, mode="offline")
    return run.log, run.finish


def main() -> None:
    tool, folder, metrics, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    names = [f"group{i % 6}/metric_{i}" for i in range(metrics)]
    taken = []
    with contextlib.redirect_stdout(io.StringIO()):
        log, finish = {"ours": ours, "trackio": trackio, "wandb": wandb}[tool](folder)
        for step in range(WARM_UP + steps):
            values = {name: step * 0.1 + i for i, name in enumerate(names)}
            began = time.perf_counter()
            log(values)
            taken.append(time.perf_counter() - began)
            time.sleep(STEP_S)
        finish()
    print(json.dumps(taken[WARM_UP:]))


if __name__ == "__main__":
    main()
