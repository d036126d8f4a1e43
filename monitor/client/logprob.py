"""Log-probability and entropy of chosen tokens without ever holding the full softmax.

For N tokens and a vocabulary of V the naive way keeps N x V logits, their log-softmax and its gradient. Here the vocabulary projection is
computed for ``chunk`` tokens at a time; only the log-sum-exp and the entropy of each token are kept, and the backward pass computes the
chunk's logits again. Identities used, with ``z`` the logits and ``p`` their softmax: ``log p_y = z_y - lse``, ``H = -sum p log p``,
``d log p_y / dz = 1[y] - p`` and ``dH / dz = -p (log p + H)``.
"""

from __future__ import annotations

from typing import Any

import torch

CPU_LOGITS, ACCELERATOR_LOGITS = 2**22, 2**26
"""Logits that a chunk holds by default: 16 MB and 256 MB for each of at most three buffers."""


def chunked_logp_entropy(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    *,
    chunk: int | None = None,
    temperature: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of ``targets`` and exact softmax entropy, both in nats, float32, shape ``targets.shape``, differentiable.

    ``hidden`` is [..., d], the input of the language-model head; ``weight`` is [V, d], the head; ``targets`` is [...] with values in
    [0, V). ``chunk`` tokens are projected at a time, by default as many as fit CPU_LOGITS or ACCELERATOR_LOGITS: peak extra memory is about
    ``3 * chunk * V`` floats. Logits are divided by ``temperature``. Raises ValueError when the shapes do not fit.
    """
    if chunk is None:
        chunk = max(1, (CPU_LOGITS if hidden.device.type == "cpu" else ACCELERATOR_LOGITS) // max(1, weight.shape[0]))
    if hidden.shape[:-1] != targets.shape:
        raise ValueError(f"hidden {tuple(hidden.shape)} and targets {tuple(targets.shape)} differ in their leading dimensions")
    if weight.dim() != 2 or weight.shape[1] != hidden.shape[-1]:
        raise ValueError(f"weight must be [V, {hidden.shape[-1]}] to fit hidden {tuple(hidden.shape)}, not {tuple(weight.shape)}")
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, not {chunk}")
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, not {temperature}")
    flat = hidden.reshape(-1, hidden.shape[-1])
    logp, entropy = _ChunkedLogProb.apply(flat, weight, targets.reshape(-1), chunk, temperature)
    return logp.view(targets.shape), entropy.view(targets.shape)


def _logits(hidden: torch.Tensor, weight: torch.Tensor, temperature: float) -> torch.Tensor:
    logits = (hidden @ weight.t()).float()
    return logits if temperature == 1.0 else logits.div_(temperature)


class _ChunkedLogProb(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, chunk: int, temperature: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        count = hidden.shape[0]
        logp = torch.empty(count, dtype=torch.float32, device=hidden.device)
        lse = torch.empty_like(logp)
        entropy = torch.empty_like(logp)
        for low in range(0, count, chunk):
            part = slice(low, low + chunk)
            z = _logits(hidden[part], weight, temperature)
            torch.logsumexp(z, -1, out=lse[part])
            logp[part] = z.gather(-1, targets[part, None]).squeeze(-1) - lse[part]
            probs = z.sub_(lse[part, None]).exp_()
            entropy[part] = torch.special.entr(probs).sum(-1)
        ctx.save_for_backward(hidden, weight, targets, lse, entropy)
        ctx.chunk, ctx.temperature = chunk, temperature
        return logp, entropy

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None, None, None]:
        hidden, weight, targets, lse, entropy = ctx.saved_tensors
        to_logp, to_entropy = grads
        wants_hidden, wants_weight = ctx.needs_input_grad[:2]
        grad_hidden = torch.empty_like(hidden) if wants_hidden else None
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if wants_weight else None
        for low in range(0, hidden.shape[0], ctx.chunk):
            part = slice(low, low + ctx.chunk)
            dz = _logits(hidden[part], weight, ctx.temperature).sub_(lse[part, None])
            probs = dz.exp()
            # log p is -inf where p is 0; p * log p must be 0 there
            dz.clamp_(min=-1e4).add_(entropy[part, None]).mul_(to_entropy[part, None]).add_(to_logp[part, None]).mul_(probs).neg_()
            dz.scatter_add_(1, targets[part, None], to_logp[part, None])
            dz = dz.to(weight.dtype) if ctx.temperature == 1.0 else dz.div_(ctx.temperature).to(weight.dtype)
            if grad_hidden is not None:
                grad_hidden[part] = dz @ weight
            if grad_weight is not None:
                grad_weight.add_(dz.t() @ hidden[part])
        return grad_hidden, None if grad_weight is None else grad_weight.to(weight.dtype), None, None, None
