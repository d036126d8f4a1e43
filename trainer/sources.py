"""Where a step's batch comes from: played on the spot, by older weights, or taken from an actor process.

A source hands out whole groups, scored. Everything random follows from (seed, step), so that a synchronous run can be repeated and resumed
exactly. An external engine takes part by implementing :class:`Sampler`.
"""

from __future__ import annotations

import copy
import hashlib
import time
from collections import deque
from dataclasses import replace
from random import Random
from typing import Any, Protocol

import torch
from torch import nn

from trainer.batch import Batch, joined, scored
from trainer.config import Config
from trainer.curriculum import mix_at
from trainer.environment import Episode
from trainer.rollout import Trajectories, rollout
from trainer.tasks import catalogue
from trainer.verifier import Verifier, shown_tests
from trainer.vocab import PAD_ID
from trainer.world import World

Weights = dict[str, torch.Tensor]
ATTEMPTS = 3
"""How often dynamic sampling draws before it goes on with what it has (DAPO, arXiv 2503.14476, section 3.2)."""


def seed_of(*parts: Any) -> int:
    """A 63-bit seed that depends on all ``parts``."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big") >> 1


def weights_of(policy: nn.Module) -> Weights:
    """A copy of the policy's weights."""
    return {name: value.detach().clone() for name, value in policy.state_dict().items()}


class Sampler(Protocol):
    """Plays episodes: the lockstep decoder here, or an engine of one's own that speaks the same words."""

    def __call__(self, config: Config, step: int, episodes: list[Episode], generator: torch.Generator) -> Trajectories: ...


def draw_episodes(config: Config, step: int, attempt: int, prompts: range) -> tuple[list[Episode], list[int]]:
    """``samples`` episodes for each numbered prompt of the step, and their group numbers."""
    wrong = frozenset(config.verifier)
    mix = mix_at(config, step)
    episodes, group = [], []
    for prompt in prompts:
        rng = Random(f"{config.seed}/task/{step}/{attempt}/{prompt}")
        task = catalogue.draw(mix, rng)
        if config.solved_share and rng.random() < config.solved_share:
            task = replace(task, lines=task.fixed)
        episodes += [Episode(task, shown_tests(task, wrong), config.rules) for _ in range(config.samples)]
        group += [attempt * config.prompts + prompt] * config.samples
    return episodes, group


class Lockstep:
    """The policy's own weights, or those of ``lag`` versions ago, or (``sync_stuck``) those of the moment the synchronisation broke."""

    def __init__(self, policy: nn.Module, verifier: Verifier, device: torch.device) -> None:
        self.policy, self.verifier, self.device = policy, verifier, device
        self.snapshots: deque[Weights] = deque()
        self.stuck: Weights | None = None

    def __call__(self, config: Config, step: int, episodes: list[Episode], generator: torch.Generator) -> Trajectories:
        sampler, version = self.policy, step
        if config.sync_stuck:
            self.stuck = self.stuck or weights_of(self.policy)
            sampler = self._with(self.stuck)
        elif config.lag and self.snapshots:
            index = max(0, len(self.snapshots) - config.lag)
            sampler, version = self._with(self.snapshots[index]), step - (len(self.snapshots) - index)
        return rollout(
            sampler,
            episodes,
            self.verifier.judge,
            generator,
            max_length=config.max_length,
            device=self.device,
            temperature=config.temperature,
            reported=config.reported_temperature,
            version=version,
        )

    def remember(self, weights: Weights, depth: int) -> None:
        """Keep the weights from before an update while a later step may still sample from them."""
        self.snapshots.append(weights)
        while len(self.snapshots) > depth:
            self.snapshots.popleft()

    def _with(self, weights: Weights) -> nn.Module:
        sampler = copy.deepcopy(self.policy)
        sampler.load_state_dict(weights)
        return sampler


def play(config: Config, step: int, attempt: int, sampler: Sampler, verifier: Verifier, world: World) -> Batch:
    """This rank's share of one scored batch of ``prompts`` groups."""
    episodes, group = draw_episodes(config, step, attempt, range(config.prompts)[world.rank :: world.size])
    apart = (world.rank,) if world.rank else ()
    generator = torch.Generator(world.device).manual_seed(seed_of(config.seed, "sample", step, attempt, *apart))
    trajectories = sampler(config, step, episodes, generator)
    verdicts = verifier.score(episodes, frozenset(config.verifier), config.flaky_rate, f"{config.seed}/{step}/{attempt}")
    return scored(config, trajectories, verdicts, group)


def collect(config: Config, step: int, sampler: Sampler, verifier: Verifier, world: World) -> tuple[Batch, Batch, dict[str, float]]:
    """The batch to train on, all that was drawn for it, and how long it took; with dynamic sampling, groups without spread are drawn again."""
    started = time.perf_counter()
    batch = drawn = play(config, step, 0, sampler, verifier, world)
    if config.rule.dynamic:
        wanted = len(batch.episodes)
        kept: Batch | None = None
        for attempt in range(ATTEMPTS):
            more = batch if attempt == 0 else play(config, step, attempt, sampler, verifier, world)
            drawn = drawn if attempt == 0 else joined(drawn, more)
            if good := _with_spread(more, config.samples):
                kept = more.rows(good) if kept is None else joined(kept, more.rows(good))
            if kept is not None and len(kept.episodes) >= wanted:
                break
        batch = batch if kept is None else kept.rows(range(min(wanted, len(kept.episodes))))
    return (
        batch,
        drawn,
        {
            "perf.gen_time_s": time.perf_counter() - started,
            "env.metric.groups_drawn": float(len(set(drawn.group))),
            "env.metric.sampler_busy_frac": float((batch.ids != PAD_ID).float().mean()),
        },
    )


def _with_spread(batch: Batch, size: int) -> list[int]:
    groups = batch.total.view(-1, size)
    spread = (groups.amax(1) > groups.amin(1)).tolist()
    return [i for i in range(len(batch.episodes)) if spread[i // size]]
