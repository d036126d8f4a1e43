"""What may be stored: pure checks that turn messages into plain values for the tables, or name the field that is wrong and why."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from monitor.metrics import MAX_NAME_LENGTH, histogram_problem, name_problem
from monitor.wire import (
    MAX_METRICS_PER_ROW,
    MAX_ROLLOUT_BYTES,
    MAX_STEP,
    REQUESTS,
    ROLES,
    SIGNALS,
    Event,
    Number,
    Rollout,
    Row,
    RunStart,
    read_number,
    spell,
)

MAX_LIST = 1000
MAX_DEPTH = 50
_LAST_SECOND = 253402300799.0
"""The end of the year 9999."""


class BadField(ValueError):
    """``field`` of a message is wrong; ``reason`` says what is expected."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


@dataclass(frozen=True, slots=True)
class MetricSet:
    """Sorted metric names; rows with the same names share it whatever their order."""

    names: tuple[str, ...]
    sha: bytes


@dataclass(frozen=True, slots=True)
class StorableRow:
    step: int
    at: datetime
    metrics: MetricSet
    vals: list[float | None]
    hists: dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class StorableRollout:
    """``turns`` and ``rewards`` are JSON texts, so that the database can compare them with what it holds."""

    step: int
    ordinal: int
    pick: str
    group_key: str | None
    truncated: bool
    advantage: float | None
    rewards: str
    turns: str
    shortened: int


@dataclass(frozen=True, slots=True)
class StorableEvent:
    step: int | None
    at: datetime
    kind: str
    detail: str


def check_row(row: Row) -> StorableRow:
    """Raises BadField. A row holds at least one value or histogram; None is kept as absent."""
    step = check_step(row.step)
    if len(row.values) > MAX_METRICS_PER_ROW:
        raise BadField("values", f"{len(row.values)} metrics in one row, at most {MAX_METRICS_PER_ROW}")
    if not row.values and not row.hists:
        raise BadField("values", "is empty")
    metrics = metric_set(tuple(row.values))
    values = row.values
    vals = [value if type(value := values[name]) is float else _number(f"values.{name}", value) for name in metrics.names]
    for name, counts in row.hists.items():
        if problem := histogram_problem(name, counts):
            raise BadField(f"hists.{name[:40]}", problem)
    return StorableRow(step, check_time("at", row.at), metrics, vals, row.hists)


@lru_cache(maxsize=4096)
def metric_set(names: tuple[str, ...]) -> MetricSet:
    """The set of ``names``. Raises BadField for a name that is empty, too long or not printable."""
    for name in names:
        check_name("values", name)
    ordered = tuple(sorted(names))
    return MetricSet(ordered, hashlib.sha256("\n".join(ordered).encode()).digest())


def check_name(field: str, name: str) -> str:
    """A metric's name as the catalogue allows it."""
    if (problem := name_problem(name)) is not None:
        raise BadField(f"{field}.{ascii(name[:40])[1:-1]}" if name else field, problem)
    return name


def check_step(step: int | None) -> int:
    if step is None or step < 0:
        raise BadField("step", "must not be negative")
    if step > MAX_STEP:
        raise BadField("step", f"must be at most {MAX_STEP}")
    return step


def check_time(field: str, seconds: float) -> datetime:
    """Unix seconds as a moment. Raises BadField outside the years 1970 to 9999, which is where milliseconds end up."""
    if not 0.0 <= seconds <= _LAST_SECOND:
        raise BadField(field, "must be Unix time in seconds")
    return datetime.fromtimestamp(seconds, UTC)


def _number(field: str, value: Number) -> float | None:
    try:
        return read_number(value)
    except OverflowError:
        raise BadField(field, "is too large for a number") from None
    except (TypeError, ValueError) as error:
        raise BadField(field, str(error)) from None


def check_rollout(rollout: Rollout) -> StorableRollout:
    """Raises BadField. Long texts lose their middle, so that all turns together fit in 64 KiB."""
    step = check_step(rollout.step)
    if not 0 <= rollout.ordinal < 2**31:
        raise BadField("ordinal", "must be between 0 and 2147483647")
    if not rollout.turns:
        raise BadField("turns", "is empty")
    if len(rollout.turns) > MAX_LIST or len(rollout.rewards) > MAX_LIST:
        raise BadField("turns" if len(rollout.turns) > MAX_LIST else "rewards", f"has more than {MAX_LIST} entries")
    for place, turn in enumerate(rollout.turns):
        if turn.role not in ROLES:
            raise BadField(f"turns[{place}].role", f"must be one of {', '.join(ROLES)}")
    texts, shortened = shorten([clean(turn.text) for turn in rollout.turns], MAX_ROLLOUT_BYTES)
    rewards = {check_name("rewards", name): _number(f"rewards.{name}", value) for name, value in rollout.rewards.items()}
    return StorableRollout(
        step=step,
        ordinal=rollout.ordinal,
        pick=check_text("pick", rollout.pick),
        group_key=None if rollout.group is None else check_text("group", rollout.group),
        truncated=rollout.truncated,
        advantage=_number("advantage", rollout.advantage),
        rewards=json.dumps({name: None if value is None else spell(value) for name, value in rewards.items()}, ensure_ascii=False),
        turns=json.dumps([{"role": turn.role, "text": text} for turn, text in zip(rollout.turns, texts, strict=True)], ensure_ascii=False),
        shortened=shortened,
    )


def shorten(texts: list[str], limit: int) -> tuple[list[str], int]:
    """``texts`` cut to at most ``limit`` UTF-8 bytes together, and how many characters went. The longest texts lose their middle first."""
    encoded = [text.encode() for text in texts]
    budget = limit
    cap = limit
    for rank, size in enumerate(sorted(map(len, encoded))):
        cap = budget // (len(encoded) - rank)
        if size > cap:
            break
        budget -= size
    else:
        return texts, 0
    kept = [text if len(raw) <= cap else _without_middle(raw, cap) for text, raw in zip(texts, encoded, strict=True)]
    return kept, sum(map(len, texts)) - sum(map(len, kept))


def _without_middle(raw: bytes, cap: int) -> str:
    tail = cap // 3
    return raw[: cap - tail].decode(errors="ignore") + (raw[-tail:].decode(errors="ignore") if tail else "")


def check_event(event: Event) -> StorableEvent:
    """Raises BadField."""
    step = None if event.step is None else check_step(event.step)
    detail = json.dumps(storable("detail", event.detail), ensure_ascii=False)
    return StorableEvent(step, check_time("at", event.at), check_text("kind", event.kind), detail)


def check_start(start: RunStart) -> dict[str, Any]:
    """The columns of ``run`` that a start brings. Raises BadField."""
    if start.signal not in SIGNALS:
        raise BadField("signal", f"must be one of {', '.join(SIGNALS)}")
    if unknown := sorted(set(start.accepts) - set(REQUESTS)):
        raise BadField("accepts", f"holds {unknown[0][:40]!r}, may hold {', '.join(REQUESTS)}")
    return {
        "project": check_text("project", start.project),
        "name": check_text("name", start.name),
        "algorithm": None if start.algorithm is None else check_text("algorithm", start.algorithm),
        "signal": start.signal,
        "task_reward": None if start.task_reward is None else check_name("task_reward", start.task_reward),
        "aux_rewards": _each("aux_rewards", start.aux_rewards, check_name),
        "tags": _each("tags", start.tags, check_text),
        "accepts": sorted(set(start.accepts)),
        "config": storable("config", start.config),
        "environment": storable("environment", start.environment),
    }


def check_key(field: str, key: str) -> str:
    """A run's or attempt's identifier, which is part of addresses."""
    if not key or len(key) > MAX_NAME_LENGTH or not key.isprintable() or "/" in key or key in (".", ".."):
        raise BadField(field, f"must be 1 to {MAX_NAME_LENGTH} printable characters without '/'")
    return key


def check_text(field: str, text: str) -> str:
    if not text or len(text) > MAX_NAME_LENGTH:
        raise BadField(field, f"must have 1 to {MAX_NAME_LENGTH} characters")
    return clean(text)


def _each(field: str, texts: Iterable[str], check: Callable[[str, str], str]) -> list[str]:
    checked = [check(field, text) for text in texts]
    if len(checked) > MAX_LIST:
        raise BadField(field, f"has more than {MAX_LIST} entries")
    return checked


def clean(text: str) -> str:
    """``text`` without what PostgreSQL cannot hold: NUL becomes U+FFFD and half a surrogate pair becomes ``?``."""
    if text.isascii():
        return text.replace("\0", "\ufffd") if "\0" in text else text
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def storable(field: str, tree: Any, depth: int = 0) -> Any:
    """A JSON value as PostgreSQL can hold it: texts clean, non-finite numbers spelled. Raises BadField past 50 levels."""
    if isinstance(tree, str):
        return clean(tree)
    if isinstance(tree, float):
        return spell(tree)
    if depth >= MAX_DEPTH and isinstance(tree, (dict, list)):
        raise BadField(field, f"is nested more than {MAX_DEPTH} levels deep")
    if isinstance(tree, dict):
        return {clean(str(key)): storable(field, value, depth + 1) for key, value in tree.items()}
    if isinstance(tree, list):
        return [storable(field, value, depth + 1) for value in tree]
    return tree


def first_difference(left: list[float | None], right: list[float | None]) -> int | None:
    """The first place where two rows of one metric set differ, or None. NaN equals NaN."""
    for place, (a, b) in enumerate(zip(left, right, strict=True)):
        if a != b and not (a is not None and b is not None and math.isnan(a) and math.isnan(b)):
            return place
    return None
