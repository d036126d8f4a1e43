"""The policy that a configuration asks for, after its warm start."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from torch import nn

from trainer import huggingface
from trainer.config import Config
from trainer.verifier import Verifier
from trainer.warmstart import fit, kept, locked_cache, warm_policy
from trainer.world import World


def build(config: Config, verifier: Verifier, world: World, tell: Callable[[str, float], None] | None = None) -> nn.Module:
    """The warm-started policy on the world's device. One rank makes a warm start, the others wait for it in the cache.

    A model from disk is warmed up without the cache, by every rank alike: what it becomes is kept by the run's own checkpoints.
    """
    say = tell or (lambda label, share: None)
    setting = config.warm_start
    if config.policy == "tiny":
        return warm_policy(setting, verifier, say).to(world.device)
    policy = huggingface.build(config.policy, setting.shape.length)
    if config.policy not in huggingface.ARCHITECTURES:
        policy = policy.to(world.device)
        fit(policy, setting, verifier, say)
        return policy
    digest = hashlib.sha256(f"{setting.digest}/{config.policy}".encode()).hexdigest()[:16]

    def make() -> huggingface.HFPolicy:
        fit(policy, setting, verifier, say)
        return policy

    with locked_cache(f"{config.policy}-{digest}") as path:
        return kept(path, policy, make).to(world.device)
