"""Which tasks are drawn when: a fixed mix, or from easy to hard over the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trainer.tasks.catalogue import DIFFICULTY

if TYPE_CHECKING:
    from trainer.config import Config

FORMS = ("none", "ramp")


def mix_at(config: Config, step: int) -> Mapping[str, float]:
    """The mix in force at ``step``. ``ramp``: difficulty d joins at a share (d - 1) / 3 of the run, its weight growing linearly to its own."""
    if config.curriculum == "none":
        return config.mix
    done = step / config.steps
    ramped = {family: weight * min(1.0, 3 * (done - (DIFFICULTY[family] - 1) / 3) + 1) for family, weight in config.mix.items()}
    easiest = min(config.mix, key=DIFFICULTY.__getitem__)
    return {family: weight for family, weight in ramped.items() if weight > 0} or {easiest: 1.0}
