"""What was normal in runs that a person called healthy: bands per project, algorithm and model. Shown for comparison, never applied."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from monitor.detect.contract import Row

METRICS = ("entropy.mean", "kl_ref.k3", "kl_ref.k1", "mismatch.kl.k3", "len.completion.mean", "opt.grad_norm", "update.clip_frac")
"""Quantities whose level depends on model, data and algorithm, so that no fixed threshold fits them."""

WARM_UP = 20
"""First rows of a run that are left out: learning starts from wherever the model was."""

MOST = 4096
MODEL_KEYS = ("model", "model_name", "model_name_or_path", "policy", "pretrain", "actor_rollout_ref.model.path")


class Thinned:
    """At most :data:`MOST` values of a stream, evenly spaced: every ``stride``-th one."""

    def __init__(self) -> None:
        self.values: list[float] = []
        self.count, self._stride = 0, 1

    def add(self, value: float) -> None:
        if self.count % self._stride == 0:
            self.values.append(value)
            if len(self.values) > MOST:
                self.values = self.values[::2]
                self._stride *= 2
        self.count += 1

    def quantile(self, share: float) -> float:
        """The value below which ``share`` of the sample lies, interpolated; NaN of an empty sample."""
        if not self.values:
            return math.nan
        ordered = sorted(self.values)
        place = share * (len(ordered) - 1)
        low = math.floor(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (place - low) * (ordered[high] - ordered[low])


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that may be compared. ``model`` is empty where the configuration names none."""

    project: str
    algorithm: str
    model: str


@dataclass(frozen=True, slots=True)
class Band:
    """Where 98 of 100 healthy rows lay: ``low`` and ``high``, with the ``median``; over ``rows`` rows of ``runs`` runs."""

    group: Group
    metric: str
    low: float
    median: float
    high: float
    rows: int
    runs: int


def model_of(config: Mapping[str, Any]) -> str:
    """The model that a configuration names, wherever it nests it; empty if it names none."""
    for dotted in MODEL_KEYS:
        found: Any = config.get(dotted)
        if found is None:
            found = config
            for part in dotted.split("."):
                found = found.get(part) if isinstance(found, Mapping) else None
        if isinstance(found, str) and found:
            return found
    for value in config.values():
        if isinstance(value, Mapping) and (inner := model_of(value)):
            return inner
    return ""


@dataclass(slots=True)
class Bands:
    """Gathers healthy rows; :meth:`found` tells the bands so far."""

    _samples: dict[tuple[Group, str], Thinned] = field(default_factory=dict)
    _runs: dict[tuple[Group, str], set[str]] = field(default_factory=dict)

    def add(self, group: Group, run: str, rows: Iterable[Row]) -> None:
        """Rows of one healthy run, numbered from its first."""
        for row in rows:
            if row.index < WARM_UP:
                continue
            for metric in METRICS:
                value = row.values.get(metric)
                if value is not None and math.isfinite(value):
                    self._samples.setdefault((group, metric), Thinned()).add(value)
                    self._runs.setdefault((group, metric), set()).add(run)

    def found(self) -> list[Band]:
        """Every band, by group and then in the order of :data:`METRICS`."""
        bands = [
            Band(group, metric, sample.quantile(0.01), sample.quantile(0.5), sample.quantile(0.99), sample.count, len(self._runs[group, metric]))
            for (group, metric), sample in self._samples.items()
        ]
        return sorted(bands, key=lambda band: (band.group.project, band.group.algorithm, band.group.model, METRICS.index(band.metric)))
