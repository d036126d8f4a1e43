"""How far an optimizer is about to move the weights, computed from its state before it does."""

from __future__ import annotations

from typing import Any

import torch


def update_norm_squared(optimizer: Any) -> torch.Tensor:
    """Squared L2 norm of the change that ``optimizer.step()`` would make, on the parameters' device, without weight decay.

    Exact for Adam and AdamW (D. Kingma and J. Ba, arXiv 1412.6980; also with AMSGrad) and for SGD with momentum; for any other optimizer
    ``(lr * gradient)**2``, which still shows a jump of either. A sharded parameter contributes its own shard.
    """
    kind = type(optimizer).__name__
    measure = _adam if kind in ("Adam", "AdamW") else _sgd
    total: torch.Tensor | None = None
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            part = measure(_local(parameter.grad), optimizer.state.get(parameter) or {}, group)
            total = part if total is None else total + part.to(total.device)
    return torch.zeros(()) if total is None else total


def _local(tensor: torch.Tensor) -> torch.Tensor:
    local = getattr(tensor, "to_local", None)
    return (tensor if local is None else local()).detach().float()


def _adam(grad: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> torch.Tensor:
    beta1, beta2 = group["betas"]
    sign = -1.0 if group.get("maximize") else 1.0
    step = state.get("step", 0.0) + 1.0
    first = (1 - beta1) * sign * grad
    second = (1 - beta2) * grad.square()
    if state:
        first = first.add_(_local(state["exp_avg"]), alpha=beta1)
        second = second.add_(_local(state["exp_avg_sq"]), alpha=beta2)
        if "max_exp_avg_sq" in state:
            second = torch.maximum(second, _local(state["max_exp_avg_sq"]))
    change = group["lr"] / (1 - beta1**step) * first / ((second / (1 - beta2**step)).sqrt() + group["eps"])
    return change.double().square().sum() if change.device.type != "mps" else change.square().sum()


def _sgd(grad: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> torch.Tensor:
    momentum = group.get("momentum", 0.0)
    change = grad
    if momentum and state.get("momentum_buffer") is not None:
        buffer = momentum * _local(state["momentum_buffer"]) + (1 - group.get("dampening", 0.0)) * grad
        change = grad + momentum * buffer if group.get("nesterov") else buffer
    elif momentum and group.get("nesterov"):
        change = grad * (1 + momentum)
    return (group["lr"] * change.double()).square().sum() if change.device.type != "mps" else (group["lr"] * change).square().sum()
