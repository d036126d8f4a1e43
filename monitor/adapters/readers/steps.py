"""Which key of a record is its step, and how records become rows: one per distinct step, in file order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from monitor.adapters.names import STEP_KEYS, frameworks
from monitor.adapters.readers.source import Notes, Raw, number, whole

PEEK = 64
"""Records looked at before the step key, the framework and the rewards of a log are decided."""


def flatten(record: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """The leaves of nested objects, keys joined by ``/``. Lists are no metrics and are left out."""
    for key, value in record.items():
        if isinstance(value, Mapping):
            if value.get("_type") is None:
                yield from flatten(value, f"{prefix}{key}/")
        elif not isinstance(value, list):
            yield f"{prefix}{key}", value


def numbers(record: Mapping[str, object]) -> dict[str, float]:
    """The numeric leaves of ``record``."""
    return {key: found for key, value in flatten(record) if (found := number(value)) is not None}


def step_of(record: Mapping[str, object], key: str) -> int | None:
    """The step under ``key``; ``"12/100"`` counts as 12."""
    value = record.get(key)
    if isinstance(value, str) and "/" in value:
        value = value.split("/", 1)[0]
    return whole(value)


def choose_step_key(records: Iterable[Mapping[str, object]]) -> str | None:
    """The best step counter that these records carry: a framework's own, then the usual names, then ``_step``."""
    seen = {key for record in records for key in record if step_of(record, key) is not None}
    if "objective/kl0_avg" in seen or "val/rho_weight" in seen:
        seen.discard("global_step")
    own = [key for framework in frameworks() for key in framework.steps if key not in STEP_KEYS]
    return next((key for key in (*own, *STEP_KEYS, "_step") if key in seen), None)


def numbered(records: Iterator[tuple[int, Mapping[str, object]]], notes: Notes) -> Iterator[Raw]:
    """Records with line numbers as raw rows. A log whose records carry no step is counted from 0."""
    head = list(itertools.islice(records, PEEK))
    key = choose_step_key(record for _, record in head)
    if key is None and head:
        notes.add("steps", "no step is logged: rows are counted from 0 in file order")
    if key == "_step":
        notes.add("steps", "only the tracker's own counter _step is logged: it may run ahead of the training step")
    for count, (line, record) in enumerate(itertools.chain(head, records)):
        event = record.get("event") if isinstance(record.get("detail"), Mapping) else None
        values = numbers(record) if event is None else {}
        step = count if key is None else step_of(record, key)
        for counter in (key, "step", "_step"):
            if counter is not None:
                values.pop(counter, None)
        yield Raw(line, step, values, event == "regime")


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


@dataclass(slots=True)
class Merged:
    """Everything that was logged for one step of one segment; ``line`` is where it starts. ``regime``: settings were changed on purpose here."""

    step: int
    segment: int
    line: int
    values: dict[str, float] = field(default_factory=dict)
    regime: bool = False


class Merger:
    """Folds raw rows into one row per step, holding at most ``window`` unfinished steps.

    The keys of one step are united; of one key and step the last value counts. A step that falls back opens a new segment: the run was
    resumed there. A record without a step belongs to the step before it.
    """

    def __init__(self, notes: Notes, window: int = 1, unit: str = "line") -> None:
        self._notes, self._window, self._unit = notes, window, unit
        self._open: dict[int, Merged] = {}
        self._segment = 0

    def _flush(self, keep: int) -> Iterator[Merged]:
        while len(self._open) > keep:
            yield self._open.pop(min(self._open))

    def _target(self, raw: Raw) -> int | None:
        """The step ``raw`` belongs to, or None when it comes before every step."""
        if raw.step is not None:
            return raw.step
        return max(self._open) if self._open else None

    def feed(self, raw: Raw) -> Iterator[Merged]:
        """Take ``raw`` in; yields the rows that are complete because of it."""
        step = self._target(raw)
        if step is None and not raw.values:
            return
        if step is None:
            self._notes.add("stepless", f"{self._unit} {raw.line}: a record without a step comes before the first step and was left out")
            return
        found = self._open.get(step)
        newest = max(self._open, default=step)
        clash = found is not None and any(not _same(found.values.get(key, value), value) for key, value in raw.values.items())
        if step < newest and (found is None or clash):
            yield from self._flush(0)
            self._segment += 1
            self._notes.add("resume", f"{self._unit} {raw.line}: the step falls back from {newest} to {step}: taken as a resume")
            found, clash = None, False
        if clash:
            self._notes.add("conflict", f"{self._unit} {raw.line}: step {step} is logged again with other values: the last ones count")
        if found is None:
            found = self._open[step] = Merged(step, self._segment, raw.line)
        found.regime |= raw.regime
        if raw.step is None:
            for key, value in raw.values.items():
                found.values.setdefault(key, value)
        else:
            found.values.update(raw.values)
        yield from self._flush(self._window)

    def close(self) -> Iterator[Merged]:
        """The rows still open at the end of the file."""
        yield from self._flush(0)


def merge(raws: Iterable[Raw], notes: Notes, window: int = 1, unit: str = "line") -> Iterator[Merged]:
    """One row per distinct step, rows without a single value left out."""
    merger = Merger(notes, window, unit)
    for row in itertools.chain(itertools.chain.from_iterable(merger.feed(raw) for raw in raws), merger.close()):
        if row.values:
            yield row
