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
    sampled: int = 0

    def to(self, device: torch.device) -> Trajectories:
        moved = (t.to(device, non_blocking=True) for t in (self.ids, self.mask, self.logp, self.turn, self.version))
        return Trajectories(*moved, self.episodes, self.sampled)


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


@torch.no_grad()
def rollout(
    policy: Policy,
    episodes: Sequence[Episode],
    judge: Callable[[list[Candidate]], list[str]],
    generator: torch.Generator,
    *,
    max_length: int,
    device: torch.device,
    temperature: float = 1.0,
    version: int = 0,
    hints: Sequence[Sequence[int]] | None = None,
) -> Trajectories:
    """Play ``episodes`` to their end with ``policy`` and return them in the same order.

    ``judge`` answers the agents' test turns. ``temperature`` divides the logits; the recorded log-probabilities are those of the tempered
    distribution. ``hints`` are ids put before each prompt (a teacher that is told more than its student).
    """
    rows = [_Row(e, deque([*(hints[i] if hints else ()), TASK_ID, *encode(e.task.prompt), OBS_ID])) for i, e in enumerate(episodes)]
    for row in rows:
        row.push(row.queue.popleft(), False, 0.0)
    alive = list(rows)
    cache = policy.new_cache(len(rows))
    current = torch.tensor([row.ids[-1] for row in rows], device=device)
    while alive:
        logits = policy.step(current, cache).float() / temperature
        logp = torch.log_softmax(logits, dim=-1)
        choice = torch.multinomial(logp.exp(), 1, generator=generator)
        chosen, chosen_logp = choice.squeeze(1).tolist(), logp.gather(1, choice).squeeze(1).tolist()
        _advance(alive, chosen, chosen_logp, judge, max_length)
        running = [i for i, row in enumerate(alive) if row.episode.stopped is None]
        if len(running) < COMPACT_BELOW * len(alive):
            alive = [alive[i] for i in running]
            cache.keep(torch.tensor(running, device=device, dtype=torch.long))
        elif not running:
            break
        current = torch.tensor([row.ids[-1] for row in alive], device=device)
    return _padded(rows, version, device)


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
        sum(sum(row.sampled) for row in rows),
    )
