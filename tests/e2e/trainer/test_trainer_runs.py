"""Runs of the command as a person starts them: resumed after SIGKILL, sampled by an actor process, ended by a signal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
SMALL = ["sft_steps=4", "prompts=2", "samples=4", "max_length=60"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    cache = tmp_path_factory.mktemp("cache")
    return os.environ | {"PYTHONPATH": str(ROOT), "VITALS_CACHE": str(cache)}


def command(*words: str, settings: list[str] | None = None) -> list[str]:
    changes = [word for setting in SMALL + (settings or []) for word in ("--set", setting)]
    return [sys.executable, "-m", "trainer", "--quiet", *changes, *words]


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


@pytest.fixture(scope="module")
def unbroken(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """A run that nobody disturbed: stale sampling and a fault on the way, so that all of the state matters."""
    path = tmp_path_factory.mktemp("unbroken") / "rows.jsonl"
    subprocess.run(command("--preset", "stale-async-clipped", "--steps", "24", "--jsonl", str(path)), env=environment, check=True, timeout=200)
    return rows(path)


def test_resume_after_sigkill_continues_the_same_stream(environment: dict[str, str], unbroken: list[dict[str, Any]], tmp_path: Path) -> None:
    path, state = tmp_path / "rows.jsonl", tmp_path / "state.pt"
    words = command("--preset", "stale-async-clipped", "--steps", "24", "--jsonl", str(path), "--checkpoint", str(state), "--checkpoint-every", "4")
    process = subprocess.Popen(words, env=environment)
    deadline = time.monotonic() + 120
    while not path.exists() or len(path.read_text().splitlines()) < 18:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    subprocess.run(words, env=environment, check=True, timeout=200)
    again = rows(path)
    assert [row["step"] for row in again] == list(range(24))
    for row, expected in zip(again, unbroken, strict=True):
        for metric, value in expected.items():
            if not metric.startswith("perf."):
                assert row[metric] == value, (row["step"], metric)


def test_a_checkpoint_of_other_settings_is_refused(environment: dict[str, str], tmp_path: Path) -> None:
    state = tmp_path / "state.pt"
    subprocess.run(command("--steps", "1", "--checkpoint", str(state)), env=environment, check=True, timeout=200)
    done = subprocess.run(command("--steps", "2", "--checkpoint", str(state), settings=["lr=1e-3"]), env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and "lr=0.0005" in done.stderr and "Traceback" not in done.stderr
    state.write_bytes(b"no checkpoint")
    done = subprocess.run(command("--steps", "2", "--checkpoint", str(state)), env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and "not a checkpoint" in done.stderr and "Traceback" not in done.stderr


def test_an_actor_process_samples_ahead_and_ends_with_the_run(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    words = command("--steps", "12", "--jsonl", str(path), settings=["actor=true", "correction=truncate", "max_staleness=20"])
    subprocess.run(words, env=environment, check=True, timeout=200)
    made = rows(path)
    assert [row["step"] for row in made] == list(range(12))
    assert all(row["batch.groups"] == 2 and 0 <= row["stale.mean"] <= row["stale.max"] <= 20 for row in made)
    assert max(row["stale.max"] for row in made) > 0 and max(row["mismatch.kl.k3"] for row in made) > 0


def test_ctrl_c_ends_the_run_cleanly(environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    process = subprocess.Popen(command("--steps", "5000", "--jsonl", str(path)), env=environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not path.exists() or not path.read_text():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in error
    assert [row["step"] for row in rows(path)] == list(range(len(rows(path))))
