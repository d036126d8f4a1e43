"""The step gate: looks at an update after the backward pass and before the optimizer's step, and lets it through, skips it or halts.

>>> gate = Guard(run, Policy(max_weight=100.0))
>>> loss.backward()
>>> norm = clip_grad_norm_(policy.parameters(), 1.0)
>>> decision = gate.check(step, optimizer, log_weights=logp - behaviour_logp, mask=mask, advantages=adv, loss=loss, grad_norm=norm)
>>> if decision.go:
...     optimizer.step()
>>> optimizer.zero_grad()
>>> if decision.halt:
...     break

It is off unless a training loop calls it. Each check waits for the device once, to read six numbers.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol

import torch

from monitor.client.updates import update_norm_squared

Verdict = Literal["go", "skip", "halt"]

_NAMES = ("log_weight", "drift", "advantage", "loss", "grad_norm", "update_norm", "lr")
_JUMPS = ("advantage", "grad_norm", "update_norm", "lr")
_LABELS = {
    "log_weight": "largest importance weight",
    "drift": "mean distance from the sampler (nats)",
    "advantage": "largest advantage",
    "loss": "loss",
    "grad_norm": "gradient norm",
    "update_norm": "size of the coming update",
    "lr": "learning rate",
}


@dataclass(frozen=True, slots=True)
class Policy:
    """When an update is not let through. An update is judged by absolute limits and by jumps against the last accepted ones.

    ``max_weight`` bounds the importance weights as the loss multiplies them, in ratio (healthy asynchronous runs stay below about 50).
    ``max_drift`` bounds the k3 estimate of KL(sampler || policy) per token, in nats: further away, weights no longer say what the policy would
    do. The default is where early stopping of PPO epochs usually stands (1.5 times a target of 0.01, as in OpenAI's Spinning Up).
    ``max_advantage``, ``max_grad_norm`` and ``max_update_norm`` are absolute and off by default. ``jump`` times the median of the last
    ``window`` accepted updates is the most that advantages, gradient norm, update size and learning rate may reach, once ``warmup``
    updates were accepted; infinity turns jumps off. ``halt_after`` skips in a row halt the run. ``nonfinite`` says what a NaN or infinite
    number leads to.
    """

    max_weight: float = 100.0
    max_drift: float = 0.015
    max_advantage: float = math.inf
    max_grad_norm: float = math.inf
    max_update_norm: float = math.inf
    jump: float = 10.0
    window: int = 50
    warmup: int = 5
    halt_after: int = 50
    nonfinite: Verdict = "skip"

    def __post_init__(self) -> None:
        for name in ("max_weight", "max_drift", "max_advantage", "max_grad_norm", "max_update_norm"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        if not self.jump > 1:
            raise ValueError(f"jump must be above 1, not {self.jump}")
        for name in ("window", "warmup", "halt_after"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.nonfinite not in ("go", "skip", "halt"):
            raise ValueError(f"nonfinite must be go, skip or halt, not {self.nonfinite!r}")

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Policy:
        """A policy from a configuration. Raises ValueError for a name it does not know."""
        known = [one.name for one in fields(cls)]
        if unknown := [name for name in settings if name not in known]:
            raise ValueError(f"the gate has no setting {unknown[0]!r}; it has {', '.join(known)}")
        return cls(**settings)


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with the update and why. ``evidence`` holds what was measured, by name; what was not given is absent."""

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    evidence: Mapping[str, float] = field(default_factory=dict)

    @property
    def go(self) -> bool:
        return self.verdict == "go"

    @property
    def halt(self) -> bool:
        return self.verdict == "halt"


class Recorder(Protocol):
    """Where refusals are noted: a :class:`monitor.client.Run`."""

    def event(self, kind: str, step: int | None = None, **detail: Any) -> None: ...


class Guard:
    """Remembers accepted updates and judges the next. ``run`` gets an event ``skip`` or ``halt`` with reasons and evidence for each refusal."""

    def __init__(self, run: Recorder | None = None, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.skipped = 0
        self._run = run
        self._uncounted = 0
        self._in_a_row = 0
        self._accepted: dict[str, deque[float]] = {name: deque(maxlen=self.policy.window) for name in _JUMPS}

    def check(
        self,
        step: int | None = None,
        optimizer: Any = None,
        *,
        log_weights: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
        advantages: torch.Tensor | None = None,
        loss: torch.Tensor | float | None = None,
        grad_norm: torch.Tensor | float | None = None,
        group: Any = None,
    ) -> Decision:
        """Judge the update that ``optimizer`` is about to make.

        ``log_weights`` are the logarithms of the weights that multiply the loss, before any truncation, [B, T] or [B]; ``mask`` marks the
        entries that count; ``advantages`` [B, T] or [B] likewise. ``optimizer`` gives learning rate and the size of the coming update.
        ``grad_norm`` is the norm before clipping. Under data parallelism pass ``group``: every rank then reaches the same decision.
        """
        evidence = self._measure(optimizer, log_weights, mask, advantages, loss, grad_norm, group)
        reasons = self._reasons(evidence)
        odd = [f"{_LABELS[name]} is {value}" for name, value in evidence.items() if not math.isfinite(value) and value != -math.inf]
        verdict: Verdict = "skip" if reasons else "go"
        if odd:
            verdict = "halt" if self.policy.nonfinite == "halt" else "skip" if reasons else self.policy.nonfinite
            reasons = odd + reasons
        if verdict == "go":
            self._in_a_row = 0
            for name in _JUMPS:
                if math.isfinite(value := evidence.get(name, math.nan)):
                    self._accepted[name].append(value)
            return Decision("go", (), evidence)
        self._in_a_row += 1
        self.skipped += 1
        self._uncounted += 1
        if self._in_a_row >= self.policy.halt_after:
            verdict = "halt"
            reasons.append(f"{self._in_a_row} updates in a row were refused")
        if self._run is not None:
            self._run.event(verdict, step, reasons=reasons, evidence=dict(evidence), in_a_row=self._in_a_row)
        return Decision(verdict, tuple(reasons), evidence)

    def state(self) -> dict[str, Any]:
        """What the gate remembers, for a checkpoint."""
        return {"accepted": {name: list(values) for name, values in self._accepted.items()}, "in_a_row": self._in_a_row, "skipped": self.skipped}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Remember what :meth:`state` said."""
        for name, values in state["accepted"].items():
            self._accepted[name] = deque(values, maxlen=self.policy.window)
        self._in_a_row, self.skipped = int(state["in_a_row"]), int(state["skipped"])

    def take_skipped(self) -> int:
        """Updates refused since the last call: the row's ``opt.skipped``."""
        count, self._uncounted = self._uncounted, 0
        return count

    def _reasons(self, evidence: Mapping[str, float]) -> list[str]:
        policy = self.policy
        reasons = []
        log_weight = evidence.get("log_weight", -math.inf)
        if math.isfinite(log_weight) and (weight := _exp(log_weight)) > policy.max_weight:
            reasons.append(f"{_LABELS['log_weight']} {weight:.3g} is above {policy.max_weight:g}")
        if (drift := evidence.get("drift", 0.0)) > policy.max_drift and math.isfinite(drift):
            reasons.append(f"{_LABELS['drift']} {drift:.3g} is above {policy.max_drift:g}")
        limits = {"advantage": policy.max_advantage, "grad_norm": policy.max_grad_norm, "update_norm": policy.max_update_norm}
        for name in _JUMPS:
            value, limit, usual = evidence.get(name, math.nan), limits.get(name, math.inf), self._usual(name)
            if not math.isfinite(value):
                continue
            if value > limit:
                reasons.append(f"{_LABELS[name]} {value:.3g} is above {limit:g}")
            elif usual is not None and value > policy.jump * usual:
                reasons.append(
                    f"{_LABELS[name]} {value:.3g} is {value / usual:.3g} times the usual {usual:.3g}; up to {policy.jump:g} times is let through"
                )
        return reasons

    def _usual(self, name: str) -> float | None:
        """The median of the accepted updates; None before there are enough of them, or when it is 0 and so no measure of a jump."""
        accepted = self._accepted[name]
        return statistics.median(accepted) or None if len(accepted) >= self.policy.warmup else None

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _measure(
        self,
        optimizer: Any,
        log_weights: torch.Tensor | None,
        mask: torch.Tensor | None,
        advantages: torch.Tensor | None,
        loss: torch.Tensor | float | None,
        grad_norm: torch.Tensor | float | None,
        group: Any,
    ) -> dict[str, float]:
        """The evidence, read from the device in one go."""
        found: dict[str, Any] = {"loss": loss, "grad_norm": grad_norm}
        if log_weights is not None:
            found["log_weight"] = _largest(log_weights, mask)
            if log_weights.dim() == 2:
                found["drift"] = _drift(log_weights, mask)
        if advantages is not None:
            found["advantage"] = _largest(advantages.abs(), mask)
        if optimizer is not None:
            found["lr"] = max((float(one["lr"]) for one in optimizer.param_groups), default=0.0)
            found["update_norm"] = update_norm_squared(optimizer)
        values = _gather(found, group)
        if "update_norm" in values:
            values["update_norm"] = math.sqrt(values["update_norm"]) if values["update_norm"] >= 0 else values["update_norm"]
        return values


def _largest(values: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """The largest entry that counts, -inf when none does."""
    values = values.detach().double() if values.device.type != "mps" else values.detach().float()
    if values.numel() == 0:
        return values.new_full((), -math.inf)
    if mask is not None:
        kept = mask if mask.dim() == values.dim() else mask.any(1)
        values = values.masked_fill(kept == 0, -math.inf)
    return values.amax()


def _drift(log_weights: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """k3 estimate of KL(sampler || policy) over the tokens that count, in nats; 0 when none does."""
    gap = log_weights.detach().double() if log_weights.device.type != "mps" else log_weights.detach().float()
    kept = torch.ones_like(gap, dtype=torch.bool) if mask is None else mask != 0
    return torch.where(kept, torch.expm1(gap) - gap, 0.0).sum() / kept.sum().clamp(min=1)


def _gather(found: Mapping[str, Any], group: Any) -> dict[str, float]:
    """The numbers in ``found`` on the host; across ``group`` squared update norms add up and the largest of the rest counts, NaN above all."""
    present = {name: value for name, value in found.items() if value is not None}
    tensors = {name: value.detach() for name, value in present.items() if isinstance(value, torch.Tensor)}
    device = next((value.device for value in tensors.values() if value.device.type != "cpu"), torch.device("cpu"))
    dtype = torch.float32 if device.type == "mps" else torch.float64
    names = [name for name in _NAMES if name in present]
    pieces = [
        tensors[name].to(device, dtype).reshape(()) if name in tensors else torch.full((), float(present[name]), dtype=dtype, device=device)
        for name in names
    ]
    if not pieces:
        return {}
    packed = torch.stack(pieces)
    if group is not None:
        nan = packed.isnan()
        added = torch.cat([nan.to(dtype), packed])
        torch.distributed.all_reduce(added, torch.distributed.ReduceOp.SUM, group=group)
        largest = packed.masked_fill(nan, -math.inf)
        torch.distributed.all_reduce(largest, torch.distributed.ReduceOp.MAX, group=group)
        flags, sums = added.chunk(2)
        if "update_norm" in names:
            at = names.index("update_norm")
            largest[at] = sums[at]
        packed = torch.where(flags > 0, math.nan, largest)
    return dict(zip(names, packed.tolist(), strict=True))


def _exp(value: float) -> float:
    return math.exp(value) if value < 709 else math.inf
