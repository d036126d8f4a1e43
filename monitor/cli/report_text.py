"""A diagnosis as text for a terminal: verdict first, then organs, findings in order, what could not be judged, what the reader assumed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from monitor.cli.offline import Diagnosis, Entry

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


def _entry(entry: Entry, paint: Paint, width: int) -> Iterator[str]:
    found = entry.finding
    closed = "" if entry.resolved_row is None else f", resolved at row {entry.resolved_row}"
    yield f"  row {entry.row}, step {found.step}: {paint.state(found.severity)} {found.detector}{closed}"
    for label, text in (
        ("", found.title),
        ("evidence  ", found.evidence),
        ("cause     ", found.cause),
        ("do first  ", found.advice),
        ("not so if ", found.refutation),
        ("moved     ", ", then ".join(found.moved)),
    ):
        if text:
            yield _wrapped(text, width, f"      {label}")
    if found.since_step is not None and found.since_step != found.step:
        yield f"      since     step {found.since_step}"


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
    lines += ["", f"  read     {found.framework}, {found.format}: {found.rows} rows{steps}"]
    lines.append(_wrapped(f"task {found.context.task}; auxiliary {', '.join(found.context.aux) or 'none'}", width, "  rewards  "))
    lines.append(_wrapped(found.roles, width, "           "))
    if said.organs:
        lines += ["", "Organs"]
        lines += [_wrapped(part.sentence, width, f"  {name:<10} {paint.state(part.state, 13)}", " " * 26) for name, part in said.organs.items()]
    lines += ["", "Findings" if found.entries else "Findings: none"]
    for entry in found.entries:
        lines += _entry(entry, paint, width)
    for title, sentences in (("Cannot judge", found.cannot_judge), ("Notes on the file", found.notes), ("Names to read with care", found.caveats)):
        if sentences:
            lines += ["", title, *(_wrapped(sentence, width, "  ", "    ") for sentence in sentences)]
    return "\n".join(lines)
