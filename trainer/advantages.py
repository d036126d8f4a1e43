"""From rewards to advantages. Pure functions; groups are blocks of ``size`` consecutive rows that answer the same prompt."""

from __future__ import annotations

import torch
from torch import Tensor

from trainer.world import World


def group_normalised(rewards: Tensor, size: int, eps: float = 1e-6) -> Tensor:
    """GRPO: ``(R - mean) / (std + eps)`` within the group (arXiv 2402.03300, section 4.1.2), population standard deviation. [N] -> [N]."""
    groups = rewards.view(-1, size)
    centred = groups - groups.mean(1, keepdim=True)
    flat = groups.amax(1, keepdim=True) == groups.amin(1, keepdim=True)
    scaled = centred / (groups.std(1, keepdim=True, correction=0) + eps)
    return torch.where(flat, 0.0, scaled).flatten()


def group_centred(rewards: Tensor, size: int) -> Tensor:
    """Dr.GRPO: ``R - mean`` within the group, not divided by the spread (arXiv 2503.20783). [N] -> [N]."""
    groups = rewards.view(-1, size)
    flat = groups.amax(1, keepdim=True) == groups.amin(1, keepdim=True)
    return torch.where(flat, 0.0, groups - groups.mean(1, keepdim=True)).flatten()


def leave_one_out(rewards: Tensor, size: int) -> Tensor:
    """RLOO: the reward less the mean of the group's other rewards (Ahmadian et al., arXiv 2402.14740). [N] -> [N]; needs ``size`` >= 2."""
    return group_centred(rewards, size) * size / (size - 1)


def to_go(rewards: Tensor, mask: Tensor, gamma: float = 1.0) -> Tensor:
    """Reward-to-go per trained token: ``G_t = r_t + gamma G_next`` over the trained tokens. [B, T] -> [B, T], 0 outside the mask."""
    result = torch.zeros_like(rewards)
    running = torch.zeros_like(rewards[:, 0])
    for t in range(rewards.shape[1] - 1, -1, -1):
        running = torch.where(mask[:, t], rewards[:, t] + gamma * running, running)
        result[:, t] = torch.where(mask[:, t], running, 0.0)
    return result


def gae(rewards: Tensor, values: Tensor, mask: Tensor, gamma: float = 1.0, lam: float = 1.0) -> tuple[Tensor, Tensor]:
    """Generalized advantage estimation (arXiv 1506.02438, equation 16) over trained tokens only.

    ``d_t = r_t + gamma V_next - V_t`` and ``A_t = d_t + gamma lam A_next``, where *next* is the next trained token of the row, with observations
    skipped; after the last one V is 0. All [B, T]; returns (advantages, returns ``A + V``), 0 outside the mask. At lam = 1 the terms
    telescope to reward-to-go minus V, at lam = 0 only the TD error is left.
    """
    advantages = torch.zeros_like(rewards)
    running, following = torch.zeros_like(rewards[:, 0]), torch.zeros_like(rewards[:, 0])
    for t in range(rewards.shape[1] - 1, -1, -1):
        here = mask[:, t]
        error = rewards[:, t] + gamma * following - values[:, t]
        running = torch.where(here, error + gamma * lam * running, running)
        following = torch.where(here, values[:, t], following)
        advantages[:, t] = torch.where(here, running, 0.0)
    return advantages, torch.where(mask, advantages + values, 0.0)


def whitened(advantages: Tensor, mask: Tensor, world: World | None = None, eps: float = 1e-6) -> Tensor:
    """Mean 0 and standard deviation 1 over the trained tokens of all ranks, as PPO implementations do. [B, T] -> [B, T], 0 outside the mask."""
    ranks = world or World()
    centred = torch.where(mask, advantages - ranks.mean(advantages, mask), 0.0)
    return centred / (ranks.mean(centred.square(), mask).sqrt() + eps)
