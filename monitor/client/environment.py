"""What a run ran on: revision, packages, hardware, command line and seed. Collected once, in the background."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_SECRET = re.compile(r"token|secret|passw|api.?key|credential", re.IGNORECASE)


def environment(config: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON-able description of the process. Every part that cannot be found out is left out."""
    parts = _of_process() | {"seed": _seed(config)}
    return {name: part for name, part in parts.items() if part not in (None, {}, [])}


_one_at_a_time = threading.Lock()
_found: dict[int, dict[str, Any]] = {}


def _of_process() -> dict[str, Any]:
    """What all runs of a process share; found out once, since it takes a good part of a second."""
    # a fork may have copied the lock while it was held
    held = _one_at_a_time.acquire(timeout=10)
    try:
        if os.getpid() not in _found:
            _found[os.getpid()] = {
                "host": platform.node(),
                "pid": os.getpid(),
                "folder": str(Path.cwd()),
                "command": _without_secrets(sys.argv),
                "python": platform.python_version(),
                "platform": platform.platform(),
                "packages": _packages(),
                "hardware": _hardware(),
                "git": _git(),
            }
        return _found[os.getpid()]
    finally:
        if held:
            _one_at_a_time.release()


def _packages() -> dict[str, str]:
    from importlib.metadata import distributions

    found: dict[str, str] = {}
    for distribution in distributions():
        name = distribution.metadata["Name"]
        if name and name not in found:
            found[name] = distribution.version
    return dict(sorted(found.items()))


def _hardware() -> dict[str, Any]:
    parts: dict[str, Any] = {"machine": platform.machine(), "cpus": os.cpu_count()}
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        parts["memory_gib"] = round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)
    gpus = _output("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
    if gpus:
        parts["gpus"] = gpus.splitlines()
    return parts


def _git() -> dict[str, Any] | None:
    revision = _output("git", "rev-parse", "HEAD")
    if not revision:
        return None
    changed = _output("git", "status", "--porcelain", "--untracked-files=no")
    found = {"revision": revision, "branch": _output("git", "rev-parse", "--abbrev-ref", "HEAD")}
    return found | ({} if changed is None else {"dirty": bool(changed)})


def _output(*command: str) -> str | None:
    """Standard output of ``command``, or None when it is missing, fails or takes longer than five seconds."""
    quiet = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False, stdin=subprocess.DEVNULL, env=os.environ | quiet)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _seed(config: Mapping[str, Any]) -> Any:
    if "seed" in config:
        return config["seed"]
    return next((found for part in config.values() if isinstance(part, Mapping) and (found := _seed(part)) is not None), None)


def _without_secrets(command: list[str]) -> list[str]:
    kept: list[str] = []
    for word in command:
        if kept and kept[-1].startswith("-") and "=" not in kept[-1] and _SECRET.search(kept[-1]):
            word = "***"
        elif "=" in word and _SECRET.search(word.split("=", 1)[0]):
            word = word.split("=", 1)[0] + "=***"
        kept.append(word[:500])
    return kept
