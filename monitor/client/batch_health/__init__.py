"""Health of a training batch, computed where the batch lives and read one step later.

>>> health = BatchHealth(vocab_size=32_000, eps_low=0.2, eps_high=0.2)
>>> health.observe_batch(rewards={"task": task, "style": style}, groups=prompt_ids, advantages=adv, truncated=cut)   # once per rollout batch
>>> health.observe(logp, behaviour_logp, mask, old_logp=old, entropy=entropy, advantages=adv, token_ids=ids)         # per micro-batch
>>> health.pack(step, grad_norm=norm, loss=loss, lr=lr)                                                              # after the update
>>> while (reading := health.collect()) is not None:
...     run.log(reading.values, step=reading.step, hists=reading.hists)

Nothing between ``observe`` and ``collect`` waits for the device: no value is read, no boolean index taken. ``pack`` starts one copy into
pinned memory, and ``collect`` hands it out once it has arrived, on a GPU usually during the next step. All sums are float64, so weights
are reported untruncated; NaN stays NaN. Results for a rank are those of its own sequences unless ``reduce`` joins them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeAlias

import torch

from monitor.client.batch_health import rollouts, tokens
from monitor.client.batch_health.accumulator import HISTS, MAXES, SUMS, Accumulator, Terms
from monitor.client.batch_health.reading import Reading, length_metrics, metrics_of
from monitor.client.batch_health.repetition import repetition_terms
from monitor.client.batch_health.rollouts import Column
from monitor.metrics import HISTOGRAM_BY_NAME

__all__ = ["BatchHealth", "Column", "Reading"]

Scalar: TypeAlias = "torch.Tensor | float"
_P = ParamSpec("_P")


def _without_grad(method: Callable[_P, None]) -> Callable[_P, None]:
    @wraps(method)
    def quiet(*args: _P.args, **kwargs: _P.kwargs) -> None:
        with torch.no_grad():
            method(*args, **kwargs)

    return quiet


@dataclass(slots=True)
class _Pending:
    step: int | None
    packed: torch.Tensor
    parts: list[str]
    scalars: list[str]
    has_top: bool
    known: dict[str, float]
    copied: Any


class BatchHealth:
    """Accumulates every per-batch metric of the catalogue over the micro-batches of a step.

    ``vocab_size`` allows the share of the commonest token. ``eps_low`` and ``eps_high`` are the clip range of the loss: a token counts as
    clipped when r < 1 - eps_low and A < 0, or r > 1 + eps_high and A > 0. ``task`` names the reward component that is the task; its score
    counts as passed from ``full_score`` and as failed up to ``least_score``.
    """

    def __init__(
        self,
        vocab_size: int | None = None,
        *,
        eps_low: float = 0.2,
        eps_high: float = 0.2,
        task: str = "task",
        full_score: float = 1.0,
        least_score: float = 0.0,
    ) -> None:
        if vocab_size is not None and vocab_size < 1:
            raise ValueError(f"vocab_size must be at least 1, not {vocab_size}")
        if not (eps_low >= 0 and eps_high >= 0):
            raise ValueError(f"eps_low and eps_high must be at least 0, not {eps_low} and {eps_high}")
        self.vocab_size = vocab_size
        self.eps_low = eps_low
        self.eps_high = eps_high
        self.task = task
        self.full_score = full_score
        self.least_score = least_score
        self._accumulators: dict[torch.device, Accumulator] = {}
        self._edges: dict[tuple[str, torch.device], torch.Tensor] = {}
        self._pending: deque[_Pending] = deque()

    @_without_grad
    def observe(
        self,
        logp: torch.Tensor,
        behaviour_logp: torch.Tensor | None,
        mask: torch.Tensor,
        *,
        old_logp: torch.Tensor | None = None,
        ref_logp: torch.Tensor | None = None,
        entropy: torch.Tensor | None = None,
        advantages: torch.Tensor | None = None,
        token_ids: torch.Tensor | None = None,
        removed: torch.Tensor | None = None,
        values: torch.Tensor | None = None,
        returns: torch.Tensor | None = None,
    ) -> None:
        """Add a micro-batch of the update. Every tensor is [B, T] on one device; ``mask`` is nonzero on trained tokens.

        ``logp``, ``behaviour_logp``, ``old_logp`` and ``ref_logp`` are log-probabilities in nats of the sampled tokens under the policy
        being trained, the sampler, the policy that defines the PPO ratio and the reference. ``advantages`` may also be [B]. ``removed``
        marks tokens dropped by a weight mask; ``values`` and ``returns`` are the critic's value before the update and its target. Give
        ``token_ids`` only once per rollout. What is None is not measured. Raises ValueError on a wrong shape.
        """
        named = {"behaviour_logp": behaviour_logp, "mask": mask, "old_logp": old_logp, "ref_logp": ref_logp, "entropy": entropy}
        named |= {"token_ids": token_ids, "removed": removed, "values": values, "returns": returns}
        if logp.dim() != 2:
            raise ValueError(f"logp must be [B, T], not {tuple(logp.shape)}")
        for name, tensor in named.items():
            if tensor is not None and tensor.shape != logp.shape:
                raise ValueError(f"{name} {tuple(tensor.shape)} must have the shape of logp {tuple(logp.shape)}")
        if advantages is not None and advantages.shape not in (logp.shape, logp.shape[:1]):
            raise ValueError(f"advantages {tuple(advantages.shape)} must be {tuple(logp.shape)} or {tuple(logp.shape[:1])}")
        if logp.numel() == 0:
            return
        into = self._on(logp.device)
        trained = mask != 0
        into.add(
            tokens.token_terms(
                logp,
                trained,
                behaviour_logp=behaviour_logp,
                old_logp=old_logp,
                ref_logp=ref_logp,
                entropy=entropy,
                advantages=advantages,
                removed=removed,
                values=values,
                returns=returns,
                eps_low=self.eps_low,
                eps_high=self.eps_high,
                weight_edges=self._edge("iw.hist", into),
            )
        )
        if token_ids is not None:
            self._repetition(into, token_ids, trained)

    @_without_grad
    def observe_batch(
        self,
        rewards: Mapping[str, Column] | None = None,
        groups: torch.Tensor | Sequence[Hashable] | None = None,
        *,
        total: Column | None = None,
        audit: Column | None = None,
        advantages: Column | None = None,
        lengths: Column | None = None,
        truncated: Column | None = None,
        staleness: Column | None = None,
        token_ids: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
        turns: Column | None = None,
        tool_calls: Column | None = None,
        tool_failures: Column | None = None,
        errors: Column | None = None,
    ) -> None:
        """Add a batch of N rollouts, once. Columns are tensors [N] or lists of N numbers, on any device.

        ``rewards`` maps components to their weighted value: the task's under the name given to the constructor, every other one an
        auxiliary reward. ``total`` is what the policy is trained on, by default their sum; ``audit`` the score of a verifier it is not
        trained on. ``groups`` tells which rollouts share a prompt (a group must not be split over calls). ``advantages`` may be [N, T]
        with ``mask``. ``lengths`` are trained tokens, by default counted from ``mask``; ``token_ids`` and ``mask`` are [N, T].
        ``staleness`` is trainer version minus sampler version. Raises ValueError when the columns differ in length.
        """
        given: dict[str, Any] = {f"rewards[{name!r}]": column for name, column in (rewards or {}).items()}
        given |= {"groups": groups, "total": total, "audit": audit, "advantages": advantages, "lengths": lengths, "truncated": truncated}
        given |= {"staleness": staleness, "token_ids": token_ids, "mask": mask, "turns": turns, "tool_calls": tool_calls}
        given |= {"tool_failures": tool_failures, "errors": errors}
        sizes = {name: len(column) for name, column in given.items() if column is not None}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"every column must hold one entry per rollout, but they hold {sizes}")
        if not sizes or not next(iter(sizes.values())):
            return
        trained = None if mask is None else mask != 0
        if lengths is None and trained is not None:
            lengths = trained.sum(1)
        first = next(column for column in given.values() if column is not None)
        device = first.device if isinstance(first, torch.Tensor) else torch.device("cpu")
        into = self._on(device)
        count = torch.full((), next(iter(sizes.values())), dtype=into.dtype, device=device)
        into.add(Terms({"sequences": count}, {}, {}))
        if rewards or total is not None or audit is not None:
            columns = {name: self._column(column, into) for name, column in (rewards or {}).items()}
            into.add(
                rollouts.reward_terms(
                    columns,
                    None if total is None else self._column(total, into),
                    None if audit is None else self._column(audit, into),
                    None if groups is None else rollouts.group_column(groups).to(device),
                    self.task,
                    self.full_score,
                    self.least_score,
                )
            )
        if advantages is not None:
            column = self._column(advantages, into)
            into.add(rollouts.advantage_terms(column, None if trained is None else trained.to(device), self._edge("adv.hist", into)))
        if lengths is not None:
            into.add(rollouts.length_terms(self._column(lengths, into)))
        for name, values in (("truncated", truncated), ("turns", turns), ("calls", tool_calls), ("failures", tool_failures), ("errors", errors)):
            if values is not None:
                into.add(rollouts.column_terms(name, self._column(values, into)))
        if staleness is not None:
            into.add(rollouts.column_terms("stale", self._column(staleness, into), peak=True))
        if token_ids is not None:
            whole = torch.ones_like(token_ids, dtype=torch.bool) if trained is None else trained
            self._repetition(self._on(token_ids.device), token_ids, whole)

    @_without_grad
    def reduce(self, group: Any = None) -> None:
        """Join all ranks of ``group`` (default: the world): one SUM and one MAX collective. Call it on every rank, before ``pack``.

        Ranks must hold the same reward components; scalars given to ``pack`` are not joined.
        """
        self._joined().reduce(group)

    @_without_grad
    def pack(
        self,
        step: int | None = None,
        *,
        grad_norm: Scalar | None = None,
        loss: Scalar | None = None,
        lr: Scalar | None = None,
        extra: Mapping[str, Scalar] | None = None,
    ) -> None:
        """End the step: start the copy to the host and begin a new step. ``extra`` adds values under their own names.

        Tensors stay where they are until the copy; DTensors must be given as ``norm.full_tensor()``.
        """
        scalars = {"opt.grad_norm": grad_norm, "opt.loss": loss, "opt.lr": lr} | dict(extra or {})
        joined = self._joined()
        on_device = {name: value for name, value in scalars.items() if isinstance(value, torch.Tensor)}
        known = {name: float(value) for name, value in scalars.items() if value is not None and not isinstance(value, torch.Tensor)}
        parts = sorted(joined.parts)
        loose = [*(joined.parts[name] for name in parts), *(value.detach() for value in on_device.values())]
        if joined.vocab is not None:
            loose.append(joined.vocab.amax())
        pieces = [joined.sums, joined.maxes, *joined.hists.values()]
        if loose:
            pieces.append(torch.stack([value.to(joined.device, joined.dtype, non_blocking=True).reshape(()) for value in loose]))
        packed = torch.cat(pieces)
        copied = None
        if packed.device.type == "cuda":
            host = torch.empty(packed.shape, dtype=packed.dtype, pin_memory=True)
            host.copy_(packed, non_blocking=True)
            copied = torch.cuda.Event()
            copied.record()
            packed = host
        self._pending.append(_Pending(step, packed, parts, list(on_device), joined.vocab is not None, known, copied))
        joined.reset()

    def collect(self, *, wait: bool = False) -> Reading | None:
        """The oldest packed step whose copy has arrived, or None. ``wait`` waits for it: at the end of a run."""
        if not self._pending:
            return None
        copied = self._pending[0].copied
        if copied is not None:
            if wait:
                copied.synchronize()
            elif not copied.query():
                return None
        return _read(self._pending.popleft())

    def _on(self, device: torch.device) -> Accumulator:
        if device not in self._accumulators:
            self._accumulators[device] = Accumulator(device)
        return self._accumulators[device]

    def _joined(self) -> Accumulator:
        """The accumulator of the accelerator, or of the host where there is none, holding what all of them gathered."""
        found = sorted(self._accumulators.values(), key=lambda one: one.device.type == "cpu")
        main = found[0] if found else self._on(torch.device("cpu"))
        for other in found[1:]:
            main.merge(other)
        return main

    def _edge(self, histogram: str, into: Accumulator) -> torch.Tensor:
        key = (histogram, into.device)
        if key not in self._edges:
            self._edges[key] = torch.tensor(HISTOGRAM_BY_NAME[histogram].edges, dtype=into.dtype, device=into.device)
        return self._edges[key]

    def _column(self, column: Column, into: Accumulator) -> torch.Tensor:
        tensor = column.detach() if isinstance(column, torch.Tensor) else torch.tensor(column, dtype=into.dtype)
        return tensor.to(into.device, into.dtype, non_blocking=True)

    def _repetition(self, into: Accumulator, token_ids: torch.Tensor, trained: torch.Tensor) -> None:
        into.add(repetition_terms(token_ids, trained, self.vocab_size, into.dtype))
        if self.vocab_size is not None:
            into.count_tokens(token_ids, trained, self.vocab_size)


def _read(pending: _Pending) -> Reading:
    sizes = [len(SUMS), len(MAXES), *HISTS.values()]
    sums, maxes, *rest = pending.packed[: sum(sizes)].split(sizes)
    counts = dict(zip(HISTS, rest, strict=True))
    loose = pending.packed[sum(sizes) :].tolist()
    by_name = dict(zip(SUMS, sums.tolist(), strict=True))
    parts = dict(zip(pending.parts, loose, strict=False))
    values = metrics_of(by_name, dict(zip(MAXES, maxes.tolist(), strict=True)), parts)
    values.update(zip(pending.scalars, loose[len(pending.parts) :], strict=False))
    values.update(pending.known)
    if pending.has_top and by_name["rep.n"] > 0:
        values["rep.top1_share"] = loose[-1] / by_name["rep.n"]
    hists = {}
    for name, seen in (("iw.hist", "iw.n"), ("adv.hist", "adv.n")):
        if by_name[seen] > 0:
            hists[name] = [round(count) for count in counts[name].tolist()]
    if by_name["len.n"] > 0:
        lengths = counts["lengths"]
        places = lengths.nonzero().flatten().tolist()
        percentiles, hists["len.completion.hist"] = length_metrics([(place, round(lengths[place].item())) for place in places])
        values.update(percentiles)
    return Reading(pending.step, values, hists)
