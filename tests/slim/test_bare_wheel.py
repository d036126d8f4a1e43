"""The SDK on the bare wheel: nothing installed but what the base install needs, nothing imported but the standard library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

LOADED = """
import json, sys
before = set(sys.modules)
import monitor.client
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before} - {"monitor"} - sys.stdlib_module_names)))
"""

WHOLE_LIFE = """
import monitor.client
run = monitor.client.start("slim", "run", {"lr": 1.0}, url="http://127.0.0.1:9")
run.log({"x": float("nan")})
run.log_rollouts(0, [{"turns": [("agent", "hi")]}])
run.event("note")
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment that holds the wheel of this source tree and nothing else."""
    folder = tmp_path_factory.mktemp("slim")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    for name in ("monitor", "trainer", "dashboards", "migrations"):
        shutil.copytree(REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(source)]
    subprocess.run(wheel, check=True, capture_output=True)
    venv.create(folder / "venv", with_pip=True)
    interpreter = folder / "venv" / "bin" / "python"
    (built,) = folder.glob("rlvitals-*.whl")
    subprocess.run([interpreter, "-m", "pip", "install", "--quiet", "--no-deps", str(built)], check=True, capture_output=True)
    return interpreter


def run(python: Path, program: str, folder: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VITALS_", "PYTHON"))}
    command = [str(python), *options, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=kept | variables)


def test_importing_the_sdk_loads_no_third_party_package(python: Path, tmp_path: Path) -> None:
    done = run(python, LOADED, tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def test_a_run_lives_and_ends_without_any_other_package(python: Path, tmp_path: Path) -> None:
    done = run(python, WHOLE_LIFE, tmp_path, "-W", "error", VITALS_SPOOL_DIR=str(tmp_path / "spool"), VITALS_EXIT_TIMEOUT_S="0.5")
    assert done.returncode == 0, done.stderr
    assert "'vitals spool send' sends them" in done.stderr


def test_importing_the_sdk_reads_few_modules(python: Path, tmp_path: Path) -> None:
    """Import time is proportional to the modules read; ``python -m bench.slim`` has the milliseconds."""
    program = "import sys; before = set(sys.modules); import monitor.client; print(len(set(sys.modules) - before))"
    assert int(run(python, program, tmp_path).stdout) < 90
    heavy = (
        "import sys, monitor.client; print([name for name in ('socket', 'ssl', 'subprocess', 'asyncio', 'logging', 'http') if name in sys.modules])"
    )
    assert run(python, heavy, tmp_path).stdout.strip() == "[]"


def test_offline_commands_need_no_server_package(python: Path, tmp_path: Path) -> None:
    done = run(python, "from monitor.cli import main; raise SystemExit(main(['spool', 'status', '--folder', 'nowhere']))", tmp_path)
    assert done.returncode == 0, done.stderr
