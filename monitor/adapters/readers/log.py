"""From a path to canonical rows: find the files, tell the format, merge records into steps, recognise the trainer, translate the names."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monitor.adapters.names import Framework, NameMap, framework, recognise
from monitor.adapters.readers import tensorboard
from monitor.adapters.readers.formats import EVENTS, Format, detect
from monitor.adapters.readers.source import Notes, Raw, ReadError, Source
from monitor.adapters.readers.steps import PEEK, Merged, merge
from monitor.adapters.rewards import Roles, UnknownReward, resolve
from monitor.metrics import describe


@dataclass(frozen=True, slots=True)
class LogRow:
    """One step of a log. ``index`` counts rows from 0, ``segment`` the resumes before it, ``line`` is where it was written; ``regime`` says that
    settings were changed on purpose before it."""

    index: int
    step: int
    segment: int
    line: int
    values: Mapping[str, float]
    regime: bool = False


@dataclass(slots=True)
class Log:
    """A log that was understood. ``rows`` can be walked once and read the file as they go; ``notes`` are complete when they are used up."""

    path: Path
    format: Format
    framework: Framework
    names: NameMap
    roles: Roles
    header: Mapping[str, Any]
    rows: Iterator[LogRow]
    _notes: Notes

    @property
    def notes(self) -> list[str]:
        """What a reader should know: rows left out, resumes, keys with a caveat."""
        return self._notes.sentences()


def _newest_state(folder: Path) -> Path | None:
    """``trainer_state.json`` of the newest checkpoint below ``folder``: it holds the whole history."""
    found = [path for path in (folder / "trainer_state.json", *folder.glob("checkpoint-*/trainer_state.json")) if path.is_file()]
    numbered = [(int(match[1]) if (match := re.search(r"checkpoint-(\d+)$", path.parent.name)) else math.inf, path) for path in found]
    return max(numbered)[1] if numbered else None


def _files(path: Path) -> list[Path]:
    """The files that make up the log at ``path``. ReadError when there is none."""
    if not path.exists():
        raise ReadError(f"{path} does not exist")
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ReadError(f"{path} is neither a file nor a folder")
    if events := tensorboard.event_files(path):
        return events
    if state := _newest_state(path):
        return [state]
    tables = [path / name for name in ("metrics.jsonl", "logging.jsonl", "progress.csv", "result.json") if (path / name).is_file()]
    if tables:
        return tables[:1]
    raise ReadError(f"{path} is a folder without event files, trainer_state.json, metrics.jsonl or progress.csv: name the log file itself")


SPARSE = 0.1
"""A text of which fewer lines hold metrics is a log only if known metrics are among them, in ROWS rows at the least."""
ROWS = 3
_SETTINGS = frozenset({"opt.lr", "progress.epoch"})
"""Metrics that a configuration or a program names as well."""


def _require_metrics(source: Source, form: Format, head: Sequence[Merged], names: NameMap) -> None:
    """ReadError for a text that merely happens to hold numbers, such as a program or a configuration."""
    if source.share is None or source.share[0] >= SPARSE * source.share[1]:
        return
    known = [any(name not in _SETTINGS and describe(name).organ != "custom" for name in names.translate(row.values)) for row in head]
    if sum(known) < ROWS:
        keys, (fitting, lines) = ", ".join(sorted(head[0].values)[:3]), source.share
        raise ReadError(
            f"{source.path} looks like no training log: read as {form.title}, it has numbers on {fitting} of {lines} lines "
            f"(line {head[0].line}: {keys}), and a metric that is known by name in fewer than {ROWS} rows; point to the file that the trainer logs to"
        )


def _derived(values: dict[str, float]) -> None:
    """Add what follows from what was logged: the share of groups without variance, and the largest size of an advantage."""
    passed, failed = values.get("group.all_pass_frac"), values.get("group.all_fail_frac")
    if passed is not None and failed is not None:
        values.setdefault("group.zero_var_frac", passed + failed)
    high, low = values.get("adv.max"), values.get("adv.min")
    if high is not None and low is not None:
        values.setdefault("adv.abs_max", max(abs(high), abs(low)))


def _translated(merged: Iterator[Merged], names: NameMap) -> Iterator[LogRow]:
    for index, row in enumerate(merged):
        values = names.translate(row.values)
        _derived(values)
        yield LogRow(index, row.step, row.segment, row.line, values, row.regime)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _records(sources: Sequence[Source], formats: Sequence[Format]) -> Iterator[Raw]:
    for source, form in zip(sources, formats, strict=True):
        yield from form.read(source)


def read(path: Path | str, task: str | None = None, aux: Sequence[str] = (), trainer: str | None = None) -> Log:
    """Understand the log at ``path`` (a file, or a folder of event files or checkpoints).

    ``task`` and ``aux`` declare reward keys, native or canonical; ``trainer`` is a framework id for a log whose keys do not give it away.
    Raises ReadError, one sentence with the line, when the file cannot be read, and also while ``rows`` are walked.
    """
    where = Path(path)
    notes = Notes()
    sources = [Source(file, notes) for file in _files(where)]
    formats = [detect(source) for source in sources]
    if len(sources) > 1 and any(form is not EVENTS for form in formats):
        raise ReadError(f"{where} holds a file named like TensorBoard's that is none")
    merged = merge(_records(sources, formats), notes, formats[0].window, formats[0].unit)
    head = list(itertools.islice(merged, PEEK))
    if not head:
        raise ReadError(f"{where} was read as {formats[0].title}, and not one row of metrics was found in it")
    native = {key for row in head for key in row.values}
    try:
        found = framework(trainer) if trainer else recognise(native)
    except KeyError as error:
        raise ReadError(f"no trainer is called {trainer!r}") from error
    names = NameMap(found)
    _require_metrics(sources[0], formats[0], head, names)
    seen = {name for row in head for name in names.translate(row.values)}
    header = sources[0].header
    try:
        roles = resolve(names, native, seen, task or _text(header.get("task_reward")), tuple(aux) or _texts(header.get("aux_rewards")))
    except UnknownReward as error:
        raise ReadError(f"{where}: {error}") from error
    if found.id == "plain":
        notes.add("plain", "no known trainer wrote this: only plain names such as loss, reward and entropy are judged")
    return Log(where, formats[0], found, names, roles, header, _translated(itertools.chain(head, merged), names), notes)
