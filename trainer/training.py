"""The loop: a batch from the source, advantages, the update, and the row that tells how it went."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import torch
from torch import nn

from monitor.client.batch_health import BatchHealth
from monitor.client.guard import Recorder
from monitor.wire import Rollout
from trainer import faults, process_reward, sharding, sources, teachers
from trainer import values as value_forms
from trainer.actor import Actor
from trainer.batch import Batch, with_advantages
from trainer.config import Config
from trainer.faults import Fault
from trainer.learner import Evaluation, Learner
from trainer.samples import decoded
from trainer.verifier import Verifier
from trainer.vocab import SIZE
from trainer.world import World

ACTIONS = ("think", "test", "edit", "edit_tests", "bad", "calc", "history", "ask")


@dataclass(slots=True)
class Row:
    """One step as it is logged."""

    step: int
    values: dict[str, float]
    hists: dict[str, list[int]] = field(default_factory=dict)
    rollouts: list[Rollout] = field(default_factory=list)


def uses_step_model(config: Config) -> bool:
    """Whether the run needs a process reward model."""
    return config.step_model > 0 or config.value_start == "step_model"


class Training:
    """A run in progress. ``step`` is the next step's number; :meth:`advance` makes it."""

    def __init__(
        self,
        config: Config,
        policy: nn.Module,
        verifier: Verifier,
        fault: Fault | None = None,
        world: World | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.config = config
        self.fault = fault
        self.world = world or World()
        self.device = self.world.device
        self.verifier = verifier
        self.policy = policy.to(self.device)
        self.policy.recompute = config.recompute
        self.reference = copy.deepcopy(self.policy).requires_grad_(False)
        playing = self.policy
        if config.sharded:
            playing = copy.deepcopy(self.policy).requires_grad_(False)
            self.policy, self.reference = (sharding.shard(p, self.world, bf16=config.bf16) for p in (self.policy, self.reference))
        self.sampler = sources.Lockstep(playing, verifier, self.device)
        self.step_model = process_reward.trained(config.warm_start, verifier).to(self.device) if uses_step_model(config) else None
        start = self.step_model if config.value_start == "step_model" else None
        value = value_forms.build(config.value, self.policy, start, self.device) if config.rule.advantage == "gae" else None
        self.learner = Learner(config, self.policy, self.reference, value, recorder, self.world)
        if config.rule.teacher == "strong" or config.rule.source == "teacher":
            self.learner.teacher = teachers.strong(config, verifier).to(self.device).requires_grad_(False)
        self.actor = Actor(config, self.policy, self.device) if config.actor else None
        self.step = 0

    def close(self) -> None:
        """End the actor process, if there is one."""
        if self.actor is not None:
            self.actor.close()

    def advance(self) -> Row:
        """Make one step and return its row."""
        started = time.perf_counter()
        config = faults.at(self.config, self.fault, self.step)
        batch, drawn, collected = self._collect(config)
        before = self.learner.evaluate(batch)
        inside, judged = self._inside(config, batch, before)
        batch, returns = with_advantages(config, batch, inside, before.values, self.world)
        if depth := self._depth(config):
            self.sampler.remember(sources.weights_of(self.sampler.policy), depth)
        rule = config.rule
        health = BatchHealth(SIZE, eps_low=rule.low, eps_high=rule.high)
        measured = self.learner.update(config, batch, before, returns, health, Random(f"{self.config.seed}/order/{self.step}"), self.step)
        values, hists = self._measure(health, batch, drawn)
        values |= measured | collected | judged | self._evaluation(config) | {"perf.step_time_s": time.perf_counter() - started}
        self._synchronise(self.step + 1)
        row = Row(self.step, values, hists, decoded(self.step, batch))
        self.step += 1
        return row

    def state(self) -> dict[str, Any]:
        """Everything that the next step depends on, detached from this object: for checkpoints and forks."""
        return copy.deepcopy(
            {
                "step": self.step,
                "policy": sharding.full_weights(self.policy),
                "reference": sharding.full_weights(self.reference),
                "learner": self.learner.state(),
                "snapshots": list(self.sampler.snapshots),
                "stuck": self.sampler.stuck,
            }
        )

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state`."""
        state = copy.deepcopy(state)
        self.step = state["step"]
        sharding.load_weights(self.policy, state["policy"])
        sharding.load_weights(self.reference, state["reference"])
        self.learner.restore(state["learner"])
        self.sampler.snapshots.clear()
        self.sampler.snapshots.extend(state["snapshots"])
        self.sampler.stuck = state["stuck"]
        self._synchronise(self.step)

    def _synchronise(self, version: int) -> None:
        """Give the new weights to whoever samples: the actor process, or the whole copy of a sharded policy."""
        if self.actor is not None:
            self.actor.publish(self.policy, version)
        if self.sampler.policy is not self.policy:
            self.sampler.policy.load_state_dict(sharding.full_weights(self.policy))

    def _collect(self, config: Config) -> tuple[Batch, Batch, dict[str, float]]:
        """The batch to train on and all that was drawn for it, from whoever plays it."""
        source = config.rule.source
        if self.actor is not None and source == "policy":
            taken, collected = self.actor.collect(config, self.step)
            return taken, taken, collected
        if source == "demonstrator":
            shown = teachers.demonstrated(config, self.step, self.verifier, self.world)
            return shown, shown, {}
        sampler: sources.Sampler = self.sampler
        if source == "teacher":
            assert self.learner.teacher is not None
            sampler = sources.Lockstep(self.learner.teacher, self.verifier, self.device)
        batch, drawn, collected = sources.collect(config, self.step, sampler, self.verifier, self.world)
        if config.rule.advantage == "success":
            collected["env.metric.accepted_frac"] = sum(v.task for v in batch.verdicts) / len(batch.verdicts)
        if config.rule.teacher == "informed":
            batch = teachers.trimmed(batch, self.learner.longest)
        return batch, drawn, collected

    def _inside(self, config: Config, batch: Batch, before: Evaluation) -> tuple[torch.Tensor | None, dict[str, float]]:
        """Rewards inside the episode [N, T]: a KL penalty, the steps of a process reward model."""
        inside = config.kl * (before.ref - before.old) if config.kl_in_reward else None
        if not config.step_model or self.step_model is None:
            return inside, {}
        steps, potential = process_reward.step_rewards(self.step_model, batch)
        return config.step_model * steps + (0.0 if inside is None else inside), process_reward.health(batch, potential, self.verifier)

    def success(self, batches: int = 1, config: Config | None = None) -> float:
        """The share of held-out tasks that the policy solves as it stands, with every door closed and a flawless verifier, over ``batches`` batches
        of the size and mix of ``config`` (the run's own). Always the same tasks, and no later step depends on it."""
        config = config or self.config
        closed = replace(
            config, history_leaks=False, key_leaks=False, verifier=(), lag=0, sync_stuck=False, temperature=1.0, seed=self.config.seed + 1_000_003
        )
        sampler = sources.Lockstep(self.sampler.policy, self.verifier, self.device)
        played = [sources.play(closed, 0, attempt, sampler, self.verifier, self.world) for attempt in range(batches)]
        verdicts = [verdict for batch in played for verdict in batch.verdicts]
        return self._means({"solved": sum(verdict.audit for verdict in verdicts)}, len(verdicts))["solved"]

    def _evaluation(self, config: Config) -> dict[str, float]:
        """Held-out success, every ``eval_every`` steps."""
        if not config.eval_every or self.step % config.eval_every:
            return {}
        return {"eval.task.mean": self.success(config=config)}

    def _depth(self, config: Config) -> int:
        """How many versions back a later step may sample from."""
        return max(self.config.lag, config.lag, self.fault.patch.get("lag", 0) if self.fault else 0)

    def _measure(self, health: BatchHealth, batch: Batch, drawn: Batch) -> tuple[dict[str, float], dict[str, list[int]]]:
        """Rewards and groups of all that was drawn, the rest of what is trained on."""
        episodes = batch.episodes
        if drawn is not batch:
            health.observe_batch(rewards=drawn.components, groups=drawn.group, audit=[v.audit for v in drawn.verdicts])
        own: dict[str, Any] = (
            {"rewards": batch.components, "groups": batch.group, "audit": [v.audit for v in batch.verdicts]} if drawn is batch else {}
        )
        health.observe_batch(
            **own,
            advantages=batch.advantages,
            mask=batch.mask,
            truncated=[e.stopped != "submit" for e in episodes],
            staleness=[float(self.step - v) for v in batch.version.tolist()],
            turns=[e.counts["turns"] for e in episodes],
            tool_calls=[e.counts["test"] + e.counts["calc"] for e in episodes],
        )
        if self.world.size > 1:
            health.reduce()
        health.pack(self.step)
        reading = health.collect(wait=True)
        assert reading is not None
        sums = {f"env.metric.{name}_per_episode": float(sum(e.counts[name] for e in episodes)) for name in ACTIONS}
        sums["env.metric.tests_passed_frac"] = sum(v.passed for v in batch.verdicts)
        values = reading.values | self._means(sums, len(episodes))
        values["batch.sequences"] -= float(
            self.world.sum(torch.tensor(float(len(drawn.episodes) if drawn is not batch else 0.0), device=self.device))
        )
        return values, reading.hists

    def _means(self, sums: dict[str, float], count: int) -> dict[str, float]:
        """Means over the episodes of all ranks."""
        *totals, number = self.world.sum(torch.tensor([*sums.values(), float(count)], device=self.device)).tolist()
        return {name: total / number for name, total in zip(sums, totals, strict=True)}
