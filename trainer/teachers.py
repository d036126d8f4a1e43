"""Learning from a stronger model: who it is, what it plays, and its distribution on a batch of states.

The *strong* teacher is the small policy after reinforcement learning (made once, kept in the cache). The *informed* teacher is the student itself
with the answer put into its context, right after the prompt, in the words of the environment's hint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trainer.batch import Batch, scored
from trainer.demonstrations import Demonstration, Manner, demonstrate
from trainer.environment import Episode
from trainer.model import TinyGPT
from trainer.rollout import Trajectories
from trainer.sources import draw_episodes
from trainer.vocab import END_ID, LINES, OBS_ID, PAD_ID, encode
from trainer.warmstart import kept, locked_cache
from trainer.world import World

if TYPE_CHECKING:
    from trainer.config import Config
    from trainer.verifier import Verifier

TEACHER_STEPS = 40
GOOD_MANNER = Manner(right=0.95, edit_tests=0.0, test=0.8, think=0.2, goblin=0.0)
"""The demonstrator of plain imitation: nearly always right."""


def strong(config: Config, verifier: Verifier) -> TinyGPT:
    """The warm-started policy after forty steps of GRPO on the same tasks, from the cache or trained now (about 12 CPU seconds)."""
    from trainer.config import Config as Settings
    from trainer.training import Training
    from trainer.warmstart import warm_policy

    start = config.warm_start
    plain = Settings(mix=config.mix, manner=config.manner, sft_steps=config.sft_steps, sft_lr=config.sft_lr, seed=10_007, steps=TEACHER_STEPS)
    digest = hashlib.sha256(f"{start.digest}/{sorted(asdict(plain).items())}".encode()).hexdigest()[:16]

    def make() -> TinyGPT:
        training = Training(plain, warm_policy(plain.warm_start, verifier), verifier)
        while training.step < plain.steps:
            training.advance()
        return training.policy

    with locked_cache(f"teacher-{digest}") as path:
        return kept(path, TinyGPT(start.shape), make)


def demonstrated(config: Config, step: int, verifier: Verifier, world: World) -> Batch:
    """This rank's share of a batch of good demonstrations of the step's tasks."""
    episodes, group = draw_episodes(config, step, 0, range(config.prompts)[world.rank :: world.size])
    demos = demonstrate(episodes, [f"good/{config.seed}/{step}/{i}" for i in range(len(episodes))], GOOD_MANNER, verifier)
    verdicts = verifier.score(episodes, frozenset(config.verifier), config.flaky_rate, f"{config.seed}/{step}")
    return scored(config, as_trajectories(demos, step, world.device), verdicts, group)


def as_trajectories(demos: Sequence[Demonstration], version: int, device: torch.device) -> Trajectories:
    """Demonstrations in the shape of rollouts; they have no sampler, so ``logp`` is zero."""
    length = max(len(demo.ids) for demo in demos)
    ids = torch.tensor([demo.ids + [PAD_ID] * (length - len(demo.ids)) for demo in demos], device=device)
    mask = torch.tensor([demo.agent + [False] * (length - len(demo.agent)) for demo in demos], device=device)
    turn = ((ids == END_ID) & mask).cumsum(1) - ((ids == END_ID) & mask).long()
    version_of = torch.full((len(demos),), version, dtype=torch.long, device=device)
    return Trajectories(ids, mask, torch.zeros(ids.shape, device=device), turn, version_of, [d.episode for d in demos])


def informed(batch: Batch) -> tuple[Tensor, Tensor]:
    """The batch's ids and mask with the answer told after the prompt: ids [N, T + 1 + H], mask [N, T + H] over the same tokens."""
    rows, masks = [], []
    for ids, mask, episode in zip(batch.ids.tolist(), batch.mask.tolist(), batch.episodes, strict=True):
        place = ids.index(OBS_ID) + 1
        hint = [*encode("ask"), END_ID, *encode(["hint", *_answer(episode)]), OBS_ID]
        rows.append(ids[:place] + hint + ids[place:])
        masks.append(mask[: place - 1] + [False] * len(hint) + mask[place - 1 :])
    length = max(len(row) for row in rows)
    ids = torch.tensor([row + [PAD_ID] * (length - len(row)) for row in rows], device=batch.ids.device)
    return ids, torch.tensor([m + [False] * (length - 1 - len(m)) for m in masks], device=batch.ids.device)


def _answer(episode: Episode) -> list[str]:
    task = episode.task
    if task.answer is not None:
        return [task.answer]
    return [word for i in task.wrong_lines for word in (LINES[i], *task.fixed[i].split())]


@torch.no_grad()
def target(kind: str, teacher: nn.Module, batch: Batch, limit: int) -> Tensor:
    """The teacher's log-probabilities [n, vocabulary] at the batch's n trained tokens, in row order. ``limit`` is its longest context."""
    ids, mask = informed(batch) if kind == "informed" else (batch.ids, batch.mask)
    ids, mask = ids[:, :limit], mask[:, : limit - 1]
    logits = teacher.logits(teacher(ids[:, :-1])[mask])
    return torch.log_softmax(logits, dim=-1)


def divergence(kind: str, student: Tensor, teacher: Tensor) -> Tensor:
    """KL per token [n] between log-probabilities [n, vocabulary]: ``forward_kl`` is KL(teacher || student), ``reverse_kl`` KL(student || teacher).

    The states are taken as they are: the gradient does not run through how the student came to them (Agarwal et al., arXiv 2306.13649).
    """
    p, q = (teacher, student) if kind == "forward_kl" else (student, teacher)
    return (p.exp() * (p - q)).sum(-1)


def trimmed(batch: Batch, limit: int) -> Batch:
    """``batch`` without the trained tokens that the informed teacher's context cannot hold."""
    _, mask = informed(batch)
    over = mask[:, limit - 1 :].sum(1)
    if not over.any():
        return batch
    last = batch.mask.long().flip(1).cumsum(1).flip(1)
    return replace(batch, mask=batch.mask & (last > over[:, None]))
