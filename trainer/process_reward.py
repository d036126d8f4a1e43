"""A process reward model: how likely is it that the code is right after this turn? Trained on labels that the environment can give.

Its predictions become step rewards as differences of a potential, ``p_k - p_(k-1)`` (Ng, Harada and Russell 1999), so that their sum over an
episode is the last prediction and going in circles earns nothing; its weights are a start for a separate critic. After "Let's verify step by
step" (arXiv 2305.20050), with labels from tests in place of people.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from random import Random

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trainer.batch import Batch
from trainer.demonstrations import Demonstration
from trainer.model import TinyGPT
from trainer.verifier import Verifier
from trainer.vocab import END_ID
from trainer.warmstart import WarmStart, collate, demonstrations, kept, locked_cache, warm_policy

STEPS, BATCH, LR = 80, 32, 2e-3


def turn_ends(ids: Tensor, mask: Tensor) -> Tensor:
    """[N, T] over the columns of ``mask``: true on the agent's end-of-turn tokens."""
    return mask & (ids[:, 1:] == END_ID)


def trained(setting: WarmStart, verifier: Verifier) -> TinyGPT:
    """The process reward model for a warm start, from the cache or trained now (about 5 CPU seconds); its value head gives the logit."""
    digest = hashlib.sha256(setting.digest.encode() + Path(__file__).read_bytes()).hexdigest()[:16]
    start = warm_policy(setting, verifier)
    with locked_cache(f"process-{digest}") as path:
        return kept(path, TinyGPT(setting.shape), lambda: train(start, setting, verifier))


def train(network: TinyGPT, setting: WarmStart, verifier: Verifier) -> TinyGPT:
    """Fit ``network`` on labelled demonstrations."""
    demos = demonstrations(setting, STEPS * BATCH, verifier)
    optimizer = torch.optim.AdamW(network.parameters(), lr=LR, weight_decay=0.0)
    order = Random(setting.seed)
    order.shuffle(demos)
    for step in range(STEPS):
        part = demos[step * BATCH : (step + 1) * BATCH]
        ids, agent = collate(part)
        label, known = _targets(part, ids, agent[:, 1:], verifier)
        for group in optimizer.param_groups:
            group["lr"] = LR * min(1.0, (step + 1) / 10) * (1 - step / STEPS)
        optimizer.zero_grad(set_to_none=True)
        logit = network.value(network(ids)[:, 1:])
        F.binary_cross_entropy_with_logits(logit[known], label[known]).backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
    return network


def _targets(part: list[Demonstration], ids: Tensor, mask: Tensor, verifier: Verifier) -> tuple[Tensor, Tensor]:
    labels = verifier.step_labels([demo.episode for demo in part])
    return spread(labels, ids, mask)


def spread(labels: list[list[float]], ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Labels per turn on their end-of-turn tokens [N, T], and where there is one. A turn cut off by the length limit has no end and no label."""
    ends = turn_ends(ids, mask)
    order = ends.cumsum(1) - 1
    longest = max((len(row) for row in labels), default=0)
    padded = torch.tensor([row + [0.0] * (longest + 1 - len(row)) for row in labels], device=ids.device)
    count = torch.tensor([len(row) for row in labels], device=ids.device)[:, None]
    return torch.gather(padded, 1, order.clamp(0, longest)), ends & (order < count)


@torch.no_grad()
def step_rewards(network: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Potential differences [N, T] on end-of-turn tokens, and the predictions [N, T] they come from."""
    ends = turn_ends(batch.ids, batch.mask)
    potential = torch.sigmoid(network.value(network(batch.ids)[:, 1:]))
    rewards = torch.zeros_like(potential)
    last = torch.zeros_like(potential[:, 0])
    for t in range(potential.shape[1]):
        here = ends[:, t]
        rewards[:, t] = torch.where(here, potential[:, t] - last, 0.0)
        last = torch.where(here, potential[:, t], last)
    return rewards, potential


def health(batch: Batch, potential: Tensor, verifier: Verifier) -> dict[str, float]:
    """How well the model tells right code from wrong on this batch: accuracy at 0.5 and Brier score over labelled turns."""
    label, known = spread(verifier.step_labels(batch.episodes), batch.ids, batch.mask)
    if not known.any():
        return {}
    p, y = potential[known], label[known]
    return {
        "env.metric.step_model_accuracy": float(((p > 0.5) == (y > 0.5)).float().mean()),
        "env.metric.step_model_brier": float((p - y).square().mean()),
    }
