"""What one batch of rollouts adds to the step: rewards, groups, advantages, lengths, staleness and the environment's counts."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import torch

from monitor.client.batch_health.accumulator import LENGTH_BINS, LENGTH_EXACT, LENGTH_FINE, Terms

Column = torch.Tensor | Sequence[float] | Sequence[int] | Sequence[bool]
"""One number per sequence: a tensor [N] or a list of N numbers."""

NONZERO = 1e-8


def reward_terms(
    rewards: Mapping[str, torch.Tensor],
    total: torch.Tensor | None,
    audit: torch.Tensor | None,
    groups: torch.Tensor | None,
    task: str,
    full_score: float,
    least_score: float,
) -> Terms:
    """Terms of the rewards, each [N]: ``rewards[task]`` is the task's score and every other entry a weighted auxiliary reward."""
    terms = Terms({}, {}, {}, {})
    score = rewards.get(task)
    aux = [value for name, value in rewards.items() if name != task]
    if score is not None:
        count = _count(score)
        terms.sums |= {"task.n": count, "task": score.sum(), "pass": (score >= full_score).sum(dtype=score.dtype)}
    if aux:
        count = _count(aux[0])
        terms.sums |= {"aux.n": count, "aux": torch.stack(aux).sum()}
        terms.parts = {name: value.sum() for name, value in rewards.items() if name != task}
    if total is None and rewards:
        total = torch.stack([*rewards.values()]).sum(0)
    if total is not None:
        count = _count(total)
        terms.sums |= {"total.n": count, "total": total.sum(), "total.2": total.square().sum()}
        terms.maxes |= {"total": total.amax(), "-total": -total.amin()}
    if audit is not None:
        terms.sums |= {"audit.n": _count(audit), "audit": audit.sum()}
    if groups is not None:
        terms.sums |= _group_sums(groups, score, total, torch.stack(aux).sum(0) if aux else None, full_score, least_score)
    return terms


def _group_sums(
    groups: torch.Tensor,
    score: torch.Tensor | None,
    total: torch.Tensor | None,
    aux: torch.Tensor | None,
    full_score: float,
    least_score: float,
) -> dict[str, torch.Tensor]:
    """Sums over groups without reading how many there are: N slots, of which the first ``number of groups`` are filled."""
    column = total if total is not None else score
    if column is None:
        return {}
    ordered, order = groups.sort()
    place = torch.zeros_like(ordered)
    place[1:] = (ordered[1:] != ordered[:-1]).cumsum(0)
    zeros = torch.zeros_like(column)
    size = zeros.scatter_add(0, place, torch.ones_like(column))
    filled = size > 0
    dtype = column.dtype
    sums = {"group.n": filled.sum(dtype=dtype)}
    if score is not None:
        ranked = score[order]
        passed = zeros.scatter_add(0, place, (ranked >= full_score).to(dtype)) == size
        failed = zeros.scatter_add(0, place, (ranked <= least_score).to(dtype)) == size
        sums |= {"group.pass": (passed & filled).sum(dtype=dtype), "group.fail": (failed & filled).sum(dtype=dtype)}
    if total is not None:
        ranked = total[order]
        top = zeros.scatter_reduce(0, place, ranked, "amax", include_self=False)
        low = zeros.scatter_reduce(0, place, ranked, "amin", include_self=False)
        mean = zeros.scatter_add(0, place, ranked) / size.clamp(min=1)
        apart = torch.where((top == low)[place], 0.0, ranked - mean[place])
        square = zeros.scatter_add(0, place, apart.square()) / size.clamp(min=1)
        sums |= {"group.flat": ((top == low) & filled).sum(dtype=dtype), "group.std": torch.where(filled, square.sqrt(), zeros).sum()}
        if aux is not None:
            sums |= {"group.var": apart.square().sum(), "group.aux_cov": (apart * aux[order]).sum()}
    return sums


def advantage_terms(advantages: torch.Tensor, mask: torch.Tensor | None, edges: torch.Tensor) -> Terms:
    """Terms of the advantages, [N] or [N, T] with ``mask`` [N, T]; a sequence's advantage is the mean over its trained tokens."""
    if advantages.dim() == 2:
        kept = torch.ones_like(advantages, dtype=torch.bool) if mask is None else mask
        values = torch.where(kept, advantages, 0.0)
        size = values.abs().amax(1)
        mean = values.sum(1) / kept.sum(1).clamp(min=1)
    else:
        size, mean = advantages.abs(), advantages
    dtype = mean.dtype
    bins = torch.bucketize(mean, edges, right=True)
    hist = torch.zeros(len(edges) + 1, dtype=dtype, device=mean.device).scatter_add_(0, bins, (~mean.isnan()).to(dtype))
    return Terms(
        {"adv.n": _count(mean), "adv": mean.sum(), "adv.nonzero": (size > NONZERO).sum(dtype=dtype)},
        {"adv.abs": size.amax()},
        {"adv.hist": hist},
    )


def length_terms(lengths: torch.Tensor) -> Terms:
    """Terms of the numbers of trained tokens per sequence, [N]."""
    above = LENGTH_EXACT + 1 + (LENGTH_FINE * (lengths.clamp(min=1) / LENGTH_EXACT).log2()).floor()
    bins = torch.where(lengths <= LENGTH_EXACT, lengths, above).clamp(0, LENGTH_BINS - 1).long()
    counts = torch.zeros(LENGTH_BINS, dtype=lengths.dtype, device=lengths.device).scatter_add_(0, bins, torch.ones_like(lengths))
    return Terms(
        {"len.n": _count(lengths), "len": lengths.sum()},
        {"len": lengths.amax(), "-len": -lengths.amin()},
        {"lengths": counts},
    )


def column_terms(name: str, column: torch.Tensor, *, peak: bool = False) -> Terms:
    """Count and sum of a column [N], with its maximum when ``peak``."""
    sums = {f"{name}.n": _count(column), name: column.sum()}
    return Terms(sums, {name: column.amax()} if peak else {}, {})


def group_column(groups: torch.Tensor | Sequence[Hashable]) -> torch.Tensor:
    """Group ids as integers [N]; a list may hold anything hashable."""
    if isinstance(groups, torch.Tensor):
        return groups
    numbers: dict[Hashable, int] = {}
    return torch.tensor([numbers.setdefault(group, len(numbers)) for group in groups], dtype=torch.int64)


def _count(column: torch.Tensor) -> torch.Tensor:
    return torch.full((), len(column), dtype=column.dtype, device=column.device)
