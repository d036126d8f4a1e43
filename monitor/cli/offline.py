"""Judging a log file exactly as a live run is judged: row by row through the detectors and the alerts, in bounded memory."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monitor import wire
from monitor.adapters.readers import Log, LogRow, read
from monitor.alerts import judgement, lifecycle, verdict
from monitor.detect import fold
from monitor.detect.contract import SEVERITIES, Context, Finding, Row

Watcher = Callable[[LogRow], None]


@dataclass(slots=True)
class Entry:
    """One thing that was found: an alert that opened, rose or came back. ``resolved_row`` is the row at which it closed, if it did.

    ``incident`` numbers the incidents of the run from 1, 0 is none; ``held_by`` is the detector whose alarm explains this one.
    """

    row: int
    finding: Finding
    alert: str
    incident: int = 0
    held_by: str = ""
    resolved_row: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """The entry as JSON values."""
        tree: dict[str, Any] = wire.spelled(dataclasses.asdict(self.finding))
        return {"row": self.row, **tree, "incident": self.incident, "held_by": self.held_by or None, "resolved_row": self.resolved_row}


def worst_of(entries: Sequence[Entry]) -> Entry:
    """The most severe entry of one alert, the first of several."""
    return max(entries, key=lambda entry: (SEVERITIES.index(entry.finding.severity), -entry.row))


@dataclass(slots=True)
class Diagnosis:
    """What a log came to. ``notes`` says what the reader left out or assumed; ``cannot_judge`` which checks lacked an input, ``lacking`` which
    input each of them lacked. ``aux`` are the auxiliary rewards that were logged."""

    source: str
    format: str
    framework: str
    context: Context
    roles: str
    aux: list[str] = field(default_factory=list)
    rows: int = 0
    first_step: int | None = None
    last_step: int | None = None
    entries: list[Entry] = field(default_factory=list)
    cannot_judge: list[str] = field(default_factory=list)
    lacking: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    caveats: list[str] = field(default_factory=list)
    verdict: verdict.Verdict = verdict.NOT_JUDGED

    def alarms(self, severity: str = "warning") -> list[Entry]:
        """Entries at ``severity`` or above."""
        return [entry for entry in self.entries if SEVERITIES.index(entry.finding.severity) >= SEVERITIES.index(severity)]

    def incidents(self) -> list[list[list[Entry]]]:
        """Incidents in the order in which they began, each with its alerts, first mover first; an alert outside of any stands alone."""
        alerts: dict[str, list[Entry]] = {}
        for entry in self.entries:
            alerts.setdefault(entry.alert, []).append(entry)
        groups: dict[object, list[list[Entry]]] = {}
        for uid, entries in alerts.items():
            groups.setdefault(entries[-1].incident or uid, []).append(entries)
        return list(groups.values())

    def as_dict(self) -> dict[str, Any]:
        """The diagnosis as JSON values."""
        return {
            "source": self.source,
            "format": self.format,
            "framework": self.framework,
            "task": self.context.task,
            "aux": self.aux,
            "roles": self.roles,
            "rows": self.rows,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "verdict": wire.spelled(dataclasses.asdict(self.verdict)),
            "findings": [entry.as_dict() for entry in self.entries],
            "cannot_judge": self.cannot_judge,
            "notes": self.notes,
            "caveats": self.caveats,
        }


def context_of(log: Log, limits: Mapping[str, Mapping[str, float]] | None = None) -> Context:
    """What the detectors are told of a log: its header's declarations and the roles of its rewards."""
    header = log.header
    signal = header.get("signal")
    config = header.get("config")
    return judgement.context(
        algorithm=header.get("algorithm") if isinstance(header.get("algorithm"), str) else None,
        signal=signal if signal in wire.SIGNALS else "reward",
        task=log.roles.task,
        aux=log.roles.aux,
        config=config if isinstance(config, Mapping) else {},
        limits=limits,
        framework=log.framework.id,
    )


class Judge:
    """Judges the rows of one run as they come, each seen by every one of ``watchers``."""

    def __init__(self, run: str, found: Diagnosis, watchers: Iterable[Watcher] = ()) -> None:
        self._found, self._watchers = found, tuple(watchers)
        self._book, self._state = lifecycle.Book(run), fold.initial()
        self._open: dict[str, list[Entry]] = {}
        self._seen: set[str] = set()

    def row(self, each: LogRow) -> None:
        if each.regime:
            self.regime()
        row = Row(each.index, each.step, each.values)
        self._seen.update(name for name in self._found.context.aux if name in row.values)
        self._state, findings = fold.observe(self._state, row, self._found.context)
        self._book, changes = lifecycle.advance(self._book, row, findings)
        for change in changes:
            if change.to_state != change.from_state:
                self._note(change, row.index)
        self._found.rows, self._found.last_step = row.index + 1, row.step
        if self._found.first_step is None:
            self._found.first_step = row.step
        for look in self._watchers:
            look(each)

    def _note(self, change: lifecycle.Transition, index: int) -> None:
        if change.to_state in SEVERITIES:
            said = dataclasses.replace(change.finding, severity=change.to_state)
            entry = Entry(index, said, change.alert, change.incident_number, change.held_by)
            self._found.entries.append(entry)
            self._open.setdefault(change.alert, []).append(entry)
        else:
            for entry in self._open.pop(change.alert, []):
                entry.resolved_row = index

    def regime(self) -> None:
        """A deliberate change of the run: baselines start anew."""
        self._state = fold.new_regime(self._state)

    def done(self) -> Diagnosis:
        """The diagnosis, once all rows were seen."""
        self._found.aux = [name for name in self._found.context.aux if name in self._seen]
        self._found.lacking = fold.lacking(self._state, self._found.context)
        self._found.cannot_judge = fold.cannot_judge(self._state, self._found.context)
        self._found.verdict = verdict.verdict(self._book, fold.organs(self._state, self._found.context))
        return self._found


def judge(log: Log, context: Context, watchers: Iterable[Watcher] = ()) -> Diagnosis:
    """Walk the rows of ``log`` once."""
    found = Diagnosis(str(log.path), log.format.title, f"{log.framework.title} ({log.framework.version})", context, log.roles.sentence)
    judging = Judge(str(uuid.uuid5(uuid.NAMESPACE_URL, log.path.absolute().as_uri())), found, watchers)
    for row in log.rows:
        judging.row(row)
    found.notes, found.caveats = log.notes, log.names.caveats()
    return judging.done()


def diagnose(
    path: Path | str,
    task: str | None = None,
    aux: Sequence[str] = (),
    limits: Mapping[str, Mapping[str, float]] | None = None,
    watchers: Iterable[Watcher] = (),
) -> Diagnosis:
    """Read and judge the log at ``path``; ReadError when it cannot be read."""
    log = read(path, task, aux)
    return judge(log, context_of(log, limits), watchers)
