"""A diagnosis as text for a terminal: verdict first, then organs, findings in order, what could not be judged, what the reader assumed."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator

from monitor.cli.offline import Diagnosis, Entry, worst_of
from monitor.detect.words import counted

_COLOURS = {"critical": "1;31", "warning": "1;33", "watch": "36", "healthy": "32", "solved": "32", "information": "36", "cannot judge": "2"}


class Paint:
    """Terminal colours, or none. Colour never speaks alone: the word is always there."""

    def __init__(self, colour: bool) -> None:
        self._colour = colour

    def state(self, state: str, width: int = 0) -> str:
        word = state.ljust(width)
        return f"\x1b[{_COLOURS.get(state, '0')}m{word}\x1b[0m" if self._colour else word


def _wrapped(text: str, width: int, first: str, rest: str | None = None) -> str:
    return textwrap.fill(text, width, initial_indent=first, subsequent_indent=" " * len(first) if rest is None else rest)


def number(value: float | None) -> str:
    """At most four significant digits."""
    return "-" if value is None else f"{value:.4g}"


def _facts(entry: Entry, width: int) -> Iterator[str]:
    found = entry.finding
    for label, text in (
        ("evidence  ", found.evidence),
        ("cause     ", found.cause),
        ("do first  ", found.advice),
        ("not so if ", found.refutation),
        ("moved     ", ", then ".join(found.moved)),
        ("since     ", "" if found.since_step in (None, found.step) else f"step {found.since_step}"),
    ):
        if text:
            yield _wrapped(text, width, f"      {label}")


def _life(entries: list[Entry], paint: Paint) -> str:
    """The rows at which one alert changed: ``row 31 (step 31) warning, row 33 critical, resolved at row 60``."""
    first = entries[0]
    parts = [f"row {first.row} (step {first.finding.step}) {paint.state(first.finding.severity)}"]
    parts += [f"row {entry.row} {paint.state(entry.finding.severity)}" for entry in entries[1:]]
    closed = entries[-1].resolved_row
    return ", ".join(parts) + ("" if closed is None else f", resolved at row {closed}")


def _alert(entries: list[Entry], leads: bool, paint: Paint, width: int) -> Iterator[str]:
    """One alert: all that is known where it leads its incident, else its title and what it follows from."""
    worst = worst_of(entries)
    follows = f" (follows from {entries[-1].held_by})" if entries[-1].held_by else ""
    yield f"  {entries[0].finding.detector}: {_life(entries, paint)}"
    yield _wrapped(worst.finding.title + follows, width, "      ")
    if leads:
        yield from _facts(worst, width)


def _findings(found: Diagnosis, paint: Paint, width: int) -> Iterator[str]:
    for members in found.incidents():
        incident = members[0][-1].incident
        if incident:
            yield f"  incident {incident}"
        for place, entries in enumerate(members):
            yield from _alert(entries, place == 0, paint, width)


FEW = 3
"""So many detectors that cannot judge are told one by one, more as one line."""


def _blind(found: Diagnosis) -> list[str]:
    """The detectors that cannot judge: a sentence each, or of many the families of metrics that they need."""
    if len(found.lacking) <= FEW:
        return found.cannot_judge
    families: dict[str, set[str]] = {}
    for name in itertools.chain.from_iterable(found.lacking.values()):
        families.setdefault(name.split(".")[0], set()).add(name)
    needed = ", ".join(names.pop() if len(names) == 1 else f"{family}.*" for family, names in sorted(families.items()))
    return [f"{len(found.lacking)} detectors cannot judge: need {needed}; --json lists them", *found.cannot_judge[len(found.lacking) :]]


def render(found: Diagnosis, width: int = 100, colour: bool = False) -> str:
    """The whole report, without a trailing line end."""
    paint = Paint(colour)
    said = found.verdict
    lines = [f"{found.source}: {paint.state(said.state)}", _wrapped(said.sentence, width, "  ")]
    lines += [_wrapped(reason, width, "    ") for reason in said.reasons]
    closed = [entry for entry in found.alarms() if entry.resolved_row is not None]
    if closed and said.state in ("healthy", "solved", "watch"):
        lines.append(f"  {len(closed)} {'alarm was' if len(closed) == 1 else 'alarms were'} raised on the way and resolved.")
    steps = f", steps {found.first_step} to {found.last_step}" if found.first_step is not None else ""
    lines += ["", f"  read     {found.framework}, {found.format}: {counted(found.rows)}{steps}"]
    lines.append(_wrapped(f"task {found.context.task}; auxiliary {', '.join(found.aux) or 'none'}", width, "  rewards  "))
    lines.append(_wrapped(found.roles, width, "           "))
    if said.organs:
        lines += ["", "Organs"]
        lines += [_wrapped(part.sentence, width, f"  {name:<10} {paint.state(part.state, 13)}", " " * 26) for name, part in said.organs.items()]
    lines += ["", "Findings" if found.entries else "Findings: none"]
    lines += _findings(found, paint, width)
    for title, sentences in (("Cannot judge", _blind(found)), ("Notes on the file", found.notes), ("Names to read with care", found.caveats)):
        if sentences:
            lines += ["", title, *(_wrapped(sentence, width, "  ", "    ") for sentence in sentences)]
    return "\n".join(lines)
