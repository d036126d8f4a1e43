"""A batch ready to train on: trajectories of whole groups, their rewards by component, and advantages per token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from trainer import advantages as adv
from trainer import rewards
from trainer.config import Config
from trainer.environment import Episode
from trainer.rollout import Trajectories
from trainer.verifier import Verdict
from trainer.world import World


@dataclass(slots=True)
class Batch:
    """Tensors are aligned to the predicted token: column t stands for ``ids[:, t + 1]``.

    ``ids`` [N, T + 1]; ``mask``, ``behaviour`` (log-probability under the sampler) and ``advantages`` [N, T]; ``components`` holds the weighted
    rewards [N] by name, the task's under ``task``; ``total`` is their sum. ``group`` numbers the prompts.
    """

    ids: Tensor
    mask: Tensor
    behaviour: Tensor
    turn: Tensor
    version: Tensor
    episodes: list[Episode]
    verdicts: list[Verdict]
    components: dict[str, list[float]]
    group: list[int]
    total: Tensor
    advantages: Tensor

    def rows(self, index: Sequence[int]) -> Batch:
        """The batch of the given rows."""
        at = torch.tensor(list(index), device=self.ids.device, dtype=torch.long)
        return Batch(
            self.ids[at],
            self.mask[at],
            self.behaviour[at],
            self.turn[at],
            self.version[at],
            [self.episodes[i] for i in index],
            [self.verdicts[i] for i in index],
            {name: [column[i] for i in index] for name, column in self.components.items()},
            [self.group[i] for i in index],
            self.total[at],
            self.advantages[at],
        )


def scored(config: Config, trajectories: Trajectories, verdicts: list[Verdict], group: list[int]) -> Batch:
    """Rewards by component for finished episodes; advantages are still zero."""
    mask = trajectories.mask[:, 1:]
    lengths = [int(n) for n in mask.sum(1).tolist()]
    components = {"task": [v.task for v in verdicts]} | rewards.auxiliary(config.aux, trajectories.episodes, verdicts, lengths)
    if config.rule.overlong:
        margin = config.max_length // 5
        components["overlong"] = [rewards.overlong(len(ids), config.max_length, margin) for ids in _real(trajectories)]
    total = torch.tensor([sum(column) for column in zip(*components.values(), strict=True)], device=mask.device)
    return Batch(
        trajectories.ids,
        mask,
        trajectories.logp[:, 1:],
        trajectories.turn[:, 1:],
        trajectories.version,
        trajectories.episodes,
        verdicts,
        components,
        group,
        total,
        torch.zeros_like(trajectories.logp[:, 1:]),
    )


def _real(trajectories: Trajectories) -> list[list[int]]:
    return [[i for i in row if i] for row in trajectories.ids.tolist()]


def at_end(mask: Tensor, reward: Tensor) -> Tensor:
    """``reward`` [N] on the last trained token of each row: [N, T]."""
    place = torch.arange(mask.shape[1], device=mask.device)
    last = torch.where(mask, place, -1).amax(1, keepdim=True)
    return torch.where(place == last, reward[:, None].to(torch.float32), 0.0)


def with_advantages(
    config: Config, batch: Batch, token_rewards: Tensor | None = None, values: Tensor | None = None, world: World | None = None
) -> tuple[Batch, Tensor | None]:
    """``batch`` with the algorithm's advantages, and the value targets [N, T] where a value is learned.

    Baselines over the batch are taken over all ranks of ``world``. ``token_rewards`` [N, T] are rewards inside the episode (a step signal,
    a KL penalty); the total reward stands at the last token.
    """
    kind, mask = config.rule.advantage, batch.mask
    inside = torch.zeros_like(batch.behaviour) if token_rewards is None else token_rewards
    returns, ranks = None, world or World()
    if kind == "gae":
        assert values is not None
        raw, returns = adv.gae(inside + at_end(mask, batch.total), values, mask, config.gamma, config.lam)
        per_token = adv.whitened(raw, mask, world)
    elif kind == "to_go":
        goes = adv.to_go(inside + at_end(mask, batch.total), mask, config.gamma)
        per_token = torch.where(mask, goes - ranks.mean(goes, mask), 0.0)
    else:
        whole = batch.total + torch.where(mask, inside, 0.0).sum(1)
        row = {
            "one": lambda: torch.ones_like(whole),
            "success": lambda: torch.tensor([v.task for v in batch.verdicts], device=mask.device),
            "none": lambda: whole,
            "batch": lambda: whole - ranks.mean(whole, torch.ones_like(whole, dtype=torch.bool)),
            "grpo": lambda: adv.group_normalised(whole, config.samples),
            "centred": lambda: adv.group_centred(whole, config.samples),
            "rloo": lambda: adv.leave_one_out(whole, config.samples),
        }[kind]()
        per_token = torch.where(mask, row[:, None], 0.0)
    batch.advantages = per_token
    return batch, returns


def joined(a: Batch, b: Batch) -> Batch:
    """Two batches as one, padded to the longer."""
    width = max(a.ids.shape[1], b.ids.shape[1])

    def stack(x: Tensor, y: Tensor, columns: int) -> Tensor:
        return torch.cat([F.pad(t, (0, columns - t.shape[1])) for t in (x, y)])

    return Batch(
        stack(a.ids, b.ids, width),
        stack(a.mask, b.mask, width - 1),
        stack(a.behaviour, b.behaviour, width - 1),
        stack(a.turn, b.turn, width - 1),
        torch.cat([a.version, b.version]),
        a.episodes + b.episodes,
        a.verdicts + b.verdicts,
        {name: a.components[name] + b.components[name] for name in a.components},
        a.group + b.group,
        torch.cat([a.total, b.total]),
        stack(a.advantages, b.advantages, width - 1),
    )
