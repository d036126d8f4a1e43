"""From what a training loop hands in to the JSON lines of the spool. Runs in the background thread and never raises."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Mapping
from typing import Any

from monitor import wire
from monitor.metrics import histogram_problem, name_problem

ROW, ROLLOUT, EVENT, DROPPED, END = b"R", b"O", b"E", b"D", b"X"
"""The first byte of a line says what the JSON after it is."""

MOST_TURNS = 500
MOST_CHARACTERS = 4 * wire.MAX_ROLLOUT_BYTES

_fast = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def row_line(step: int, at: float, values: Mapping[str, Any], hists: Mapping[str, Any]) -> bytes:
    """One row. Numbers of other libraries become floats, non-finite ones are spelled, what is no number travels as its repr."""
    try:
        text = _fast({"step": step, "at": at, "values": values, "hists": hists})
    except (TypeError, ValueError):
        named = {str(name): number(value) for name, value in values.items()}
        text = _fast({"step": step, "at": at, "values": named, "hists": {str(name): counted(counts) for name, counts in hists.items()}})
    return ROW + text.encode()


TOO_MANY = "what goes beyond the limit"
"""Named once, however many metrics a row holds too many."""


def usable(values: Mapping[Any, Any], hists: Mapping[Any, Any]) -> tuple[dict[str, Any], dict[str, list[int]], list[tuple[str, str]]]:
    """The values and histograms that the collector will take, and name and problem of the others: one bad value must not cost the row."""
    kept: dict[str, Any] = {}
    shapes: dict[str, list[int]] = {}
    left_out: list[tuple[str, str]] = []
    for name, value in values.items():
        spelled = value if type(value) is float else number(value)
        problem = name_problem(name)
        if problem is None and len(kept) >= wire.MAX_METRICS_PER_ROW:
            problem = f"a row holds at most {wire.MAX_METRICS_PER_ROW} metrics"
        if problem is None and isinstance(spelled, (str, int)):
            problem = _no_number(spelled)
        if problem is None:
            kept[name] = spelled
        else:
            left_out.append((TOO_MANY if len(kept) >= wire.MAX_METRICS_PER_ROW else str(name)[:40], problem))
    for name, counts in hists.items():
        whole = counted(counts)
        if problem := histogram_problem(name, whole):
            left_out.append((str(name)[:40], f"it {problem}"))
        else:
            shapes[name] = whole
    return kept, shapes, left_out


def _no_number(value: str | int) -> str | None:
    try:
        wire.read_number(value)
    except OverflowError:
        return "it is too large for a number"
    except ValueError as error:
        return str(error)
    return None


def number(value: Any) -> float | int | str | None:
    """``value`` as :mod:`monitor.wire` spells numbers; tensors and numpy scalars are read."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value
    try:
        return wire.spell(float(value))
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return repr(value)[:100]


def whole(value: Any) -> int | None:
    """``value`` as an int if it is a whole number of any library, 0-dimensional tensors included; a boolean is none."""
    if type(value) is int:
        return value
    if isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool"):
        return None
    try:
        return operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        is_whole = getattr(value, "is_integer", None)
        return int(value) if callable(is_whole) and is_whole() else None


def counted(counts: Iterable[Any]) -> list[int]:
    """Counts of other libraries as integers; what is no count is -1, which no histogram takes."""
    return [-1 if (count := whole(value)) is None else count for value in counts]


def rollout_line(step: int, ordinal: int, rollout: Any) -> bytes:
    """One rollout: a ``wire.Rollout`` or a mapping with its fields; turns may be (role, text) pairs. Long texts lose their middle."""
    given = dict(rollout) if isinstance(rollout, Mapping) else wire.spelled(rollout)
    if not isinstance(given, dict):
        given = {"turns": [("agent", str(rollout))]}
    turns, rewards, place = given.get("turns") or (), given.get("rewards") or {}, whole(given.get("ordinal", ordinal))
    if isinstance(turns, str) or not isinstance(turns, Iterable):
        raise ValueError(f"the turns of a rollout are a list of (role, text) pairs, not {turns!r:.40}")
    if not isinstance(rewards, Mapping):
        raise ValueError(f"the rewards of a rollout are a mapping of names to numbers, not {rewards!r:.40}")
    if place is None:
        raise ValueError(f"the ordinal of a rollout is a whole number, not {given['ordinal']!r:.40}")
    turns = [_turn(turn) for turn in turns]
    fields = {
        "step": step,
        "ordinal": place,
        "pick": str(given.get("pick", "random")),
        "turns": _fit(turns),
        "rewards": {str(name): number(value) for name, value in rewards.items()},
        "advantage": number(given.get("advantage")),
        "group": None if given.get("group") is None else str(given["group"]),
        "truncated": bool(given.get("truncated", False)),
    }
    return ROLLOUT + _fast(wire.spelled(fields)).encode()


def _turn(turn: Any) -> dict[str, str]:
    if isinstance(turn, Mapping):
        return {"role": str(turn.get("role", "agent")), "text": str(turn.get("text", ""))}
    if isinstance(turn, wire.Turn):
        return {"role": turn.role, "text": turn.text}
    if not isinstance(turn, (tuple, list)) or len(turn) != 2:
        raise ValueError(f"a turn is a (role, text) pair, a mapping or a Turn, not {turn!r:.40}")
    role, text = turn
    return {"role": str(role), "text": str(text)}


def _fit(turns: list[dict[str, str]]) -> list[dict[str, str]]:
    """``turns`` in at most MOST_TURNS turns and about MOST_CHARACTERS: the middle of a long rollout and of its longest texts goes."""
    if len(turns) > MOST_TURNS:
        half = MOST_TURNS // 2 - 1
        turns = [*turns[:half], {"role": "observation", "text": f"[... {len(turns) - 2 * half} turns left out ...]"}, *turns[-half:]]
    longest = max((len(turn["text"]) for turn in turns), default=0)
    while sum(len(turn["text"]) for turn in turns) > MOST_CHARACTERS and longest > 100:
        longest = longest * 3 // 4
        turns = [{"role": turn["role"], "text": _shorten(turn["text"], longest)} for turn in turns]
    return turns


def _shorten(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2 - 20
    return f"{text[:half]}[... {len(text) - 2 * half} characters left out ...]{text[-half:]}"


def event_line(at: float, kind: str, step: int | None, detail: Mapping[str, Any]) -> bytes:
    """One event; ``detail`` holds whatever JSON can carry, the rest as its repr."""
    return EVENT + _fast(wire.spelled({"at": at, "kind": str(kind), "step": step, "detail": dict(detail)})).encode()


def dropped_line(counts: Mapping[str, int]) -> bytes:
    """How many records the attempt has shed so far, by kind."""
    return DROPPED + _fast(dict(counts)).encode()


def end_line(state: str, at: float, reason: str | None) -> bytes:
    return END + _fast({"state": state, "at": at, "reason": reason}).encode()
