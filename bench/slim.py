"""Milliseconds that importing the SDK adds to a program's start, next to trackio and W&B.

    python -m bench.slim

Each import runs in a fresh interpreter with compiled modules, as installed packages have them, in turns; the smallest of the times is the one that
other programs disturbed least.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.rig import REPOSITORY
from bench.sdk_log import peer_python

ROUNDS = 15


def imported(python: Path | str, module: str, compiled: str) -> float:
    """Milliseconds of one import; ``compiled`` is the folder of compiled modules."""
    program = f"import time; began = time.perf_counter(); import {module}; print((time.perf_counter() - began) * 1e3)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | {"PYTHONPYCACHEPREFIX": compiled}
    if module.startswith("monitor"):
        environment["PYTHONPATH"] = str(REPOSITORY)
    return float(subprocess.run([str(python), "-c", program], capture_output=True, text=True, check=True, env=environment).stdout.splitlines()[-1])


def main() -> None:
    modules: dict[str, Path | str] = {"monitor.client": sys.executable, "trackio": peer_python(), "wandb": peer_python()}
    times: dict[str, list[float]] = {module: [] for module in modules}
    with TemporaryDirectory(prefix="vitals-slim-") as compiled:
        for module, python in modules.items():
            imported(python, module, compiled)
        for _ in range(ROUNDS):
            for module, python in modules.items():
                times[module].append(imported(python, module, compiled))
    shown = {module: {"best_ms": round(min(found), 1), "median_ms": round(median(found), 1)} for module, found in times.items()}
    for peer in ("trackio", "wandb"):
        ours, theirs = shown["monitor.client"], shown[peer]
        line = {"bench": "slim", "ours": ours, "peer": {"name": peer, **theirs}, "ratio": round(theirs["best_ms"] / ours["best_ms"], 1)}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
