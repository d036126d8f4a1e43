"""Running sums, maxima and histograms of one step in fixed device vectors, and the two collectives that join them across ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from monitor.metrics import HISTOGRAM_BY_NAME

SUMS = (
    *("rows", "tokens", "iw.n", "iw", "iw.2", "iw.above2", "removed.n", "removed", "ratio.n", "ratio", "old.k3", "clip.n", "clip.low", "clip.high"),
    *("mismatch.n", "mismatch.k3", "mismatch.abs", "ref.n", "ref.k1", "ref.k3", "entropy.n", "entropy"),
    *("value.n", "value", "return.n", "return", "return.2", "error", "error.2"),
    *("rep.n", "rep.same", "rep.grams", "rep.distinct"),
    *("sequences", "task.n", "task", "pass", "aux.n", "aux", "total.n", "total", "total.2", "audit.n", "audit"),
    *("group.n", "group.pass", "group.fail", "group.flat", "group.std", "group.var", "group.aux_cov"),
    *("adv.n", "adv", "adv.nonzero", "len.n", "len", "truncated.n", "truncated", "stale.n", "stale"),
    *("turns.n", "turns", "calls.n", "calls", "failures.n", "failures", "errors.n", "errors"),
)
MAXES = (*("iw.log", "iw.-log", "iw.seq", "iw.seq_abs", "ratio.log", "mismatch.abs", "total", "-total", "adv.abs", "len", "-len", "stale"),)
_SUM_AT = {name: i for i, name in enumerate(SUMS)}
_MAX_AT = {name: i for i, name in enumerate(MAXES)}

LENGTH_EXACT = 4096
LENGTH_FINE = 64
LENGTH_OCTAVES = 8
LENGTH_BINS = LENGTH_EXACT + 1 + LENGTH_FINE * LENGTH_OCTAVES
"""Completion lengths are counted one by one up to 4096 tokens and in 64ths of an octave (1.1 %) from there to a million."""

HISTS = {"iw.hist": HISTOGRAM_BY_NAME["iw.hist"].bins, "adv.hist": HISTOGRAM_BY_NAME["adv.hist"].bins, "lengths": LENGTH_BINS}


@dataclass(slots=True)
class Terms:
    """What one observation adds: scalars by the names of SUMS and MAXES, counts by the names of HISTS, and sums by reward component."""

    sums: dict[str, torch.Tensor]
    maxes: dict[str, torch.Tensor]
    hists: dict[str, torch.Tensor]
    parts: dict[str, torch.Tensor] | None = None


class Accumulator:
    """The running vectors of one device. Nothing here reads a value back to the host."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.dtype = torch.float32 if device.type == "mps" else torch.float64
        self._places: dict[tuple[str, ...], torch.Tensor] = {}
        self.reset()

    def reset(self) -> None:
        self.sums = torch.zeros(len(SUMS), dtype=self.dtype, device=self.device)
        self.maxes = torch.full((len(MAXES),), float("-inf"), dtype=self.dtype, device=self.device)
        self.hists = {name: torch.zeros(bins, dtype=self.dtype, device=self.device) for name, bins in HISTS.items()}
        self.parts: dict[str, torch.Tensor] = {}
        self.vocab: torch.Tensor | None = None

    def add(self, terms: Terms) -> None:
        if terms.sums:
            self.sums.index_add_(0, self._place(tuple(terms.sums), _SUM_AT), torch.stack([*terms.sums.values()]))
        if terms.maxes:
            place = self._place(tuple(terms.maxes), _MAX_AT)
            self.maxes[place] = torch.maximum(self.maxes[place], torch.stack([*terms.maxes.values()]))
        for name, counts in terms.hists.items():
            self.hists[name].add_(counts)
        for name, total in (terms.parts or {}).items():
            self.parts[name] = self.parts[name] + total if name in self.parts else total

    def count_tokens(self, token_ids: torch.Tensor, mask: torch.Tensor, vocab_size: int) -> None:
        """Add trained tokens to the counts by token. Ids outside [0, vocab_size) are counted at its ends."""
        if self.vocab is None:
            self.vocab = torch.zeros(vocab_size, dtype=self.dtype, device=self.device)
        self.vocab.scatter_add_(0, token_ids.clamp(0, vocab_size - 1).flatten(), mask.flatten().to(self.dtype))

    def merge(self, other: Accumulator) -> None:
        """Add what ``other`` gathered on another device, and reset it."""
        self.sums.add_(_move(other.sums, self.device))
        torch.maximum(self.maxes, _move(other.maxes, self.device), out=self.maxes)
        for name, counts in other.hists.items():
            self.hists[name].add_(_move(counts, self.device))
        for name, total in other.parts.items():
            moved = _move(total, self.device)
            self.parts[name] = self.parts[name] + moved if name in self.parts else moved
        if other.vocab is not None:
            moved = _move(other.vocab, self.device)
            self.vocab = moved if self.vocab is None else self.vocab + moved
        other.reset()

    def reduce(self, group: Any = None) -> None:
        """Join the ranks of ``group`` with one SUM and one MAX. Every rank must observe the same reward components.

        A MAX collective may lose NaN, so each maximum travels with a NaN flag in the SUM.
        """
        nan = self.maxes.isnan()
        names = sorted(self.parts)
        pieces = [self.sums, nan.to(self.dtype), *self.hists.values(), *(self.parts[name].view(1) for name in names)]
        if self.vocab is not None:
            pieces.append(self.vocab)
        joined = torch.cat(pieces)
        maxes = self.maxes.masked_fill(nan, float("-inf"))
        torch.distributed.all_reduce(joined, torch.distributed.ReduceOp.SUM, group=group)
        torch.distributed.all_reduce(maxes, torch.distributed.ReduceOp.MAX, group=group)
        out = iter(joined.split([piece.numel() for piece in pieces]))
        self.sums = next(out)
        self.maxes = torch.where(next(out) > 0, float("nan"), maxes)
        self.hists = {name: next(out) for name in self.hists}
        self.parts = {name: next(out).view(()) for name in names}
        if self.vocab is not None:
            self.vocab = next(out)

    def _place(self, names: tuple[str, ...], at: dict[str, int]) -> torch.Tensor:
        place = self._places.get(names)
        if place is None:
            place = torch.tensor([at[name] for name in names], device=self.device)
            self._places[names] = place
        return place


def _move(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    if tensor.device == device:
        return tensor
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
