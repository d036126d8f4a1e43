"""From the numbers of a finished step, now on the host, to the catalogue's metrics. Absent is not zero: no data, no key."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from monitor.client.batch_health.accumulator import LENGTH_EXACT, LENGTH_FINE
from monitor.metrics import HISTOGRAM_BY_NAME

_LENGTHS = HISTOGRAM_BY_NAME["len.completion.hist"]


@dataclass(frozen=True, slots=True)
class Reading:
    """The metrics of one step: ``run.log(reading.values, step=reading.step, hists=reading.hists)``."""

    step: int | None
    values: dict[str, float]
    hists: dict[str, list[int]] = field(default_factory=dict)


def metrics_of(sums: Mapping[str, float], maxes: Mapping[str, float], parts: Mapping[str, float]) -> dict[str, float]:
    """Catalogue metrics from sums (names of accumulator.SUMS), maxima (MAXES) and sums by auxiliary reward component."""
    out: dict[str, float] = {}

    def mean(name: str, total: str, count: str) -> None:
        if sums[count] > 0:
            out[name] = sums[total] / sums[count]

    def top(name: str, slot: str, count: str, form: Callable[[float], float] = float) -> None:
        if sums[count] > 0:
            out[name] = form(maxes[slot])

    for name, total, count in _MEANS:
        mean(name, total, count)
    for name, slot, count, form in _TOPS:
        top(name, slot, count, form)
    if sums["iw.n"] > 0:
        out["iw.ess"] = _divide(sums["iw"] ** 2 if math.isfinite(sums["iw"]) else sums["iw"], sums["iw.n"] * sums["iw.2"])
    if sums["clip.n"] > 0:
        out["update.clip_frac"] = (sums["clip.low"] + sums["clip.high"]) / sums["clip.n"]
    if sums["total.n"] > 0:
        out["reward.total.std"] = math.sqrt(_variance(sums["total.2"], sums["total"], sums["total.n"]))
    if sums["aux.n"] > 0:
        out.update((f"reward.aux.{name}.mean", total / sums["aux.n"]) for name, total in parts.items())
    if sums["group.n"] > 0 and sums["task.n"] > 0:
        out["group.all_pass_frac"] = sums["group.pass"] / sums["group.n"]
        out["group.all_fail_frac"] = sums["group.fail"] / sums["group.n"]
        out["group.mixed_frac"] = max(0.0, sums["group.n"] - sums["group.pass"] - sums["group.fail"]) / sums["group.n"]
    if not sums["group.var"] <= 0:
        out["reward.aux.share"] = sums["group.aux_cov"] / sums["group.var"]
    if sums["return.n"] > 1:
        spread = _variance(sums["return.2"], sums["return"], sums["return.n"])
        left = _variance(sums["error.2"], sums["error"], sums["return.n"])
        out["value.explained_var"] = 1.0 - _divide(left, spread)
    if sums["calls.n"] > 0 and sums["failures.n"] > 0 and sums["calls"] > 0:
        out["env.tool_fail_frac"] = sums["failures"] / sums["calls"]
    if sums["rep.grams"] > 0:
        out["rep.ngram_frac"] = 1.0 - sums["rep.distinct"] / sums["rep.grams"]
    for name, slot, seen in (
        ("batch.tokens", "tokens", "rows"),
        ("batch.sequences", "sequences", "sequences"),
        ("batch.groups", "group.n", "group.n"),
    ):
        if sums[seen] > 0:
            out[name] = sums[slot]
    return out


def _exp(value: float) -> float:
    return math.exp(value) if value < 709.0 or math.isnan(value) else math.inf if value > 709.78 else math.exp(value)


def _inverse_exp(value: float) -> float:
    return _exp(-value)


def _negative(value: float) -> float:
    return -value


_MEANS = (
    ("iw.mean", "iw", "iw.n"),
    ("iw.clip_frac", "iw.above2", "iw.n"),
    ("iw.mask_frac", "removed", "removed.n"),
    ("entropy.mean", "entropy", "entropy.n"),
    ("kl_ref.k3", "ref.k3", "ref.n"),
    ("kl_ref.k1", "ref.k1", "ref.n"),
    ("mismatch.kl.k3", "mismatch.k3", "mismatch.n"),
    ("mismatch.logp_absdiff.mean", "mismatch.abs", "mismatch.n"),
    ("ratio.mean", "ratio", "ratio.n"),
    ("update.kl_old.k3", "old.k3", "ratio.n"),
    ("update.clip_frac_low", "clip.low", "clip.n"),
    ("update.clip_frac_high", "clip.high", "clip.n"),
    ("value.mean", "value", "value.n"),
    ("rep.adjacent_frac", "rep.same", "rep.n"),
    ("reward.task.mean", "task", "task.n"),
    ("reward.pass_rate", "pass", "task.n"),
    ("reward.aux.mean", "aux", "aux.n"),
    ("reward.total.mean", "total", "total.n"),
    ("reward.audit.mean", "audit", "audit.n"),
    ("group.zero_var_frac", "group.flat", "group.n"),
    ("group.reward_std", "group.std", "group.n"),
    ("adv.mean", "adv", "adv.n"),
    ("adv.nonzero_frac", "adv.nonzero", "adv.n"),
    ("len.completion.mean", "len", "len.n"),
    ("len.truncated_frac", "truncated", "truncated.n"),
    ("stale.mean", "stale", "stale.n"),
    ("env.turns.mean", "turns", "turns.n"),
    ("env.tool_calls", "calls", "calls.n"),
    ("env.error_frac", "errors", "errors.n"),
)
"""Metric, its sum and its count."""

_TOPS: tuple[tuple[str, str, str, Callable[[float], float]], ...] = (
    ("iw.max", "iw.log", "iw.n", _exp),
    ("iw.min", "iw.-log", "iw.n", _inverse_exp),
    ("iw.seq_max", "iw.seq", "iw.n", _exp),
    ("iw.seq_log_absmax", "iw.seq_abs", "iw.n", float),
    ("ratio.max", "ratio.log", "ratio.n", _exp),
    ("mismatch.logp_absdiff.max", "mismatch.abs", "mismatch.n", float),
    ("reward.total.max", "total", "total.n", float),
    ("reward.total.min", "-total", "total.n", _negative),
    ("adv.abs_max", "adv.abs", "adv.n", float),
    ("len.completion.max", "len", "len.n", float),
    ("len.completion.min", "-len", "len.n", _negative),
    ("stale.max", "stale", "stale.n", float),
)
"""Metric, its maximum, the count that tells whether there was data, and its form."""


def length_metrics(filled: Sequence[tuple[int, int]]) -> tuple[dict[str, float], list[int]]:
    """Percentiles (linear between order statistics) and the catalogue's histogram from ``(bin, count)`` pairs in ascending order.

    Exact up to 4096 tokens; longer completions stand at their bin's lower edge, at most 1.1 % low.
    """
    counts = [0] * _LENGTHS.bins
    ladder: list[tuple[int, float]] = []
    seen = 0
    for place, count in filled:
        length = float(place) if place <= LENGTH_EXACT else LENGTH_EXACT * 2.0 ** ((place - LENGTH_EXACT - 1) / LENGTH_FINE)
        inside = _LENGTHS.count((length * (1 + 1e-12),)).index(1)
        counts[inside] += count
        seen += count
        ladder.append((seen, length))
    if not seen:
        return {}, counts
    values = {f"len.completion.p{percent:02d}": _percentile(ladder, seen, percent) for percent in (5, 50, 95)}
    return values, counts


def _percentile(ladder: Sequence[tuple[int, float]], size: int, percent: int) -> float:
    rank = (size - 1) * percent / 100
    low = math.floor(rank)
    lower = next(value for seen, value in ladder if seen > low)
    upper = next(value for seen, value in ladder if seen > min(low + 1, size - 1))
    return lower + (upper - lower) * (rank - low)


def _variance(square_sum: float, total: float, count: float) -> float:
    variance = square_sum / count - (total / count) ** 2
    return variance if math.isnan(variance) else max(0.0, variance)


def _divide(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator != 0 else math.nan
