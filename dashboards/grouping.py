"""Runs that share the value of a setting, a tag or the algorithm: drawn as one line, so that seeds become a mean with a band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.settings_of import config_of, differences
from monitor.store.queries import RunView

TAG, ALGORITHM = "tag", "algorithm"
UNSET = {TAG: "no tag", ALGORITHM: "not named"}


@dataclass(frozen=True, slots=True)
class Line:
    """What is drawn as one: a run, or the runs of a group."""

    name: str
    runs: tuple[str, ...]


def keys(runs: Sequence[RunView]) -> list[str]:
    """What the runs can be grouped by: the settings in which they differ, then tags and the algorithm where those differ."""
    found = [each.name for each in differences([config_of(run) for run in runs])]
    more = [key for key in (TAG, ALGORITHM) if len({tuple(_values(run, key)) for run in runs}) > 1 and key not in found]
    return found + more


def known(runs: Sequence[RunView], key: str) -> bool:
    """Whether any of the runs has such a setting."""
    return key in (TAG, ALGORITHM) or any(key in config_of(run) for run in runs)


def lines(runs: Sequence[RunView], key: str = "") -> list[Line]:
    """One line per run; with a ``key`` one per value of it, in the order of the runs. A run with several tags is in the group of each."""
    if not key:
        return [Line(run.shown, (run.uid,)) for run in runs]
    members: dict[str, list[str]] = {}
    for run in runs:
        for value in _values(run, key):
            members.setdefault(value, []).append(run.uid)
    return [Line(f"{key} {value} (n = {len(uids)})", tuple(uids)) for value, uids in members.items()]


def _values(run: RunView, key: str) -> list[str]:
    config = config_of(run)
    if key in config:
        return [config[key]]
    if key == TAG:
        return list(run.tags) or [UNSET[TAG]]
    if key == ALGORITHM and run.algorithm:
        return [run.algorithm]
    return [UNSET.get(key, "not set")]
