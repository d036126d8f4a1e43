"""Lockstep decoding: every row of a batch stands at the same position and either samples or is fed the next word of its environment.

No padding and no position ids are needed, observations of any length interleave for free, behaviour log-probabilities exist exactly for the
sampled tokens, and the loss mask is exactly "was sampled".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from trainer.environment import Episode
from trainer.sandbox import Candidate
from trainer.vocab import END_ID, OBS_ID, PAD_ID, TASK_ID, decode, encode

COMPACT_BELOW = 0.6
"""Finished rows are dropped from the batch when fewer than this share is still running."""


class Policy(Protocol):
    """What the sampler asks of a model."""

    def new_cache(self, rows: int) -> Any: ...

    def step(self, ids: Tensor, cache: Any) -> Tensor: ...


@dataclass(slots=True)
class Trajectories:
    """A batch of finished episodes, padded on the right.

    ``ids`` [B, T]; ``mask`` [B, T] is true where the token was sampled by the agent; ``logp`` [B, T] its log-probability under the sampler (0
    elsewhere); ``turn`` [B, T] counts the agent's turns from 0; ``version`` [B] is the policy version that sampled the row.
    """

    ids: Tensor
    mask: Tensor
    logp: Tensor
    turn: Tensor
    version: Tensor
    episodes: list[Episode]


@dataclass(slots=True)
class _Row:
    episode: Episode
    queue: deque[int]
    ids: list[int] = field(default_factory=list)
    sampled: list[bool] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    turn: list[int] = field(default_factory=list)
    words: list[int] = field(default_factory=list)

    def push(self, token: int, sampled: bool, logp: float) -> None:
        self.ids.append(token)
        self.sampled.append(sampled)
        self.logp.append(logp)
        self.turn.append(self.episode.counts["turns"])


class Decoder:
    """A batch of episodes in lockstep; :meth:`advance` gives every running row one more token.

    ``judge`` answers the agents' test turns. ``temperature`` divides the logits; the recorded log-probabilities are those of the tempered
    distribution, or wrongly those at temperature ``reported``. Several decoders may share a policy, each with its own cache: while one is
    down to its longest episodes, another one keeps the processor busy.
    """

    def __init__(
        self,
        policy: Policy,
        episodes: Sequence[Episode],
        judge: Callable[[list[Candidate]], list[str]],
        generator: torch.Generator,
        *,
        max_length: int,
        device: torch.device,
        temperature: float = 1.0,
        reported: float | None = None,
        version: int = 0,
    ) -> None:
        self.policy, self.judge, self.generator = policy, judge, generator
        self.max_length, self.device, self.temperature, self.version = max_length, device, temperature, version
        self.reported = temperature if reported is None else reported
        self.rows = [_Row(e, deque([TASK_ID, *encode(e.task.prompt), OBS_ID])) for e in episodes]
        for row in self.rows:
            row.push(row.queue.popleft(), False, 0.0)
        self.alive = list(self.rows)
        self.cache = policy.new_cache(len(self.rows))

    @property
    def running(self) -> int:
        """Number of episodes that have not ended."""
        return sum(row.episode.stopped is None for row in self.rows)

    @torch.no_grad()
    def advance(self) -> None:
        """One more token for every running episode."""
        current = torch.tensor([row.ids[-1] for row in self.alive], device=self.device)
        logits = self.policy.step(current, self.cache).float()
        logp = torch.log_softmax(logits / self.temperature, dim=-1)
        choice = torch.multinomial(logp.exp(), 1, generator=self.generator)
        if self.reported != self.temperature:
            logp = torch.log_softmax(logits / self.reported, dim=-1)
        chosen, chosen_logp = choice.squeeze(1).tolist(), logp.gather(1, choice).squeeze(1).tolist()
        _advance(self.alive, chosen, chosen_logp, self.judge, self.max_length)
        running = [i for i, row in enumerate(self.alive) if row.episode.stopped is None]
        if len(running) < COMPACT_BELOW * len(self.alive):
            self.alive = [self.alive[i] for i in running]
            self.cache.keep(torch.tensor(running, device=self.device, dtype=torch.long))

    def trajectories(self, first: int = 0, count: int | None = None) -> Trajectories:
        """The ended episodes ``first`` to ``first + count`` (default: all)."""
        return _padded(self.rows[first : None if count is None else first + count], self.version, self.device)


def rollout(
    policy: Policy, episodes: Sequence[Episode], judge: Callable[[list[Candidate]], list[str]], generator: torch.Generator, **how: Any
) -> Trajectories:
    """Play ``episodes`` to their end and return them in the same order; ``how`` as for :class:`Decoder`."""
    decoder = Decoder(policy, episodes, judge, generator, **how)
    while decoder.running:
        decoder.advance()
    return decoder.trajectories()


def _advance(alive: list[_Row], chosen: list[int], logp: list[float], judge: Callable[[list[Candidate]], list[str]], max_length: int) -> None:
    """Give every running row its next token and carry out the turns that end with it."""
    ended: list[tuple[_Row, list[str]]] = []
    for row, token, value in zip(alive, chosen, logp, strict=True):
        if row.episode.stopped is not None:
            continue
        if row.queue:
            row.push(row.queue.popleft(), False, 0.0)
        else:
            row.push(token, True, value)
            if token == END_ID:
                ended.append((row, decode(row.words).split()))
                row.words.clear()
            else:
                row.words.append(token)
    checks = [(row, words) for row, words in ended if row.episode.wants_check(words)]
    outcomes = dict(zip((id(row) for row, _ in checks), judge([row.episode.candidate for row, _ in checks]) if checks else (), strict=True))
    for row, words in ended:
        if seen := row.episode.act(words, outcomes.get(id(row))):
            row.queue.extend([*encode(seen), OBS_ID])
    for row in alive:
        if row.episode.stopped is None and len(row.ids) >= max_length:
            row.episode.stopped = "length"
            if row.words:
                row.episode.turns.append(("agent", decode(row.words)))


def _padded(rows: list[_Row], version: int, device: torch.device) -> Trajectories:
    length = max(len(row.ids) for row in rows)

    def pad(values: list[list[Any]], fill: float, dtype: torch.dtype) -> Tensor:
        return torch.tensor([v + [fill] * (length - len(v)) for v in values], dtype=dtype, device=device)

    return Trajectories(
        pad([row.ids for row in rows], PAD_ID, torch.long),
        pad([row.sampled for row in rows], False, torch.bool),
        pad([row.logp for row in rows], 0.0, torch.float32),
        pad([row.turn for row in rows], 0, torch.long),
        torch.full((len(rows),), version, dtype=torch.long, device=device),
        [row.episode for row in rows],
    )
