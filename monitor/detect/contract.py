"""What a detector is: a pure fold over the rows of one run.

``observe(state, row, context)`` returns the next state and at most one finding. States are plain JSON values (non-finite floats spelled as in
``monitor.wire``), so they survive storage; cutting a stream into batches changes nothing; NaN and missing inputs never raise. A detector
reports that its condition holds on this row and forgets nothing by itself: cool-down, memory and grouping belong to ``monitor.alerts``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SEVERITIES = ("information", "watch", "warning", "critical")
"""In rising order. Warnings and above are alarms; information and watch are shown and never sent unless asked for."""

State = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One judged row: ``values`` holds canonical names and floats (NaN and infinity included); a missing name was not measured.

    ``index`` counts the run's rows from 0 in the order they were accepted.
    """

    index: int
    step: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Context:
    """What is known of a run besides its rows; the same for every row of a regime.

    ``task`` and ``aux`` are the names of the task reward series and the auxiliary ones; ``signal`` is one of ``monitor.wire.SIGNALS``;
    ``config`` is the run's configuration as logged. ``limits`` overrides thresholds: detector id -> parameter -> value.
    """

    algorithm: str | None = None
    signal: str = "reward"
    task: str = "reward.task.mean"
    aux: tuple[str, ...] = ("reward.aux.mean",)
    config: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """A detector's condition holds on a row.

    ``title`` is one plain sentence; ``evidence`` names the numbers; ``cause`` the likely reason; ``advice`` what to do first. ``value`` is the
    offending value, ``baseline`` what was normal for this run, ``limit`` the threshold it crossed. ``since_step`` is the estimated onset.
    ``moved`` lists the other metrics that moved, first mover first.
    """

    detector: str
    severity: str
    step: int
    metric: str
    title: str
    evidence: str
    cause: str
    advice: str
    value: float
    baseline: float | None = None
    limit: float | None = None
    since_step: int | None = None
    refutation: str = ""
    moved: tuple[str, ...] = ()
