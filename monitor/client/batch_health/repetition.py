"""Repetition of trained tokens, on the device: sorts and comparisons, no lookup table and no host read."""

from __future__ import annotations

import torch

from monitor.client.batch_health.accumulator import Terms

GRAM = 4
_MIX = 0x5851F42D4C957F2D
_LAST = torch.iinfo(torch.int64).max


def repetition_terms(token_ids: torch.Tensor, mask: torch.Tensor, vocab_size: int | None, dtype: torch.dtype) -> Terms:
    """Terms of ``token_ids`` [B, T] where ``mask`` [B, T] marks trained tokens.

    A 4-gram is four neighbouring trained tokens; distinct ones are counted within each sequence. With ``vocab_size ** 4`` below 2**63
    4-grams are told apart exactly, otherwise by a 64-bit hash.
    """
    same = (token_ids[:, 1:] == token_ids[:, :-1]) & mask[:, 1:]
    sums = {"rep.n": mask.sum(dtype=dtype), "rep.same": same.sum(dtype=dtype)}
    if token_ids.shape[1] >= GRAM:
        base = vocab_size if vocab_size is not None and vocab_size**GRAM < 2**63 else _MIX
        windows = token_ids.shape[1] - GRAM + 1
        key = torch.zeros_like(token_ids[:, :windows], dtype=torch.int64)
        whole = torch.ones_like(mask[:, :windows])
        for offset in range(GRAM):
            key = key * base + token_ids[:, offset : offset + windows]
            whole = whole & mask[:, offset : offset + windows]
        ordered = torch.where(whole, key, _LAST).sort(1).values
        fresh = ordered[:, 1:] != ordered[:, :-1]
        distinct = (fresh & (ordered[:, 1:] != _LAST)).sum(dtype=dtype) + (ordered[:, 0] != _LAST).sum(dtype=dtype)
        sums |= {"rep.grams": whole.sum(dtype=dtype), "rep.distinct": distinct}
    return Terms(sums, {}, {})
