"""Free text with ``key=value`` or ``key: value`` pairs and a step: ``[run] 12/100 | loss=0.53 | reward=0.24``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from monitor.adapters.names import STEP_KEYS
from monitor.adapters.readers.source import Raw, Source, number, whole

TITLE = "key=value lines"

_VALUE = r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|nan|inf(?:inity)?)"
_PAIR = re.compile(rf"(?<![\w/.@-])([A-Za-z_][\w/.@-]{{0,80}})\s*[=:]\s*({_VALUE}%?)(?=[\s,|;)\]}}]|$)", re.IGNORECASE)
_OF = re.compile(r"(?<![\w./:=-])(\d+)\s*/\s*(\d+)(?![\w./%])")
_WORD = re.compile(r"(?i)\b(?:global[_ ]step|step|iteration|iter|update)s?\s*[#=:]?\s*(\d+)\b")
_NAMED = re.compile(r"(?:global_?)?(?:step|iteration|iter|update)s?", re.IGNORECASE)
_STEPS = frozenset(key.lower() for key in STEP_KEYS)


def parse(text: str) -> tuple[int, dict[str, float]] | None:
    """The step and the values of a line, or None when it lacks one or the other."""
    if "=" not in text and ":" not in text:
        return None
    values: dict[str, float] = {}
    step: int | None = None
    for key, written in _PAIR.findall(text):
        if key.lower() in _STEPS:
            step = whole(written) if step is None else step
        elif (value := number(written)) is not None:
            values[key] = value
    if step is None and (key := next(filter(_NAMED.fullmatch, values), None)):
        step = whole(values.pop(key))
    if not values:
        return None
    if step is None:
        rest = _PAIR.sub("|", text)
        of, word = _OF.search(rest), _WORD.search(rest)
        step = whole(of[1]) if of and int(of[1]) <= int(of[2]) else whole(word[1]) if word else None
    return None if step is None else (step, values)


def read(source: Source) -> Iterator[Raw]:
    for line, text in source.lines():
        found = parse(text)
        if found is None:
            continue
        if line == source.unfinished:
            found[1].popitem()
            source.notes.add("cut", f"line {line}, the last one, has no line end: its last value may be cut and was left out")
        yield Raw(line, *found)
