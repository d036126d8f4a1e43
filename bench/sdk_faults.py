"""Step time of a training loop while its collector is down or misbehaves, or the disk is full: with logging over without.

    python -m bench.sdk_faults [--rounds 7]

A step is a fixed piece of arithmetic (about 20 ms) and one ``log`` of 60 metrics. Loops with and without logging run in processes of their own, in
turns. ``ratio`` is the median over the rounds of the ratio of their median step times, ``cpu_ratio`` that of the processor time of their whole
processes, background threads included; only the second means much while other programs use the machine. After each fault the collector
recovers, the loop ends, and every row must have arrived or be counted as shed. Prints one JSON line per fault.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import median
from typing import Any

from bench.rig import REPOSITORY

STEPS = 100
FAULTS = ("none", "down", "hangs", "500", "429", "half a body", "garbage", "full disk")

LOOP = """
import json, os, resource, sys, time
import numpy as np
import monitor.client
logging, steps, full = sys.argv[1] == "on", int(sys.argv[2]), sys.argv[3] == "full"
run = monitor.client.start("faults", "run") if logging else monitor.client.Run.disabled()
a = np.random.default_rng(0).normal(size=(300, 300))
time.sleep(1.5)  # what a process does once, such as listing its packages, is not the steps' cost
if full:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
taken, cpu = [], time.process_time()
for step in range(steps):
    began = time.perf_counter()
    for _ in range(16): b = a @ a
    run.log({f"metric.{i}": step * 1.1 + i for i in range(60)}, step=step)
    taken.append(time.perf_counter() - began)
if full:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(json.dumps([taken, time.process_time() - cpu]), flush=True)
sys.stdin.readline()
run.finish(timeout=60)
print(json.dumps([run.stats.logged, run.stats.sent, run.stats.dropped]))
"""


class Moody:
    """A collector that misbehaves until it is told to be well; counts the steps it acknowledged."""

    def __init__(self) -> None:
        self.mood = "none"
        self.steps: set[int] = set()
        moody = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                usual = b'{"url": "http://x"}' if self.path.endswith("/runs") else b'{"accepted": 0, "duplicate": 0, "refused": [], "requests": []}'
                status, body, sent = 200, usual, len(usual)
                if moody.mood in ("500", "429"):
                    status = int(moody.mood)
                elif moody.mood == "garbage":
                    body = os.urandom(len(usual))
                elif moody.mood == "half a body":
                    sent = len(usual) // 2
                elif moody.mood == "hangs":
                    time.sleep(5)
                    self.close_connection = True
                    return
                else:
                    moody.steps.update(row["step"] for row in message.get("rows", ()))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[:sent])
                self.close_connection = self.close_connection or sent < len(body)

            def log_message(self, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Clients that hang up are expected."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@contextmanager
def loop(logging: bool, url: str, fault: str) -> Iterator[subprocess.Popen[str]]:
    with tempfile.TemporaryDirectory(prefix="vitals-faults-") as folder:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("VITALS_")}
        own = {"PYTHONPATH": str(REPOSITORY), "VITALS_URL": url, "VITALS_SPOOL_DIR": f"{folder}/spool", "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-c", LOOP, "on" if logging else "off", str(STEPS), "full" if fault == "full disk" else "-"]
        process = subprocess.Popen(
            command, env=kept | own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder
        )
        yield process
        process.communicate()


def one(fault: str, logging: bool) -> tuple[float, float, dict[str, int]]:
    """Median step time and processor time of one loop, and what became of its rows."""
    moody = Moody()
    moody.mood = fault
    url = "http://127.0.0.1:9" if fault == "down" else moody.url
    with loop(logging, url, fault) as process:
        assert process.stdout is not None and process.stdin is not None
        taken, cpu = json.loads(process.stdout.readline())
        moody.mood = "none"
        if fault == "down" and logging:
            process.kill()  # its address never answers: the rows stay in the spool, which tests cover
            moody.server.shutdown()
            return median(taken), cpu, {"logged": STEPS, "arrived": 0, "shed": 0, "kept": STEPS}
        process.stdin.write("\n")
        process.stdin.close()
        logged, _, shed = json.loads(process.stdout.readline())
        process.stdin = None
    moody.server.shutdown()
    moody.server.server_close()
    return median(taken), cpu, {"logged": logged, "arrived": len(moody.steps), "shed": shed, "kept": 0}


def _compared(fault: str, rounds: int) -> dict[str, Any]:
    pairs = [(one(fault, True), one(fault, False)) for _ in range(rounds)]
    rows = {name: sum(ours[2][name] for ours, _ in pairs) for name in ("logged", "arrived", "shed", "kept")}
    return {
        "bench": "sdk_faults",
        "fault": fault,
        "ours": {"step_ms": round(median(ours[0] for ours, _ in pairs) * 1e3, 3)},
        "peer": {"name": "no logging", "step_ms": round(median(without[0] for _, without in pairs) * 1e3, 3)},
        "ratio": round(median(ours[0] / without[0] for ours, without in pairs), 4),
        "cpu_ratio": round(median(ours[1] / without[1] for ours, without in pairs), 4),
        "rows": rows,
        "complete": rows["arrived"] + rows["shed"] + rows["kept"] == rows["logged"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sdk_faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    good = True
    for fault in FAULTS:
        line = _compared(fault, arguments.rounds)
        good &= line["complete"]
        print(json.dumps(line), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
