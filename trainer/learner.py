"""The update: minibatches of a scored batch through the surrogate, the penalties and the optimiser, with every metric taken on the way."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from random import Random

import torch
from torch import Tensor, nn

from monitor.client.batch_health import BatchHealth
from monitor.client.logprob import chunked_logp_entropy
from trainer import losses
from trainer.batch import Batch
from trainer.config import Config
from trainer.losses import Surrogate


@dataclass(slots=True)
class Outcome:
    """What the update adds to the step's row beyond the batch's health."""

    values: dict[str, float] = field(default_factory=dict)


def logp_entropy(policy: nn.Module, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probability and entropy [N, T] of the trained tokens (0 elsewhere), and the hidden states [N, T, d] they were predicted from."""
    hidden = policy(ids[:, :-1])
    targets = ids[:, 1:]
    if ids.device.type != "cpu":
        logp, entropy = chunked_logp_entropy(hidden, policy.head, targets)
        return torch.where(mask, logp, 0.0), torch.where(mask, entropy, 0.0), hidden
    where = mask.nonzero(as_tuple=True)  # on a GPU this would wait for the device; there the masked positions are computed too
    logp, entropy = chunked_logp_entropy(hidden[where], policy.head, targets[where])
    empty = torch.zeros(mask.shape)
    return empty.index_put(where, logp), empty.index_put(where, entropy), hidden


@torch.no_grad()
def logp_only(policy: nn.Module, ids: Tensor, mask: Tensor) -> Tensor:
    """Log-probability [N, T] of the trained tokens under a policy that is not being trained."""
    return logp_entropy(policy, ids, mask)[0]


def surrogate(config: Config, logp: Tensor, old: Tensor, advantage: Tensor, mask: Tensor) -> Surrogate:
    """The configured algorithm's loss per token."""
    rule = config.rule
    match rule.surrogate:
        case "reinforce":
            return losses.reinforce(logp, advantage, mask)
        case "ppo":
            return losses.ppo(logp, old, advantage, mask, rule.low, rule.high, rule.dual)
        case "token":
            return losses.token_weighted(logp, old, advantage, mask)
        case "sequence":
            return losses.sequence_weighted(logp, old, advantage, mask)
        case "gspo":
            return losses.gspo(logp, old, advantage, mask, rule.low, rule.high)
        case "gspo_token":
            return losses.gspo_token(logp, old, advantage, mask, rule.low, rule.high)
        case "cispo":
            return losses.cispo(logp, old, advantage, mask, rule.high)
        case "ctpo":
            return losses.ctpo(logp, old, advantage, mask, rule.low, rule.high)
    raise KeyError(rule.surrogate)


def mean(config: Config, loss: Tensor, mask: Tensor) -> Tensor:
    """One number from the loss per token, as the algorithm averages it."""
    match config.rule.mean:
        case "token":
            return losses.token_mean(loss, mask)
        case "sequence":
            return losses.sequence_mean(loss, mask)
    return losses.constant_mean(loss, mask, CONSTANT_LENGTH)


CONSTANT_LENGTH = 32.0
"""Divisor per sequence of the constant mean: near the mean number of agent tokens, so that learning rates carry over between algorithms."""


class Learner:
    """Owns the policy's optimiser. ``reference`` is the frozen policy of the KL penalty."""

    def __init__(self, config: Config, policy: nn.Module, reference: nn.Module) -> None:
        self.policy = policy
        self.reference = reference
        weights = policy.parameters()
        self.optimizer: torch.optim.Optimizer
        if config.optimizer == "sgd":
            self.optimizer = torch.optim.SGD(weights, lr=config.lr)
        else:
            self.optimizer = torch.optim.AdamW(weights, lr=config.lr, betas=(0.9, 0.95), weight_decay=0.0)

    def update(self, config: Config, batch: Batch, health: BatchHealth, order: Random) -> Outcome:
        """Train on ``batch``; what it measures goes to ``health``. ``order`` decides the minibatches."""
        for group in self.optimizer.param_groups:
            group["lr"] = config.lr
        started = time.perf_counter()
        ref = logp_only(self.reference, batch.ids, batch.mask)
        old = logp_only(self.policy, batch.ids, batch.mask)
        norms, lost, clipped = [], [], []
        for epoch in range(config.epochs):
            rows = list(range(len(batch.episodes)))
            order.shuffle(rows)
            size = -(-len(rows) // config.minibatches)
            for low in range(0, len(rows), size):
                at = torch.tensor(sorted(rows[low : low + size]), device=batch.ids.device)
                loss, norm, share = self._minibatch(config, batch, at, old, ref, health, epoch == 0)
                lost.append(loss)
                norms.append(norm)
                clipped.append(share)
        values = {"opt.grad_norm": max(n.item() for n in norms), "opt.loss": sum(v.item() for v in lost) / len(lost), "opt.lr": config.lr}
        values["update.clip_frac"] = sum(v.item() for v in clipped) / len(clipped)
        values["perf.train_time_s"] = time.perf_counter() - started
        return Outcome(values)

    def _minibatch(
        self, config: Config, batch: Batch, at: Tensor, old: Tensor, ref: Tensor, health: BatchHealth, first: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        ids, mask, advantage = batch.ids[at], batch.mask[at], batch.advantages[at]
        logp, entropy, _ = logp_entropy(self.policy, ids, mask)
        part = surrogate(config, logp, old[at], advantage, mask)
        loss = mean(config, part.loss, mask)
        if config.kl:
            loss = loss + config.kl * losses.token_mean(losses.KL[config.kl_form](logp, ref[at]), mask)
        if config.entropy:
            loss = loss - config.entropy * losses.token_mean(entropy, mask)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.policy.parameters(), config.grad_clip or float("inf"))
        self.optimizer.step()
        health.observe(
            logp.detach(),
            batch.behaviour[at],
            mask,
            old_logp=old[at],
            ref_logp=ref[at],
            entropy=entropy.detach(),
            advantages=advantage,
            token_ids=ids[:, 1:] if first else None,
        )
        return loss.detach(), norm.detach(), part.clipped.sum() / mask.sum().clamp(min=1)
