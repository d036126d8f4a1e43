"""Which parts of the policy have left the range that this run itself made normal: the gates shared by most detectors.

A channel watches one series in one harmful direction. On each row its value is compared with where the run's own baseline (the latest 64 rows
without the newest 8) was heading, in units of the baseline's row-to-row noise, as a material change and with what was seen before. One strained
channel is common in healthy runs; two strained *groups* at once are not, so a detector warns when its own group and another one hold.

``bits`` remember per group on which of the latest rows it was strained (lowest bit: the newest row), which gives persistence and order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from monitor.detect import stats
from monitor.detect.contract import Parameter
from monitor.detect.history import Series
from monitor.detect.words import called

GAP = 8
"""Newest rows kept out of a baseline, so that an alarm does not eat its own baseline."""
LEAST = 3
"""Rows that a baseline needs."""
Z = 4.0
"""Robust standard deviations from which a value is out of range; raised for short baselines."""
MEMORY_BITS = 40
REFRESH = 4
"""A baseline of more than ``SETTLED`` rows is recomputed on every fourth row only."""
SETTLED = 24


@dataclass(frozen=True, slots=True)
class Channel:
    """One series watched in one harmful direction ``sign``, on behalf of the detector ``owner``.

    ``scale`` is ``log``, ``linear`` or ``offset`` (distance from 1 in logs); ``floor`` is the smallest noise on that scale. ``change``, the
    smallest material change, is a factor for ``log`` and a difference on the scale otherwise; ``parameter`` is its name among the owner's
    thresholds. ``soft`` is added before the logarithm: what is far below it is 0.
    """

    metric: str
    group: str
    owner: str
    parameter: str
    scale: str
    sign: int
    change: float
    floor: float
    soft: float = 0.0

    def least(self, limits: Mapping[str, float] | None) -> float:
        """The smallest material change on the channel's scale."""
        change = self.change if limits is None else limits.get(self.parameter, self.change)
        return math.log(max(change, 1.0)) if self.scale == "log" else change

    @property
    def described(self) -> Parameter:
        unit, what = {"log": ("-", "factor"), "linear": ("fraction", "difference"), "offset": ("nats", "log distance from 1")}[self.scale]
        way = "above" if self.sign > 0 else "below"
        return Parameter(self.parameter, self.change, unit, f"least {what} of {self.metric} {way} its baseline")


CHANNELS: tuple[Channel, ...] = (
    Channel("entropy.mean", "entropy", "entropy_high", "factor", "log", +1, 1.4, 0.05, 1e-3),
    Channel("kl_ref.k3", "kl", "kl_acceleration", "factor", "log", +1, 2.0, 0.05, 1e-3),
    Channel("len.completion.mean", "longer", "length_runaway", "factor", "log", +1, 1.4, 0.05, 1.0),
    Channel("len.truncated_frac", "longer", "length_runaway", "truncated", "linear", +1, 0.15, 0.02),
    Channel("len.completion.mean", "shorter", "length_collapse", "factor", "log", -1, 1.5, 0.05, 1.0),
    Channel("rep.adjacent_frac", "repetition", "repetition", "adjacent", "linear", +1, 0.04, 0.005),
    Channel("rep.ngram_frac", "repetition", "repetition", "ngram", "linear", +1, 0.10, 0.01),
    Channel("rep.top1_share", "repetition", "repetition", "top1", "linear", +1, 0.08, 0.01),
    Channel("iw.ess", "weights", "weight_explosion", "ess_factor", "log", -1, 1.6, 0.05, 1e-2),
    Channel("iw.mean", "weights", "weight_explosion", "mean_offset", "offset", +1, 0.2, 0.05),
    Channel("mismatch.kl.k3", "mismatch", "mismatch", "kl_factor", "log", +1, 3.0, 0.05, 5e-3),
    Channel("mismatch.logp_absdiff.mean", "mismatch", "mismatch", "gap_factor", "log", +1, 2.0, 0.05, 5e-3),
    Channel("opt.grad_norm", "grad", "grad_spike", "factor", "log", +1, 4.0, 0.05),
    Channel("env.error_frac", "environment", "environment_errors", "errors", "linear", +1, 0.15, 0.02),
    Channel("env.tool_fail_frac", "environment", "environment_errors", "tools", "linear", +1, 0.15, 0.02),
)


def parameters(owner: str) -> tuple[Parameter, ...]:
    """The thresholds of the channels of one detector."""
    noise = Parameter("noise", Z, "noise units", "robust standard deviations beyond the baseline from which a value is out of range")
    return (noise, *(channel.described for channel in CHANNELS if channel.owner == owner))


@dataclass(frozen=True, slots=True)
class Strain:
    """A channel out of range on this row: its ``value``, the ``normal`` value expected from the baseline, the excess in noise units ``z``."""

    metric: str
    group: str
    value: float
    normal: float
    z: float

    @property
    def factor(self) -> float:
        """Value over normal; infinite for a normal of 0."""
        return self.value / self.normal if self.normal else math.inf

    def says(self) -> str:
        return f"{called(self.metric)} {self.value:.3g} (normal {self.normal:.3g})"


def scaled(value: float, channel: Channel) -> float | None:
    """``value`` on the channel's scale, or None where the scale has no place for it."""
    if channel.scale == "linear":
        return value
    value = max(value, 0.0) + channel.soft
    if value <= 0:
        return None
    return abs(math.log(value)) if channel.scale == "offset" else math.log(value)


def unscaled(value: float, channel: Channel) -> float:
    return value if channel.scale == "linear" else max(math.exp(min(value, 300.0)) - channel.soft, 0.0)


def baseline(series: Series, channel: Channel) -> list[float] | None:
    """``[level, slope, noise, rows]`` of the baseline, or None while there are fewer than ``LEAST`` rows of it."""
    x = series.x
    cut = len(x) - min(GAP, max(1, len(x) // 3))
    if channel.scale == "log":
        soft = channel.soft
        kept = [math.log(v) for v in [(v if v > 0 else 0.0) + soft for v in x[:cut]] if v > 0]
    else:
        kept = [y for v in x[:cut] if (y := scaled(v, channel)) is not None]
    if len(kept) < LEAST:
        return None
    level, slope = stats.trend(kept)
    return [float(f"{v:.6g}") for v in (level, slope, stats.robust_noise(kept), len(kept))]


def excess(channel: Channel, value: float, base: list[float], ahead: int) -> tuple[float, float, float] | None:
    """``(change, z, normal)`` of ``value`` beyond the baseline in the harmful direction; None where the scale has no place for it.

    A baseline that drifts in the harmful direction is followed halfway; one that drifts the other way is not, so that improving does not
    make the limit stricter.
    """
    y = scaled(value, channel)
    if y is None:
        return None
    level, slope, noise, rows = base[:4]
    normal = level + max(0.0, channel.sign * slope) * channel.sign * 0.5 * ahead
    change = channel.sign * (y - normal)
    spread = max(noise, channel.floor) * math.sqrt(1 + 4 / rows)
    return change, change / spread, unscaled(normal, channel)


def unseen(channel: Channel, value: float, series: Series) -> bool:
    """Whether ``value`` lies beyond three in four rows of the baseline: noise with two modes or a long tail, as small batches make it, is no matter
    of standard deviations."""
    x = series.x
    kept = sorted((y for v in x[: len(x) - min(GAP, max(1, len(x) // 3))] if (y := scaled(v, channel)) is not None), reverse=channel.sign > 0)
    y = scaled(value, channel)
    return y is not None and (not kept or channel.sign * (y - kept[len(kept) // 4]) > 0)


SHORT = 8.0
"""Mean tokens under which shares of repeated tokens mean nothing."""


def measure(
    view_series: Mapping[str, Series], values: Mapping[str, float], bands: Mapping[str, Any], index: int, limits: Mapping[str, Mapping[str, float]]
) -> tuple[dict[str, Any], dict[str, Strain], set[str]]:
    """Bands of the next state, the strongest strain per group on this row, and the groups that could be judged on it."""
    after = dict(bands)
    found: dict[str, Strain] = {}
    judged: set[str] = set()
    for channel in CHANNELS:
        value = values.get(channel.metric)
        if value is None or not math.isfinite(value) or (channel.group == "repetition" and values.get("len.completion.mean", SHORT) < SHORT):
            continue
        series = view_series[channel.metric]
        key = f"{channel.metric}:{channel.scale}"
        base = after.get(key)
        if base is None or series.n <= SETTLED or base[4] <= index - REFRESH:
            fresh = baseline(series, channel)
            base = None if fresh is None else [*fresh, index]
            if base is not None:
                after[key] = base
        if base is None:
            continue
        judged.add(channel.group)
        beyond = excess(channel, value, base, min(GAP, max(1, len(series.x) // 3)))
        if beyond is None:
            continue
        change, z, normal = beyond
        own = limits.get(channel.owner)
        strained = change >= channel.least(own) and z >= (Z if own is None else own.get("noise", Z))
        strained = strained and unseen(channel, value, series)
        if strained and (channel.group not in found or z > found[channel.group].z):
            found[channel.group] = Strain(channel.metric, channel.group, value, normal, z)
    return after, found, judged


def remember(bits: Mapping[str, int], found: Mapping[str, Strain], judged: set[str]) -> dict[str, int]:
    """Shift each judged group's memory by one row; a row that did not measure a group leaves its memory alone."""
    mask = (1 << MEMORY_BITS) - 1
    after = dict(bits)
    for group in judged:
        after[group] = ((after.get(group, 0) << 1) | (group in found)) & mask
    return after


def named(metrics: Mapping[str, str], found: Mapping[str, Strain]) -> dict[str, str]:
    """Per group the metric by which it was last strained."""
    return {**metrics, **{group: strain.metric for group, strain in found.items()}}


def held(bits: int, of: int) -> int:
    """On how many of the latest ``of`` rows the group was strained."""
    return (bits & ((1 << of) - 1)).bit_count()


def onset(bits: int) -> int:
    """How many rows ago the present episode began (0: this row), bridging gaps of up to three quiet rows; -1 outside any episode."""
    if not bits & 0b1111:
        return -1
    age, quiet, first = 0, 0, -1
    while bits and quiet <= 3:
        if bits & 1:
            first, quiet = age, 0
        else:
            quiet += 1
        bits >>= 1
        age += 1
    return first
