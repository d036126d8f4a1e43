"""FSDP2: a policy spread over ranks, its full weights for sampling and for checkpoints."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from trainer.world import World

FULL = StateDictOptions(full_state_dict=True, broadcast_from_rank0=False)


def shard(policy: nn.Module, world: World, *, bf16: bool = False) -> nn.Module:
    """Shard ``policy`` over all ranks, block by block; ``bf16`` computes in bfloat16 and reduces gradients in float32.

    The policy names its ``blocks``. Every rank must hold the same weights before.
    """
    mesh = init_device_mesh(world.device.type, (world.size,))
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if bf16 else MixedPrecisionPolicy()
    for block in policy.blocks:
        fully_shard(block, mesh=mesh, mp_policy=precision)
    fully_shard(policy, mesh=mesh, mp_policy=precision)
    for name in ("evaluate", "logits"):
        register_fsdp_forward_method(policy, name)
    return policy


def is_sharded(policy: nn.Module) -> bool:
    return any(isinstance(weight, DTensor) for weight in policy.parameters())


def full_weights(policy: nn.Module) -> dict[str, Any]:
    """The whole weights, on every rank."""
    return get_model_state_dict(policy, options=FULL)


def full_optimizer(policy: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The whole optimiser state, on every rank."""
    return get_optimizer_state_dict(policy, optimizer, options=FULL)


def load_optimizer(policy: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """The inverse of :func:`full_optimizer`."""
    set_optimizer_state_dict(policy, optimizer, state, options=FULL)


def load_weights(policy: nn.Module, weights: dict[str, Any]) -> None:
    """Put whole weights into a policy, sharded or not."""
    from torch.distributed.checkpoint.state_dict import set_model_state_dict

    set_model_state_dict(policy, weights, options=FULL)


def whole(value: torch.Tensor) -> torch.Tensor:
    """A tensor that every rank has in full."""
    return value.full_tensor() if isinstance(value, DTensor) else value
