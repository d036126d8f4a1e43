"""What a detector is: a pure fold over the rows of one run.

``judge(view, memory)`` sees the bounded history of the run up to and including this row (:class:`monitor.detect.view.View`) and its own
memory, and returns its next memory and at most one finding. History and memories are plain JSON values, so they survive storage; cutting a
stream into batches changes nothing; NaN and missing inputs never raise. A detector reports that its condition holds on this row and forgets
nothing by itself: cool-down, escalation memory and grouping belong to ``monitor.alerts``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from monitor.detect.view import View

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
    ``config`` is the run's configuration as logged and ``framework`` the id of the trainer that ran it. ``limits`` overrides thresholds:
    detector id -> parameter -> value.
    """

    algorithm: str | None = None
    signal: str = "reward"
    task: str = "reward.task.mean"
    aux: tuple[str, ...] = ("reward.aux.mean",)
    config: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    framework: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A detector's condition holds on a row.

    ``title`` is one plain sentence; ``evidence`` names the step and the numbers that were compared; ``cause`` the likely reason; ``advice`` what
    to do first. ``value`` is the offending value, ``baseline`` what was normal for this run, ``limit`` the threshold it crossed. ``since_step``
    is the estimated onset.
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


@dataclass(frozen=True, slots=True)
class Parameter:
    """One threshold of a detector, overridden by ``limits`` of the context. ``unit`` is ``-`` for pure numbers."""

    name: str
    default: float
    unit: str
    meaning: str


Judge = Callable[["View", State], tuple[State, Finding | None]]


@dataclass(frozen=True, slots=True)
class Detector:
    """One way in which a run goes wrong, and how to tell.

    ``needs`` lists what must have been logged: each entry is a choice of metric names, any of which will do (``task`` and ``aux`` stand for
    the series that the context names). ``rule`` is one paragraph for people, ``formula`` the exact test, ``source`` where it comes from and
    ``remedy`` what to try first.
    """

    id: str
    organ: str
    title: str
    needs: tuple[tuple[str, ...], ...]
    rule: str
    formula: str
    source: str
    remedy: str
    judge: Judge
    parameters: tuple[Parameter, ...] = ()


@dataclass(frozen=True, slots=True)
class OrganView:
    """How one part of a run looks without any alarm: ``state`` is ``healthy``, ``solved`` or ``cannot judge``."""

    state: str
    sentence: str
    reasons: tuple[str, ...] = ()
