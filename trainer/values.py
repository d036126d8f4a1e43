"""Three forms of a value on history, V(h) = expected return from here: it judges where the agent stands, not what it does next.

Column t of a batch predicts token t + 1 from the history up to t, so V there is the value before that token is chosen.
"""

from __future__ import annotations

import copy
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainer import losses


class Value(Protocol):
    """A value function. ``hidden`` [N, T, d] comes from the policy's trunk over ``ids`` [N, T + 1]."""

    def predict(self, hidden: Tensor, ids: Tensor) -> Tensor:
        """V [N, T] in reward units."""
        ...

    def loss(self, hidden: Tensor, ids: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
        """A scalar to minimise; gradients may reach the trunk through ``hidden``."""
        ...

    def parameters(self) -> list[nn.Parameter]:
        """Parameters that are not the policy's own."""
        ...


class Head:
    """A linear head on the policy's trunk, squared error: cheap, but it shares the trunk with the policy."""

    def __init__(self, policy: nn.Module) -> None:
        self.policy = policy

    def predict(self, hidden: Tensor, ids: Tensor) -> Tensor:
        return self.policy.value(hidden)

    def loss(self, hidden: Tensor, ids: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
        return losses.token_mean((self.predict(hidden, ids) - returns).square(), mask)

    def parameters(self) -> list[nn.Parameter]:
        return []


class Critic:
    """A separate network, squared error. It starts as a copy of ``start``, the policy or a process reward model."""

    def __init__(self, start: nn.Module) -> None:
        self.network = copy.deepcopy(start).requires_grad_(True)

    def predict(self, hidden: Tensor, ids: Tensor) -> Tensor:
        return self.network.value(self.network(ids[:, :-1]))

    def loss(self, hidden: Tensor, ids: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
        return losses.token_mean((self.predict(hidden, ids) - returns).square(), mask)

    def parameters(self) -> list[nn.Parameter]:
        return list(self.network.parameters())


class Bins:
    """Classification over bins of the return, smoothed by a Gaussian (HL-Gauss: Farebrother et al., arXiv 2403.03950, section 3.1).

    ``count`` bins of equal width cover [low, high]; a return outside is counted in the outermost bin. The Gaussian's standard deviation is
    0.75 bins, the value is the mean of the predicted distribution.
    """

    def __init__(self, width: int, low: float = -1.5, high: float = 1.5, count: int = 31, device: torch.device | None = None) -> None:
        self.head = nn.Linear(width, count, device=device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.edges = torch.linspace(low, high, count + 1, device=device)
        self.centres = (self.edges[1:] + self.edges[:-1]) / 2
        self.sigma = 0.75 * (high - low) / count

    def predict(self, hidden: Tensor, ids: Tensor) -> Tensor:
        return self.head(hidden).softmax(-1) @ self.centres

    def target(self, returns: Tensor) -> Tensor:
        """Probability of each bin [..., count] for a return."""
        held = returns.clamp(float(self.centres[0]), float(self.centres[-1]))[..., None]
        cumulative = torch.erf((self.edges - held) / (self.sigma * 2**0.5))
        mass = cumulative[..., 1:] - cumulative[..., :-1]
        return mass / mass.sum(-1, keepdim=True)

    def loss(self, hidden: Tensor, ids: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
        entropy = -(self.target(returns) * F.log_softmax(self.head(hidden), dim=-1)).sum(-1)
        return losses.token_mean(entropy, mask)

    def parameters(self) -> list[nn.Parameter]:
        return list(self.head.parameters())


FORMS = ("head", "critic", "bins")


def build(form: str, policy: nn.Module, start: nn.Module | None, device: torch.device) -> Value:
    """The value function ``form``; ``start`` is what a critic starts from (default: the policy)."""
    if form == "head":
        return Head(policy)
    if form == "critic":
        return Critic(start if start is not None else policy)
    return Bins(policy.shape.width, device=device)
