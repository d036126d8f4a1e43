"""A real actor process: it samples without waiting for the trainer, and hands whole groups over through a bounded queue.

Weights travel through shared memory with a version; a decoder keeps the weights it began with, so each rollout has one version. While one batch is
down to its longest episodes the next one has already begun, so that stragglers idle nobody; a group leaves as soon as its own episodes
have ended. Which rollouts meet which update depends on timing: a run with an actor cannot be repeated exactly.
"""

from __future__ import annotations

import copy
import queue
import time
from collections import deque
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.multiprocessing as mp
from torch import nn

from trainer.batch import Batch, joined, scored
from trainer.config import Config
from trainer.environment import Episode
from trainer.rollout import Decoder, Trajectories
from trainer.sources import draw_episodes, seed_of
from trainer.verifier import Verdict, Verifier

REFILL_BELOW = 0.5
"""A new batch begins when fewer than this share of a batch's episodes is running."""

MOST_DECODERS = 3


@dataclass(slots=True)
class Group:
    """One prompt's rollouts as plain lists, so that no tensor has to be shared between the processes."""

    ids: list[list[int]]
    mask: list[list[bool]]
    logp: list[list[float]]
    turn: list[list[int]]
    version: int
    number: int
    episodes: list[Episode]
    verdicts: list[Verdict]
    busy: float


@dataclass(slots=True)
class _Begun:
    decoder: Decoder
    groups: list[int]
    handed: set[int]


class Actor:
    """The trainer's end. :meth:`publish` after each update, :meth:`collect` for each batch, :meth:`close` at the end."""

    def __init__(self, config: Config, policy: nn.Module, device: torch.device) -> None:
        self.device = device
        context = mp.get_context("spawn")
        self.groups: Any = context.Queue(maxsize=max(1, config.queue * config.prompts))
        self.version = context.Value("q", 0)
        self.weights = {name: value.detach().cpu().clone().share_memory_() for name, value in policy.state_dict().items()}
        self.control, theirs = context.Pipe()
        shell = copy.deepcopy(policy).cpu()
        self.process = context.Process(target=_act, args=(config, shell, self.weights, self.version, self.groups, theirs), daemon=True)
        self.process.start()
        self.config = config

    def publish(self, policy: nn.Module, version: int) -> None:
        """Make the policy's weights the actor's next ones."""
        with self.version.get_lock():
            for name, value in policy.state_dict().items():
                self.weights[name].copy_(value.detach())
            self.version.value = version

    def collect(self, config: Config, step: int) -> tuple[Batch, dict[str, float]]:
        """The next ``prompts`` groups that are not too stale, and how long they took. Raises RuntimeError when the actor has died."""
        if config != self.config:
            self.control.send(config)
            self.config = config
        started = time.perf_counter()
        batch: Batch | None = None
        dropped, busy, count = 0, 0.0, 0
        while count < config.prompts:
            group = self._next()
            if config.max_staleness is not None and step - group.version > config.max_staleness:
                dropped += 1
                continue
            part = _scored(config, group, count, self.device)
            batch = part if batch is None else joined(batch, part)
            busy, count = busy + group.busy, count + 1
        assert batch is not None
        waited = time.perf_counter() - started
        return batch, {
            "perf.gen_time_s": waited,
            "perf.phase_s.waiting_for_actor": waited,
            "env.metric.groups_dropped": float(dropped),
            "env.metric.sampler_busy_frac": busy / count,
        }

    def close(self) -> None:
        """End the actor process."""
        self.process.terminate()
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.groups.close()
        self.groups.cancel_join_thread()

    def _next(self) -> Group:
        while True:
            try:
                return self.groups.get(timeout=1.0)
            except queue.Empty:
                if not self.process.is_alive():
                    raise RuntimeError(f"the actor process ended with code {self.process.exitcode}") from None


def _scored(config: Config, group: Group, number: int, device: torch.device) -> Batch:
    trajectories = Trajectories(
        torch.tensor(group.ids, device=device),
        torch.tensor(group.mask, device=device),
        torch.tensor(group.logp, device=device),
        torch.tensor(group.turn, device=device),
        torch.full((len(group.ids),), group.version, dtype=torch.long, device=device),
        group.episodes,
    )
    return scored(config, trajectories, group.verdicts, [number] * len(group.ids))


def _act(config: Config, policy: nn.Module, weights: dict[str, torch.Tensor], version: Any, groups: Any, control: Connection) -> None:
    """The actor process: begin, advance, hand over, for ever."""
    torch.set_num_threads(1)
    verifier = Verifier()
    begun: deque[_Begun] = deque()
    draw, running, seen = 0, 0.0, 1
    while True:
        while control.poll():
            config = control.recv()
        rows = config.prompts * config.samples
        if sum(b.decoder.running for b in begun) < REFILL_BELOW * rows and len(begun) < MOST_DECODERS:
            begun.append(_begin(config, policy, weights, version, verifier, draw))
            draw += 1
        for b in begun:
            b.decoder.advance()
        running, seen = running + sum(b.decoder.running for b in begun) / rows, seen + 1
        for b in begun:
            _hand_over(b, config, verifier, groups, min(1.0, running / seen))
        while begun and len(begun[0].handed) == len(begun[0].groups):
            begun.popleft()


def _begin(config: Config, policy: nn.Module, weights: dict[str, torch.Tensor], version: Any, verifier: Verifier, draw: int) -> _Begun:
    with version.get_lock():
        policy.load_state_dict(weights)
        now = version.value
    episodes, numbers = draw_episodes(config, draw, 0, range(config.prompts))
    decoder = Decoder(
        copy.deepcopy(policy),
        episodes,
        verifier.judge,
        torch.Generator().manual_seed(seed_of(config.seed, "actor", draw)),
        max_length=config.max_length,
        device=torch.device("cpu"),
        temperature=config.temperature,
        reported=config.reported_temperature,
        version=now,
    )
    return _Begun(decoder, list(dict.fromkeys(numbers)), set())


def _hand_over(begun: _Begun, config: Config, verifier: Verifier, groups: Any, busy: float) -> None:
    """Put every group into the queue whose episodes have all ended; waits while the queue is full."""
    for index, number in enumerate(begun.groups):
        first = index * config.samples
        episodes = [row.episode for row in begun.decoder.rows[first : first + config.samples]]
        if number in begun.handed or any(e.stopped is None for e in episodes):
            continue
        t = begun.decoder.trajectories(first, config.samples)
        verdicts = verifier.score(episodes, frozenset(config.verifier), config.flaky_rate, f"{config.seed}/actor/{begun.decoder.version}/{number}")
        plain = (t.ids.tolist(), t.mask.tolist(), t.logp.tolist(), t.turn.tolist())
        groups.put(Group(*plain, begun.decoder.version, number, episodes, verdicts, busy))
        begun.handed.add(number)
