"""Which rollouts of a step are sent for reading: the best, the worst and a random one, decoded with turns, rewards and advantage."""

from __future__ import annotations

from random import Random

from monitor.wire import Rollout, Turn
from trainer.batch import Batch


def decoded(step: int, batch: Batch) -> list[Rollout]:
    """The best, the worst and a random rollout of ``batch``; fewer when they are the same."""
    total = batch.total.tolist()
    order = sorted(range(len(total)), key=total.__getitem__)
    picks: dict[int, str] = {}
    for index, pick in ((order[-1], "best"), (order[0], "worst"), (Random(step).randrange(len(total)), "random")):
        picks.setdefault(index, pick)
    lengths = batch.mask.sum(1).clamp(min=1)
    advantage = (batch.advantages.sum(1) / lengths).tolist()
    return [
        Rollout(
            step,
            ordinal,
            pick,
            [Turn(role, text) for role, text in batch.episodes[i].turns],
            {**{name: column[i] for name, column in batch.components.items()}, "audit": batch.verdicts[i].audit},
            advantage[i],
            batch.episodes[i].task.key,
            batch.episodes[i].stopped != "submit",
        )
        for ordinal, (i, pick) in enumerate(picks.items())
    ]
