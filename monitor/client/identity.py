"""Which run a process continues: the spool remembers, by project and name, the last run and how it ended."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from monitor.client.checks import SetupError
from monitor.client.spool import is_held

RESUME = ("auto", "never")


def run_id(root: Path, project: str, name: str, resume: str) -> str:
    """The id of the run to open.

    ``auto`` continues the last run of that project and name unless it finished or still lives; ``never`` begins a new one; anything else
    is the id of the run to continue. ``VITALS_RUN`` overrides ``auto``. Raises SetupError for an id that cannot be one.
    """
    if resume == "auto" and (named := os.environ.get("VITALS_RUN")):
        resume = named
    if resume == "auto":
        last = _last(root, project, name)
        living = bool(last.get("attempt")) and is_held(root / last["attempt"])
        return last["run"] if last.get("run") and last.get("state") != "finished" and not living else new_id()
    if resume == "never":
        return new_id()
    if not isinstance(resume, str) or not (0 < len(resume) <= 64) or not resume.replace("-", "").replace("_", "").isalnum() or not resume.isascii():
        raise SetupError(f"resume must be 'auto', 'never' or the id of a run (letters, digits, - and _), not {resume!r}")
    return resume


def new_id() -> str:
    """128 random bits in hexadecimal."""
    return os.urandom(16).hex()


def remember(root: Path, project: str, name: str, *, run: str, attempt: str, state: str) -> None:
    """Note what the next process of the same project and name should know. A disk that refuses is no reason to stop."""
    path = _path(root, project, name)
    if state != "running" and _last(root, project, name).get("attempt") != attempt:
        return
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        temporary.write_text(json.dumps({"project": project, "name": name, "run": run, "attempt": attempt, "state": state}))
        temporary.replace(path)


def _path(root: Path, project: str, name: str) -> Path:
    from hashlib import sha256

    return root / "names" / f"{sha256(json.dumps([project, name]).encode()).hexdigest()[:32]}.json"


def _last(root: Path, project: str, name: str) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(_path(root, project, name).read_text())
        if isinstance(found, dict):
            return {key: str(value) for key, value in found.items()}
    return {}
