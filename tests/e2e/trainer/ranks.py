"""Run under torchrun: one update on a fixed batch, spread over the ranks; rank 0 writes the metrics and the weights after it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random

import torch
from torch import nn

from monitor.client.batch_health import BatchHealth
from trainer import sharding, vocab
from trainer.batch import Batch, with_advantages
from trainer.config import Config, changed
from trainer.environment import Episode
from trainer.huggingface import build
from trainer.learner import Learner
from trainer.model import Shape, TinyGPT
from trainer.tasks.repair import RUNNING_EXAMPLE
from trainer.verifier import Verdict
from trainer.world import World, join, leave

ROWS, LENGTH, SAMPLES = 8, 40, 2


def fixed_batch(world: World) -> Batch:
    """This rank's rows of a made-up batch of unequal lengths."""
    rng = torch.Generator().manual_seed(5)
    ids = torch.randint(1, vocab.SIZE, (ROWS, LENGTH + 1), generator=rng)
    mask = torch.rand(ROWS, LENGTH, generator=rng) < 0.4
    for row in range(ROWS):
        mask[row, LENGTH - 3 * row :] = False
    behaviour = torch.where(mask, -4.7 + 0.3 * torch.randn(ROWS, LENGTH, generator=rng), 0.0)
    total = torch.randn(ROWS, generator=rng)
    turn, version, zeros = torch.zeros_like(mask, dtype=torch.long), torch.zeros(ROWS, dtype=torch.long), torch.zeros(ROWS, LENGTH)
    episodes = [Episode(RUNNING_EXAMPLE, RUNNING_EXAMPLE.tests) for _ in range(ROWS)]
    verdicts = [Verdict(float(t > 0), 0.5, float(t > 0)) for t in total]
    whole = Batch(
        ids, mask, behaviour, turn, version, episodes, verdicts, {"task": total.tolist()}, [i // SAMPLES for i in range(ROWS)], total, zeros
    )
    share = [i for i in range(ROWS) if (i // SAMPLES) % world.size == world.rank]
    return whole.rows(share)


def policy_of(name: str) -> nn.Module:
    torch.manual_seed(3)
    return TinyGPT(Shape(vocab.SIZE)) if name == "tiny" else build(name, 160, seed=3)


def one_update(config: Config, name: str, world: World) -> tuple[dict[str, float], dict[str, torch.Tensor]]:
    """Metrics and weights after one update."""
    policy, reference = policy_of(name), policy_of(name)
    if world.size > 1:
        policy, reference = sharding.shard(policy, world), sharding.shard(reference, world)
    learner = Learner(config, policy, reference, None, None, world)
    batch = fixed_batch(world)
    before = learner.evaluate(batch)
    batch, returns = with_advantages(config, batch, None, None, world)
    health = BatchHealth(vocab.SIZE)
    measured = learner.update(config, batch, before, returns, health, Random(0), 0)
    health.observe_batch(rewards=batch.components, groups=batch.group, advantages=batch.advantages, mask=batch.mask)
    if world.size > 1:
        health.reduce()
    health.pack(0)
    reading = health.collect(wait=True)
    assert reading is not None
    return reading.values | measured, sharding.full_weights(policy)


def main() -> None:
    torch.set_num_threads(1)
    out, world = Path(sys.argv[1]), join("cpu")
    results = {}
    for name in ("tiny", "qwen2", "llama"):
        for algorithm in ("grpo", "reinforce", "dapo"):
            config = changed(Config(), {"algorithm": algorithm, "samples": SAMPLES, "prompts": ROWS // SAMPLES, "minibatches": 1})
            values, weights = one_update(config, name, world)
            results[f"{name}/{algorithm}"] = {"values": values, "weights": {key: value.flatten()[:50].tolist() for key, value in weights.items()}}
    if world.rank == 0:
        out.write_text(json.dumps(results))
    leave()


if __name__ == "__main__":
    main()
