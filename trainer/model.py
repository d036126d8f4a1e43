"""The small policy: a causal transformer with a token shift, tied head and value head, and a key-value cache for lockstep decoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from monitor.client.logprob import chunked_logp_entropy


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of the network. ``length`` is the longest episode in tokens."""

    vocabulary: int
    width: int = 64
    layers: int = 2
    heads: int = 4
    length: int = 160


class Evaluated(NamedTuple):
    """``logp`` and ``entropy`` [N, T] of the marked tokens in nats (0 elsewhere) and ``hidden`` [N, T, d], from which they were predicted.

    Column t stands for token t + 1.
    """

    logp: Tensor
    entropy: Tensor
    hidden: Tensor


def evaluated(hidden: Tensor, head: Tensor, ids: Tensor, mask: Tensor) -> Evaluated:
    """Score the tokens ``ids[:, 1:]`` [N, T] that ``mask`` [N, T] marks, from ``hidden`` [N, T, d] and the output matrix [vocabulary, d]."""
    targets = ids[:, 1:]
    if ids.device.type != "cpu":
        logp, entropy = chunked_logp_entropy(hidden, head, targets)
        return Evaluated(torch.where(mask, logp, 0.0), torch.where(mask, entropy, 0.0), hidden)
    where = mask.nonzero(as_tuple=True)  # on a GPU this would wait for the device; there the other positions are computed too
    logp, entropy = chunked_logp_entropy(hidden[where], head, targets[where])
    empty = torch.zeros(mask.shape)
    return Evaluated(empty.index_put(where, logp), empty.index_put(where, entropy), hidden)


class Cache:
    """Keys and values of every layer for a batch of rows that share one position; memory is taken once."""

    def __init__(self, shape: Shape, rows: int, like: Tensor) -> None:
        size = (shape.layers, 2, rows, shape.heads, shape.length, shape.width // shape.heads)
        self.memory = like.new_empty(size)
        self.position = 0
        self.previous: Tensor | None = None

    def keep(self, rows: Tensor) -> None:
        """Forget all rows but ``rows`` (indices)."""
        self.memory = self.memory[:, :, rows].contiguous()
        if self.previous is not None:
            self.previous = self.previous[rows]


class Block(nn.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        self.heads = shape.heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, memory: Tensor | None = None, position: int = 0) -> Tensor:
        """``x`` [B, T, width]. With ``memory`` [2, B, heads, length, width/heads], T is 1 and the token stands at ``position``."""
        rows, length, width = x.shape
        q, k, v = (part.view(rows, length, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        if memory is None:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            memory[0, :, :, position : position + 1] = k
            memory[1, :, :, position : position + 1] = v
            mixed = F.scaled_dot_product_attention(q, memory[0, :, :, : position + 1], memory[1, :, :, : position + 1])
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class TinyGPT(nn.Module):
    """131 thousand parameters at the default shape.

    Two choices decide whether it learns from a few thousand demonstrations: the tied embedding starts at a standard deviation of 0.12 (at the
    usual 0.02 it does not get off the ground), and each position also sees a linear map of the token before it. ``recompute`` trades
    activations for a second forward pass (gradient checkpointing).
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.recompute = False
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.length, shape.width)
        self.shift = nn.Linear(shape.width, shape.width, bias=False)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.value_head = nn.Linear(shape.width, 1)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02 if module in (b.out for b in self.blocks) else shape.width**-0.5 / 2)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.embedding.weight, std=0.12)
        nn.init.normal_(self.positions.weight, std=0.02)
        nn.init.zeros_(self.value_head.weight)

    @property
    def head(self) -> Tensor:
        """Output matrix [vocabulary, width]: logits are ``hidden @ head.T``."""
        return self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Hidden states [B, T, width] of ``ids`` [B, T]; the one at t predicts token t + 1."""
        words = self.embedding(ids)
        x = words + F.pad(self.shift(words[:, :-1]), (0, 0, 1, 0)) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute and self.training and torch.is_grad_enabled() else block(x)
        return self.norm(x)

    def evaluate(self, ids: Tensor, mask: Tensor) -> Evaluated:
        """Log-probability and entropy of the tokens that ``mask`` marks; see :class:`Evaluated`."""
        return evaluated(self(ids[:, :-1]), self.head, ids, mask)

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores [..., vocabulary] of the next token."""
        return F.linear(hidden, self.head)

    def value(self, hidden: Tensor) -> Tensor:
        """Expected return [B, T] after each position."""
        return self.value_head(hidden).squeeze(-1)

    def new_cache(self, rows: int) -> Cache:
        return Cache(self.shape, rows, self.embedding.weight)

    def step(self, ids: Tensor, cache: Cache) -> Tensor:
        """Logits [B, vocabulary] after one more token ``ids`` [B] per row."""
        words = self.embedding(ids)
        x = words + self.positions.weight[cache.position]
        if cache.previous is not None:
            x = x + self.shift(cache.previous)
        cache.previous = words
        x = x[:, None]
        for layer, block in enumerate(self.blocks):
            x = block(x, cache.memory[layer], cache.position)
        cache.position += 1
        return self.logits(self.norm(x[:, 0]))
