"""The main job: a real policy learns, another breaks, the alert arrives in time; and nothing is left running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

DEMO = [sys.executable, "-m", "monitor.cli", "demo"]


def children(folder: Path) -> list[str]:
    """The command lines of processes that have to do with ``folder``."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            told = (place / "cmdline").read_bytes() + (place / "environ").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in told and int(place.name) != os.getpid():
            found.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def test_one_policy_learns_and_the_other_is_reported_before_it_is_ruined() -> None:
    done = subprocess.run([*DEMO, "--check"], capture_output=True, text=True, timeout=280, check=False)
    told = json.loads(done.stdout.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    assert told["learned"] and not told["healthy_alerts"]
    early = [alarm["step"] for alarm in told["alerts"] if alarm["detector"] in told["early_alerts"]]
    assert early and max(early) < told["damage_step"]
    assert set(told["early_alerts"]) & set(told["delivered"])


def test_ctrl_c_ends_every_process(roomy_tmp: Path) -> None:
    process = subprocess.Popen(
        [*DEMO, "--data-dir", str(roomy_tmp)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    lines: list[str] = []
    arriving = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if "live data is arriving" in line:
                arriving.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert arriving.wait(120), "".join(lines)
        assert children(roomy_tmp)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, "".join(lines)
    finally:
        process.kill()
        process.wait()
        reader.join(10)
        assert process.stdout is not None
        process.stdout.close()
    deadline = time.monotonic() + 30
    while (left := children(roomy_tmp)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
