"""Correcting for a sampler that is not the policy being trained: weights per token from ``exp(log pi_old - log mu)``. Pure functions."""

from __future__ import annotations

import torch
from torch import Tensor

FORMS = ("none", "truncate", "mask")


def truncated(old: Tensor, behaviour: Tensor, mask: Tensor, cap: float) -> tuple[Tensor, Tensor]:
    """Truncated importance sampling: ``min(w, cap)``, constant in the gradient (Yao et al. 2025, "off-policy RL"; IMPALA's rho-bar).

    Returns weights [N, T] and the tokens whose weight was held.
    """
    weight = torch.where(mask, old - behaviour, 0.0).clamp(max=20.0).exp().detach()
    return weight.clamp(max=cap), (weight > cap) & mask


def masked(old: Tensor, behaviour: Tensor, mask: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """A token whose weight lies outside [low, high] is dropped, the others keep their weight (IcePop, Ring-1T technical report, 2025).

    Returns weights [N, T], 0 on dropped tokens, and the dropped tokens.
    """
    weight = torch.where(mask, old - behaviour, 0.0).clamp(max=20.0).exp().detach()
    dropped = ((weight > high) | (weight < low)) & mask
    return torch.where(dropped, 0.0, weight), dropped
