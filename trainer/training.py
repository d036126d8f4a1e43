"""The loop: draw tasks, play them, score them, update, measure. Everything random follows from (seed, step), so a resume repeats nothing and skips
nothing."""

from __future__ import annotations

import copy
import hashlib
import time
from collections import deque
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import torch
from torch import nn

from monitor.client.batch_health import BatchHealth
from monitor.client.guard import Recorder
from monitor.wire import Rollout
from trainer import faults
from trainer import values as value_forms
from trainer.batch import Batch, scored, with_advantages
from trainer.config import Config
from trainer.environment import Episode
from trainer.faults import Fault
from trainer.learner import Learner
from trainer.rollout import Trajectories, rollout
from trainer.samples import decoded
from trainer.tasks import catalogue
from trainer.verifier import Verifier, shown_tests
from trainer.vocab import SIZE


@dataclass(slots=True)
class Row:
    """One step as it is logged."""

    step: int
    values: dict[str, float]
    hists: dict[str, list[int]] = field(default_factory=dict)
    rollouts: list[Rollout] = field(default_factory=list)


def seed_of(*parts: Any) -> int:
    """A 63-bit seed that depends on all ``parts``."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big") >> 1


class Training:
    """A run in progress. ``step`` is the next step's number; :meth:`advance` makes it."""

    def __init__(
        self,
        config: Config,
        policy: nn.Module,
        verifier: Verifier,
        fault: Fault | None = None,
        device: str | torch.device = "cpu",
        recorder: Recorder | None = None,
    ) -> None:
        self.config = config
        self.fault = fault
        self.device = torch.device(device)
        self.verifier = verifier
        self.policy = policy.to(self.device)
        self.reference = copy.deepcopy(self.policy).requires_grad_(False)
        value = value_forms.build(config.value, self.policy, None, self.device) if config.rule.advantage == "gae" else None
        self.learner = Learner(config, self.policy, self.reference, value, recorder)
        self.snapshots: deque[dict[str, torch.Tensor]] = deque()
        self.step = 0
        self.stuck: dict[str, torch.Tensor] | None = None
        self._before: dict[str, torch.Tensor] = {}

    def advance(self) -> Row:
        """Make one step and return its row."""
        started = time.perf_counter()
        config = faults.at(self.config, self.fault, self.step)
        batch, drawn, seconds = self._collect(config)
        before = self.learner.evaluate(batch)
        inside = config.kl * (before.ref - before.old) if config.kl_in_reward else None
        batch, returns = with_advantages(config, batch, inside, before.values)
        rule = config.rule
        self._before = _weights(self.policy) if self._depth(config) else {}
        health = BatchHealth(SIZE, eps_low=rule.low, eps_high=rule.high)
        measured = self.learner.update(config, batch, before, returns, health, Random(f"{self.config.seed}/order/{self.step}"), self.step)
        self._remember(config)
        values, hists = self._measure(health, batch)
        values |= measured | {"perf.gen_time_s": seconds, "perf.step_time_s": time.perf_counter() - started}
        values["env.metric.groups_drawn"] = float(drawn)
        row = Row(self.step, values, hists, decoded(self.step, batch))
        self.step += 1
        return row

    def _collect(self, config: Config) -> tuple[Batch, int, float]:
        """A scored batch of ``prompts`` groups; with dynamic sampling, groups without spread are drawn again up to twice."""
        started = time.perf_counter()
        batch = self._play(config, 0)
        drawn = config.prompts
        if config.rule.dynamic:
            kept = _groups_with_spread(batch, config.samples)
            for attempt in (1, 2):
                if len(kept) >= config.prompts * config.samples:
                    break
                more = self._play(config, attempt)
                drawn += config.prompts
                extra = _groups_with_spread(more, config.samples)
                batch = (
                    _joined(batch.rows(kept), more.rows(extra))
                    if kept and extra
                    else (more.rows(extra) if extra else batch.rows(kept) if kept else batch)
                )
                kept = list(range(len(batch.episodes)))
            batch = batch.rows(kept[: config.prompts * config.samples]) if kept else batch
        return batch, drawn, time.perf_counter() - started

    def _play(self, config: Config, attempt: int) -> Batch:
        wrong = frozenset(config.verifier)
        episodes, group = [], []
        for prompt in range(config.prompts):
            rng = Random(f"{self.config.seed}/task/{self.step}/{attempt}/{prompt}")
            task = catalogue.draw(config.mix, rng)
            if config.solved_share and rng.random() < config.solved_share:
                task = replace(task, lines=task.fixed)
            episodes += [Episode(task, shown_tests(task, wrong), config.rules) for _ in range(config.samples)]
            group += [attempt * config.prompts + prompt] * config.samples
        generator = torch.Generator(self.device).manual_seed(seed_of(self.config.seed, "sample", self.step, attempt))
        trajectories = self._sample(config, episodes, generator)
        verdicts = self.verifier.score(episodes, wrong, config.flaky_rate, f"{self.config.seed}/{self.step}/{attempt}")
        return scored(config, trajectories, verdicts, group)

    def _sample(self, config: Config, episodes: list[Episode], generator: torch.Generator) -> Trajectories:
        sampler, version = self.policy, self.step
        if config.sync_stuck:
            self.stuck = self.stuck or _weights(self.policy)
            sampler = self._with_weights(self.stuck)
        elif config.lag and self.snapshots:
            index = max(0, len(self.snapshots) - config.lag)
            sampler = self._with_weights(self.snapshots[index])
            version = self.step - (len(self.snapshots) - index)
        return rollout(
            sampler,
            episodes,
            self.verifier.judge,
            generator,
            max_length=config.max_length,
            device=self.device,
            temperature=config.temperature,
            version=version,
        )

    def _with_weights(self, weights: dict[str, torch.Tensor]) -> nn.Module:
        sampler = copy.deepcopy(self.policy)
        sampler.load_state_dict(weights)
        return sampler

    def state(self) -> dict[str, Any]:
        """Everything that the next step depends on, detached from this object: for checkpoints and forks."""
        return copy.deepcopy(
            {
                "step": self.step,
                "policy": self.policy.state_dict(),
                "reference": self.reference.state_dict(),
                "learner": self.learner.state(),
                "snapshots": list(self.snapshots),
                "stuck": self.stuck,
            }
        )

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state`."""
        state = copy.deepcopy(state)
        self.step = state["step"]
        self.policy.load_state_dict(state["policy"])
        self.reference.load_state_dict(state["reference"])
        self.learner.restore(state["learner"])
        self.snapshots = deque(state["snapshots"])
        self.stuck = state["stuck"]

    def _remember(self, config: Config) -> None:
        """Keep the weights from before this update while any later step may still sample from them."""
        if depth := self._depth(config):
            self.snapshots.append(self._before)
            while len(self.snapshots) > depth:
                self.snapshots.popleft()

    def _depth(self, config: Config) -> int:
        return max(self.config.lag, config.lag, self.fault.patch.get("lag", 0) if self.fault else 0)

    def _measure(self, health: BatchHealth, batch: Batch) -> tuple[dict[str, float], dict[str, list[int]]]:
        episodes = batch.episodes
        health.observe_batch(
            rewards=batch.components,
            groups=batch.group,
            audit=[v.audit for v in batch.verdicts],
            advantages=batch.advantages,
            mask=batch.mask,
            truncated=[e.stopped != "submit" for e in episodes],
            staleness=[float(self.step - v) for v in batch.version.tolist()],
            turns=[e.counts["turns"] for e in episodes],
            tool_calls=[e.counts["test"] + e.counts["calc"] for e in episodes],
        )
        health.pack(self.step)
        reading = health.collect(wait=True)
        assert reading is not None
        values = dict(reading.values)
        count = len(episodes)
        for name in ("think", "test", "edit", "edit_tests", "bad", "calc", "history", "ask"):
            values[f"env.metric.{name}_per_episode"] = sum(e.counts[name] for e in episodes) / count
        values["env.metric.tests_passed_frac"] = sum(v.passed for v in batch.verdicts) / count
        return values, reading.hists


def _weights(policy: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in policy.state_dict().items()}


def _groups_with_spread(batch: Batch, size: int) -> list[int]:
    groups = batch.total.view(-1, size)
    spread = (groups.amax(1) > groups.amin(1)).tolist()
    return [i for i in range(len(batch.episodes)) if spread[i // size]]


def _joined(a: Batch, b: Batch) -> Batch:
    """Two batches as one, padded to the longer."""
    width = max(a.ids.shape[1], b.ids.shape[1])

    def stack(x: torch.Tensor, y: torch.Tensor, columns: int) -> torch.Tensor:
        return torch.cat([nn.functional.pad(t, (0, columns - t.shape[1])) for t in (x, y)])

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
