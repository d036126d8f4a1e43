"""What a run was set to: what it says of itself, its configuration with the changes it announced, its environment; and in what runs differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashboards.words import flatten
from monitor.store.queries import EventView, RunView

OF_THE_PROCESS = ("pid", "host", "command", "folder")
"""Parts of an environment that differ between any two runs and explain nothing."""

CHANGES = 2
"""Announced changes of one setting that are told; of more the newest."""

Settings = dict[str, str]
"""Dotted name -> printed value; a setting that a run has not is absent."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting in which runs differ: its value in each of them, None where it is not set."""

    name: str
    values: tuple[str | None, ...]


def config_of(run: RunView) -> Settings:
    """The configuration as it was logged."""
    return dict(flatten(run.config))


def settings_of(run: RunView, regimes: Sequence[EventView] = ()) -> Settings:
    """Everything that a run was set to; ``regimes`` are the changes that it announced while it ran."""
    config = config_of(run)
    for name, told in _changes(regimes).items():
        config[name] = ", ".join([config.get(name, "not set"), *told])
    said = {"algorithm": run.algorithm or "", "signal": run.signal, "task reward": run.task_reward or ""}
    said |= {"auxiliary rewards": ", ".join(run.aux_rewards), "tags": ", ".join(run.tags)}
    own = {name: value for name, value in said.items() if value and config.get(name) != value}
    stable = {name: value for name, value in run.environment.items() if name not in OF_THE_PROCESS}
    return config | own | {f"environment.{name}": value for name, value in flatten(stable)}


def differences(runs: Sequence[Settings]) -> list[Difference]:
    """The settings in which they differ, those of the environment last."""
    names = sorted({name for each in runs for name in each}, key=lambda name: (name.startswith("environment."), name))
    return [Difference(name, values) for name in names if len(set(values := tuple(each.get(name) for each in runs))) > 1]


def _changes(regimes: Sequence[EventView]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for event in regimes:
        when = "later" if event.step is None else f"from step {event.step:,}"
        for name, value in flatten(event.detail):
            found.setdefault(name, []).append(f"{value} {when}")
    return {name: told if len(told) <= CHANGES else ["…", *told[-CHANGES:]] for name, told in found.items()}
