"""One JSON object per line: tinker, prime-rl, verl's file backend, ms-swift, W&B exports and rlvitals' own rows, text in between allowed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from monitor.adapters.readers.source import Raw, Source
from monitor.adapters.readers.steps import numbered, numbers

TITLE = "JSON lines"

WRAPPERS = ("values", "data", "metrics", "logs")
"""Keys under which some writers put the metrics of a row."""

CLOCKS = frozenset({"_timestamp", "_runtime", "_wandb", "timestamp", "wall_time", "at", "time", "hists"})
"""Keys that tell when a row was written; no metrics."""

HEADER = frozenset({"run", "task_reward", "aux_rewards", "algorithm", "signal", "config", "attempt", "project"})
"""A first object made of these describes the run: the fields of ``monitor.wire.RunStart``."""


def parse(text: str) -> dict[str, Any] | None:
    """The JSON object that fills ``text`` or its end, or None."""
    start = text.find("{")
    if start < 0 or not text.rstrip().endswith("}"):
        return None
    try:
        found = json.loads(text[start:])
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def broken(first: str, second: str) -> bool:
    """Whether two lines are an object that was cut off and a whole one: no document goes on like that."""
    return not first.rstrip().endswith(("[", ":", ",")) and second.lstrip().startswith("{") and parse(second) is not None


def unwrap(record: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of a row beside its step, clocks left out."""
    out = {key: value for key, value in record.items() if key not in CLOCKS}
    for key in WRAPPERS:
        inner = out.get(key)
        if isinstance(inner, Mapping):
            del out[key]
            out.update(inner)
    return out


def is_metrics(text: str) -> bool:
    """Whether a line holds an object with at least one number beside its step."""
    record = parse(text)
    return record is not None and len(numbers(unwrap(record))) >= 2


def is_header(record: Mapping[str, Any]) -> bool:
    return "step" not in record and len(HEADER & record.keys()) >= 2


def _records(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    bad: int | None = None
    for line, text in source.lines():
        if not text or text.isspace():
            continue
        if bad is not None:
            source.notes.add("broken", f"line {bad} is broken JSON and was left out")
            bad = None
        record = parse(text)
        if record is None:
            if text.lstrip().startswith("{"):
                bad = line
            else:
                source.notes.add("text", f"line {line} is no JSON object and was left out")
        elif is_header(record) and not source.header:
            source.header.update(record)
        else:
            yield line, unwrap(record)
    if bad is not None:
        source.notes.add("cut", f"line {bad}, the last one, is cut off and was left out")


def read(source: Source) -> Iterator[Raw]:
    return numbered(_records(source), source.notes)
