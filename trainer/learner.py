"""The update: minibatches of a scored batch through the surrogate, the penalties and the optimiser, with every metric taken on the way."""

from __future__ import annotations

import time
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from monitor.client.batch_health import BatchHealth
from monitor.client.guard import Guard, Policy, Recorder
from trainer import correction, losses, teachers, values
from trainer.batch import Batch
from trainer.config import Config
from trainer.losses import Surrogate
from trainer.sharding import full_optimizer, is_sharded, load_optimizer, whole
from trainer.vocab import PAD_ID
from trainer.world import World

CONSTANT_LENGTH = 32.0
"""Divisor per sequence of the constant mean: near the mean number of agent tokens, so that learning rates carry over between algorithms."""

ENTROPY_STEP = 0.02
"""How fast the entropy coefficient follows its target: change per step and nat."""

PEAKS = {"opt.grad_norm", "env.metric.sequence_weight_max"}
"""Reported as the largest over the minibatches, not the mean."""


@dataclass(slots=True)
class Evaluation:
    """Log-probabilities [N, T] before the update: ``old`` of the trained policy, ``ref`` of the reference; ``values`` [N, T] if one is learned."""

    old: Tensor
    ref: Tensor
    values: Tensor | None


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


def mean(config: Config, loss: Tensor, mask: Tensor, count: Tensor | None = None, rows: float | None = None) -> Tensor:
    """One number from the loss per token, as the algorithm averages it, over ``count`` tokens and ``rows`` sequences (default: the batch's)."""
    match config.rule.mean:
        case "token":
            return losses.token_mean(loss, mask, count)
        case "sequence":
            return losses.sequence_mean(loss, mask, rows)
    return losses.constant_mean(loss, mask, CONSTANT_LENGTH, rows)


class Learner:
    """Owns the optimiser and what else is learned. ``reference`` is the frozen policy of the KL penalty."""

    def __init__(
        self,
        config: Config,
        policy: nn.Module,
        reference: nn.Module,
        value: values.Value | None = None,
        recorder: Recorder | None = None,
        world: World | None = None,
    ) -> None:
        self.policy = policy
        self.reference = reference
        self.value = value
        self.world = world or World()
        self.entropy = config.entropy
        self.gate = Guard(recorder, Policy(max_weight=config.guard_weight)) if config.guard else None
        self.halted = False
        self.step = 0
        self.teacher: nn.Module | None = None
        self.longest = policy.shape.length
        self.optimizer: torch.optim.Optimizer
        policy.value_head.requires_grad_(isinstance(value, values.Head))
        weights = [*(w for w in policy.parameters() if w.requires_grad), *(value.parameters() if value else ())]
        if config.optimizer == "sgd":
            self.optimizer = torch.optim.SGD(weights, lr=config.lr)
        else:
            self.optimizer = torch.optim.AdamW(weights, lr=config.lr, betas=(0.9, 0.95), weight_decay=0.0)

    def state(self) -> dict[str, Any]:
        """What the next update depends on, apart from the policy's weights."""
        whole_state = full_optimizer(self.policy, self.optimizer) if is_sharded(self.policy) else self.optimizer.state_dict()
        return {
            "optimizer": whole_state,
            "entropy": self.entropy,
            "value": [weight.detach().clone() for weight in self.value.parameters()] if self.value else [],
            "gate": self.gate.state() if self.gate else None,
        }

    @torch.no_grad()
    def restore(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state`."""
        if is_sharded(self.policy):
            load_optimizer(self.policy, self.optimizer, state["optimizer"])
        else:
            self.optimizer.load_state_dict(state["optimizer"])
        self.entropy = state["entropy"]
        if self.gate is not None and state["gate"] is not None:
            self.gate.restore(state["gate"])
        for weight, saved in zip(self.value.parameters() if self.value else (), state["value"], strict=True):
            weight.copy_(saved)

    @torch.no_grad()
    def evaluate(self, batch: Batch) -> Evaluation:
        """What the update compares itself with."""
        old, _, hidden = self.policy.evaluate(batch.ids, batch.mask)
        ref, _, _ = self.reference.evaluate(batch.ids, batch.mask)
        return Evaluation(old, ref, self.value.predict(hidden, batch.ids) if self.value else None)

    def update(
        self, config: Config, batch: Batch, before: Evaluation, returns: Tensor | None, health: BatchHealth, order: Random, step: int
    ) -> dict[str, float]:
        """Train on ``batch`` and return the optimiser's metrics; those of the tokens go to ``health``. ``order`` decides the minibatches."""
        for group in self.optimizer.param_groups:
            group["lr"] = config.lr
        started = time.perf_counter()
        self.step = step
        if config.entropy_target is None:
            self.entropy = config.entropy
        taken: dict[str, list[Tensor]] = {}
        for epoch in range(config.epochs):
            rows = list(range(len(batch.episodes)))
            order.shuffle(rows)
            size = -(-len(rows) // config.minibatches)
            for low in range(0, len(rows), size):
                at = torch.tensor(sorted(rows[low : low + size]), device=batch.ids.device)
                for name, number in self._minibatch(config, batch, at, before, returns, health, epoch == 0).items():
                    taken.setdefault(name, []).append(number)
        means = self.world.sum(torch.stack([torch.stack(numbers).mean() for numbers in taken.values()])) / self.world.size
        result = dict(zip(taken, means.tolist(), strict=True))
        for name in sorted(PEAKS & taken.keys()):
            result[name] = self.world.largest(torch.stack(taken[name]).amax()).item()
        if config.entropy_target is not None:
            self.entropy = max(0.0, self.entropy + ENTROPY_STEP * (config.entropy_target - result["entropy"]))
            result["opt.entropy_coefficient"] = self.entropy
        if self.gate is not None:
            result["opt.skipped"] = float(self.gate.take_skipped())
        del result["entropy"]
        return result | {"opt.lr": config.lr, "perf.train_time_s": time.perf_counter() - started}

    def _minibatch(
        self, config: Config, batch: Batch, at: Tensor, before: Evaluation, returns: Tensor | None, health: BatchHealth, first: bool
    ) -> dict[str, Tensor]:
        ids, mask, advantage, behaviour = batch.ids[at], batch.mask[at], batch.advantages[at], batch.behaviour[at]
        targets = self._target(config, batch.rows(at.tolist())) if config.rule.teacher else None
        old, ref = before.old[at], before.ref[at]
        logp, entropy, hidden = self.policy.evaluate(ids, mask)
        weight, removed = self._correction(config, old, behaviour, mask)
        numbers: dict[str, Tensor] = {}
        if config.rule.surrogate == "sequence":
            numbers["env.metric.sequence_weight_max"] = torch.where(mask, logp - behaviour, 0.0).sum(1).amax().clamp(max=60.0).exp()
        foreign = config.rule.source != "policy"
        if config.rule.teacher:
            part, more = distillation(config.rule.surrogate, self.policy, hidden, mask, targets)
            numbers |= more
        else:
            part = surrogate(config, logp, behaviour if weight is None and not foreign else old, advantage, mask)
        count = self.world.share(mask.sum())
        rows = float(self.world.share(torch.tensor(float(len(mask)), device=mask.device))) if self.world.size > 1 else None
        policy_loss = mean(config, part.loss if weight is None else part.loss * weight, mask, count, rows)
        numbers |= {"opt.policy_loss": policy_loss, "update.clip_frac": part.clipped.sum() / count.clamp(min=1)}
        loss = policy_loss
        if config.kl and not config.kl_in_reward:
            loss = loss + config.kl * losses.token_mean(losses.KL[config.kl_form](logp, ref), mask, count)
        mean_entropy = losses.token_mean(entropy, mask, count)
        if self.entropy:
            loss = loss - self.entropy * mean_entropy
        if self.value is not None and returns is not None:
            numbers["opt.value_loss"] = self.value.loss(hidden, ids, returns[at], mask)
            loss = loss + config.value_coefficient * numbers["opt.value_loss"]
        if config.echo:
            numbers |= observation_loss(self.policy, hidden, ids, mask)
            loss = loss + config.echo * numbers["env.metric.observation_nll"]
        numbers |= {"opt.loss": loss, "opt.grad_norm": self._descend(config, loss, logp - behaviour, mask, advantage), "entropy": mean_entropy}
        health.observe(
            logp.detach(),
            None if foreign else behaviour,
            mask,
            old_logp=old,
            ref_logp=ref,
            entropy=entropy.detach(),
            advantages=advantage,
            token_ids=ids[:, 1:] if first else None,
            removed=removed,
            values=None if before.values is None else before.values[at],
            returns=None if returns is None else returns[at],
        )
        return {name: number.detach() for name, number in numbers.items()}

    def _target(self, config: Config, batch: Batch) -> Tensor:
        """The teacher's log-probabilities on ``batch``. The informed teacher is the reference, or with ``live_teacher`` the student as it is."""
        teacher = self.teacher or (self.policy if config.live_teacher else self.reference)
        return teachers.target(config.rule.teacher, teacher, batch, self.longest)

    def _correction(self, config: Config, old: Tensor, behaviour: Tensor, mask: Tensor) -> tuple[Tensor | None, Tensor | None]:
        if config.correction == "truncate":
            return correction.truncated(old, behaviour, mask, config.correction_cap)
        if config.correction == "mask":
            return correction.masked(old, behaviour, mask, 1 / config.correction_cap, config.correction_cap)
        return None, None

    def _descend(self, config: Config, loss: Tensor, log_weights: Tensor, mask: Tensor, advantage: Tensor) -> Tensor:
        """One optimiser step, unless the step gate refuses it; returns the gradient norm before clipping."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        weights = [weight for group in self.optimizer.param_groups for weight in group["params"]]
        norm = whole(nn.utils.clip_grad_norm_(weights, config.grad_clip or float("inf")))
        if self.gate is not None:
            decision = self.gate.check(
                self.step,
                self.optimizer,
                log_weights=log_weights.detach(),
                mask=mask,
                advantages=advantage,
                loss=loss.detach(),
                grad_norm=norm,
                group=dist.group.WORLD if self.world.size > 1 else None,
            )
            self.halted = self.halted or decision.halt
            if not decision.go:
                return norm
        self.optimizer.step()
        return norm


def distillation(kind: str, policy: nn.Module, hidden: Tensor, mask: Tensor, teacher: Tensor) -> tuple[Surrogate, dict[str, Tensor]]:
    """Divergence from the teacher per token [N, T], and how far apart the two are: both KLs in nats, how often they would say the same."""
    student = torch.log_softmax(policy.logits(hidden[mask]), dim=-1)
    loss = torch.zeros(mask.shape, device=mask.device).index_put(mask.nonzero(as_tuple=True), teachers.divergence(kind, student, teacher))
    apart = {f"env.metric.teacher_{name}": teachers.divergence(name, student.detach(), teacher).mean() for name in ("forward_kl", "reverse_kl")}
    apart["env.metric.teacher_agreement"] = (student.argmax(-1) == teacher.argmax(-1)).float().mean()
    return Surrogate(loss, torch.zeros_like(mask)), apart


def observation_loss(policy: nn.Module, hidden: Tensor, ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Prediction of the environment's words (ECHO-style): mean negative log-likelihood in nats per token, and how often the likeliest was right.

    The prompt counts as an observation too: it is what the agent is told about the world.
    """
    targets = ids[:, 1:]
    observed = (targets != PAD_ID) & ~mask
    logits = policy.logits(hidden)
    nll = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)
    right = (logits.argmax(-1) == targets).to(nll.dtype)
    return {"env.metric.observation_nll": losses.token_mean(nll, observed), "env.metric.observation_accuracy": losses.token_mean(right, observed)}
