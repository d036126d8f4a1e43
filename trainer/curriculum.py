"""Which tasks are drawn when: a fixed mix, or from easy to hard over the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trainer.tasks.catalogue import DIFFICULTY

if TYPE_CHECKING:
    from trainer.config import Config

FORMS = ("none", "ramp")


def mix_at(config: Config, step: int) -> Mapping[str, float]:
    """The mix in force at ``step``. ``ramp``: the easiest families from the start, those d levels harder from d thirds of the run on,
    their weight growing linearly to its own within another third."""
    if config.curriculum == "none":
        return config.mix
    done = step / config.steps
    easiest = min(DIFFICULTY[family] for family in config.mix)
    ramped = {}
    for family, weight in config.mix.items():
        level = DIFFICULTY[family] - easiest
        ramped[family] = weight * (1.0 if level == 0 else min(1.0, 3 * done - level))
    return {family: weight for family, weight in ramped.items() if weight > 0}
