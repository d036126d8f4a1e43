"""What crosses HTTP between a training run and the collector: plain dataclasses, JSON with non-finite numbers spelled as strings.

The collector parses the same classes (msgspec reads standard dataclasses). A run is named by ``run``; each process that starts or resumes it
brings a fresh ``attempt``, and the collector gives every attempt its own segment, so that a resumed step never overwrites an older one.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from typing import Any

API = "/api/v1"
MAX_BODY_BYTES = 8 * 2**20
MAX_ROWS_PER_BATCH = 2000
MAX_METRICS_PER_ROW = 2000
MAX_ROLLOUT_BYTES = 64 * 2**10
MAX_STEP = 2**53
"""The largest step that a browser can tell from its neighbours."""

Number = float | int | str | None
"""A finite number, one of the strings ``NaN``, ``Infinity``, ``-Infinity``, or None for absent. Absent is not zero."""

END_STATES = ("finished", "crashed", "killed", "stopped")
SIGNALS = ("reward", "teacher_kl", "environment_loss")
ROLES = ("prompt", "agent", "observation")
OUTCOMES = ("healthy", "collapse", "instability", "truncation", "starved", "hacked", "flat", "unclear")
"""What a person may say a run came to: ``starved`` learned nothing for lack of signal, ``hacked`` earned reward without doing the task."""

REQUESTS = ("stop", "checkpoint", "pause", "resume")

_SPELLED = {"nan": math.nan, "infinity": math.inf, "inf": math.inf, "-infinity": -math.inf, "-inf": -math.inf}


@dataclass(slots=True)
class RunStart:
    """Opens a run or a further attempt of it: ``POST /api/v1/runs``.

    ``config`` is what the experiment was asked to do, ``environment`` what it ran on (git revision, packages, hardware, seed).
    ``task_reward`` and ``aux_rewards`` name the reward keys that are the task and those that only help; without them the canonical
    names decide. ``signal`` says what drives learning, so that a distillation run is not judged by its reward. ``accepts`` lists the
    requests (:data:`REQUESTS`) that the run obeys. Times are Unix seconds.
    """

    run: str
    attempt: str
    project: str
    name: str
    started_at: float
    algorithm: str | None = None
    signal: str = "reward"
    task_reward: str | None = None
    aux_rewards: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    accepts: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Row:
    """The metrics of one step. ``hists`` holds counts over the fixed bins of ``monitor.metrics.HISTOGRAMS``."""

    step: int
    at: float
    values: dict[str, Number]
    hists: dict[str, list[int]] = field(default_factory=dict)


@dataclass(slots=True)
class Turn:
    """One turn of a rollout; ``role`` is one of :data:`ROLES`."""

    role: str
    text: str


@dataclass(slots=True)
class Rollout:
    """One decoded sample of a step. ``ordinal`` tells the samples of a step apart; ``pick`` says why it was sent (best, worst, random)."""

    step: int
    ordinal: int
    pick: str
    turns: list[Turn]
    rewards: dict[str, Number] = field(default_factory=dict)
    advantage: Number = None
    group: str | None = None
    truncated: bool = False


@dataclass(slots=True)
class Event:
    """Something that happened to the run: ``resume``, ``regime`` (a changed setting), ``checkpoint``, ``skip``, ``note`` ..."""

    at: float
    kind: str
    step: int | None = None
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Batch:
    """``POST /api/v1/runs/{run}/batches``. ``seq`` counts the attempt's batches from 1.

    ``dropped`` counts by kind what the client had to shed since the attempt began (cumulative, so that a re-send adds nothing). ``sent_at`` is the
    time of the client's clock now: by how much rows are late is told by it, whatever is wrong with that clock.
    """

    attempt: str
    seq: int
    rows: list[Row] = field(default_factory=list)
    rollouts: list[Rollout] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    sent_at: float | None = None


@dataclass(slots=True)
class RunEnd:
    """``POST /api/v1/runs/{run}/finish``; ``state`` is one of :data:`END_STATES`."""

    attempt: str
    state: str
    at: float
    reason: str | None = None


@dataclass(slots=True)
class Started:
    """Answer to :class:`RunStart`. ``segment`` counts the run's attempts from 0; ``url`` is the run's page."""

    run: str
    segment: int
    url: str


@dataclass(slots=True)
class Refusal:
    """One item the collector did not keep: ``kind`` is row, rollout or event, ``index`` its place in the batch, ``field`` what is wrong."""

    kind: str
    index: int
    field: str
    reason: str


@dataclass(slots=True)
class Ack:
    """Answer to :class:`Batch`. What is counted as accepted or duplicate is durable. ``requests`` are the open requests to the run."""

    accepted: int
    duplicate: int
    refused: list[Refusal] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


def spell(value: float) -> float | str:
    """``value`` as JSON can carry it: finite numbers as they are, the rest as ``NaN``, ``Infinity`` or ``-Infinity``."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def read_number(value: Number) -> float | None:
    """The inverse of :func:`spell`; also takes ``inf`` and any case. Raises ValueError for other strings and TypeError for other types."""
    if value is None:
        return None
    if isinstance(value, bool):
        raise TypeError("a metric must be a number, not a boolean")
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, str):
        if (known := _SPELLED.get(value.strip().lower())) is not None:
            return known
        raise ValueError(f"{value[:40]!r} is not a number")
    raise TypeError(f"a metric must be a number, not {type(value).__name__}")


def spelled(tree: Any) -> Any:
    """``tree`` with every non-finite float spelled, dataclasses as dictionaries and other unknown objects as their repr."""
    if isinstance(tree, float):
        return spell(tree)
    if tree is None or isinstance(tree, (str, int, bool)):
        return tree
    if isinstance(tree, dict):
        return {str(key): spelled(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple, set, frozenset)):
        return [spelled(value) for value in tree]
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return {f.name: spelled(getattr(tree, f.name)) for f in dataclasses.fields(tree)}
    return repr(tree)


def to_json(message: Any) -> bytes:
    """A message of this module as JSON bytes."""
    return json.dumps(spelled(message), separators=(",", ":"), allow_nan=False).encode()
