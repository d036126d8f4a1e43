"""A fault: settings that change at a step, what should go wrong then, and the control that stays well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer.config import Config, changed


@dataclass(frozen=True, slots=True)
class Fault:
    """``patch`` holds the settings from step ``at_step`` on, for ``for_steps`` steps (None: to the end).

    ``announced`` is true for changes that a user would declare (a curriculum, a resume), false for faults. ``symptom`` is the metric that
    should show it first; ``damage`` the rule for what it costs (see ``trainer.damage``); ``control`` names the preset that differs only in the
    cause and stays well.
    """

    at_step: int
    patch: Mapping[str, Any] = field(default_factory=dict)
    for_steps: int | None = None
    announced: bool = False
    symptom: str | None = None
    damage: Mapping[str, Any] = field(default_factory=dict)
    control: str | None = None

    def live(self, step: int) -> bool:
        return step >= self.at_step and (self.for_steps is None or step < self.at_step + self.for_steps)


def at(config: Config, fault: Fault | None, step: int) -> Config:
    """The settings in force at ``step``."""
    return changed(config, fault.patch) if fault is not None and fault.live(step) else config
