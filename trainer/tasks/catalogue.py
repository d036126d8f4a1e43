"""Every family by name, and drawing from a weighted mix of them."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from trainer.tasks import arithmetic, repair
from trainer.tasks.task import Task

FAMILIES = (*repair.FAMILIES, "sum2", "sum3")
DIFFICULTY = {**{name: level for name, (level, _) in repair.FAMILIES.items()}, "sum2": 1, "sum3": 2}


def draw(mix: Mapping[str, float], rng: Random) -> Task:
    """A random task; ``mix`` maps family names to weights above 0."""
    family = rng.choices(list(mix), weights=list(mix.values()))[0]
    return repair.draw(family, rng) if family in repair.FAMILIES else arithmetic.draw(family, rng)
