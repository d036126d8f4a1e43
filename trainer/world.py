"""The ranks of a distributed run, and the few sums they exchange. With one rank nothing is exchanged."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True, slots=True)
class World:
    """``rank`` of ``size`` processes, working on ``device``."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def sum(self, value: Tensor) -> Tensor:
        """The sum over all ranks, on every rank."""
        if self.size == 1:
            return value
        total = value.detach().clone()
        dist.all_reduce(total)
        return total

    def largest(self, value: Tensor) -> Tensor:
        """The maximum over all ranks, on every rank."""
        if self.size == 1:
            return value
        top = value.detach().clone()
        dist.all_reduce(top, op=dist.ReduceOp.MAX)
        return top

    def mean(self, values: Tensor, mask: Tensor) -> Tensor:
        """Mean of ``values`` where ``mask`` holds, over all ranks."""
        total, count = self.sum(torch.stack([torch.where(mask, values, 0.0).sum(), mask.sum()]))
        return total / count.clamp(min=1)

    def share(self, count: Tensor) -> Tensor:
        """What this rank divides its sum by, so that the mean of the ranks' results, which is what averaged gradients are, is the global mean."""
        return self.sum(count.to(torch.float32)) / self.size


def launched() -> bool:
    """Whether torchrun started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def join(device: str | None) -> World:
    """Join the process group that torchrun describes: NCCL on GPUs, one per local rank, gloo on the CPU."""
    cuda = torch.cuda.is_available() if device is None else device.startswith("cuda")
    place = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(place)
    dist.init_process_group("nccl" if cuda else "gloo")
    return World(dist.get_rank(), dist.get_world_size(), place)


def leave() -> None:
    """Leave the process group, if this process is in one."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
