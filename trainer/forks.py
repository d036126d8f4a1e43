"""Healthy beginnings by setting and seed, each run once and forked into all that part from it.

The fork is exact: everything random follows from (seed, step), so a fault and its control share every row up to the step at which they part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trainer.config import Config
from trainer.plan import Spec
from trainer.presets import Preset
from trainer.training import Training
from trainer.verifier import Verifier
from trainer.warmstart import warm_policy

Rows = list[dict[str, float]]


@dataclass(slots=True)
class Beginning:
    """A run without its fault: ``states`` are kept at the steps ``forks`` at which others will part from it."""

    training: Training
    forks: list[int]
    rows: Rows = field(default_factory=list)
    states: dict[int, dict[str, Any]] = field(default_factory=dict)

    def reach(self, step: int) -> None:
        """Go on until ``step`` is the next one."""
        while True:
            if self.training.step in self.forks and self.training.step not in self.states:
                self.states[self.training.step] = self.training.state()
            if self.training.step >= step:
                return
            self.rows.append(self.training.advance().values)


class Beginnings:
    """The beginnings of ``specs``, each run once, and no longer kept than somebody needs it."""

    def __init__(self, verifier: Verifier, specs: Sequence[Spec]) -> None:
        self.verifier = verifier
        self.known: dict[str, Beginning] = {}
        self.forks: dict[str, list[int]] = {}
        for spec in specs:
            preset = spec.load()
            self.forks.setdefault(_key(preset.config), []).append(parting(spec, preset))

    def fork(self, spec: Spec, preset: Preset) -> tuple[Training, Rows]:
        """A training of ``spec`` that stands where it parts from its beginning, with the rows before it."""
        key, step = _key(preset.config), parting(spec, preset)
        if key not in self.known:
            self.known[key] = Beginning(self._training(replace(preset, fault=None)), self.forks[key])
        beginning = self.known[key]
        beginning.reach(step)
        rows = beginning.rows[:step]
        fork = self._training(preset)
        fork.restore(beginning.states[step])
        self.forks[key].remove(step)
        if not self.forks[key]:
            self.known.pop(key).training.close()
        return fork, rows

    def _training(self, preset: Preset) -> Training:
        return Training(preset.config, warm_policy(preset.config.warm_start, self.verifier), self.verifier, preset.fault)


def _key(config: Config) -> str:
    """Runs with the same key begin alike; a ramp depends on how long it is."""
    return repr(config if config.curriculum == "ramp" else replace(config, steps=1))


def parting(spec: Spec, preset: Preset) -> int:
    """The step up to which a run is its healthy beginning: all of it, up to its fault or to where it will resume, or, with a fault that samples from
    old weights, nothing, since those need a history of their own."""
    if spec.resume is not None or (preset.fault is not None and preset.fault.patch.get("lag", 0)):
        return 0
    return preset.config.steps if preset.fault is None else preset.fault.at_step


def shared_rows(specs: Sequence[Spec]) -> dict[str, int]:
    """How many of its first rows each run has in common with one before it: the same evidence must not count twice."""
    longest: dict[str, int] = {}
    shared = {}
    for spec in specs:
        preset = spec.load()
        key, end = _key(preset.config), preset.config.steps
        own = min(preset.fault.at_step if preset.fault else end, spec.resume[0] if spec.resume else end)
        shared[spec.file] = min(own, longest.get(key, 0))
        longest[key] = max(own, longest.get(key, 0))
    return shared
