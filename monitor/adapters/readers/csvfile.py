"""Comma, semicolon or tab separated tables with a header: W&B exports, verl tables, Stable-Baselines3 ``progress.csv``."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator

from monitor.adapters.readers.jsonl import CLOCKS
from monitor.adapters.readers.source import Raw, ReadError, Source, number
from monitor.adapters.readers.steps import numbered

TITLE = "a table with a header"

_WANDB = re.compile(r"(?P<run>.+?) - (?P<key>.+?)(?P<bound>__MIN|__MAX)?")


def separator(header: str) -> str | None:
    """The character that separates the columns of ``header``, or None when nothing does."""
    best = max(",;\t", key=header.count)
    return best if header.count(best) else None


def looks_like(first: str, second: str) -> bool:
    """Whether two lines are a header and a row: the same columns, words above numbers or nothing."""
    sign = separator(first)
    if sign is None or first.lstrip()[:1] in "{[<":
        return False
    try:
        names, cells = next(csv.reader([first], delimiter=sign)), next(csv.reader([second], delimiter=sign), [])
    except csv.Error:
        return False
    worded = all(number(name) is None for name in names if name)
    return worded and len(names) == len(set(names)) and len(cells) == len(names) and any(number(cell) is not None for cell in cells)


def _columns(names: list[str], source: Source, line: int) -> list[str | None]:
    """The metric of each column; None for a column that is none. W&B's ``run - key`` loses the run, its ``__MIN`` and ``__MAX`` go."""
    parts = [_WANDB.fullmatch(name) for name in names]
    runs = {part["run"] for part in parts if part}
    if not runs or len(runs) + 1 < sum(part is None for part in parts):
        return [None if name in CLOCKS or not name else name for name in names]
    if len(runs) > 1:
        listed = ", ".join(sorted(runs)[:4])
        raise ReadError(f"{source.path}, line {line}: the table holds {len(runs)} runs ({listed}): export one run at a time")
    return [name if part is None else None if part["bound"] else part["key"] for name, part in zip(names, parts, strict=True)]


def _records(source: Source) -> Iterator[tuple[int, dict[str, str]]]:
    lines = ((line, text) for line, text in source.lines() if text.strip() and not text.startswith("#"))
    numbers: list[int] = []

    def feed() -> Iterator[str]:
        for line, text in lines:
            numbers.append(line)
            yield text + "\n"

    first = next(lines, (1, ""))
    names = next(csv.reader([first[1]], delimiter=separator(first[1]) or ","), [])
    columns = _columns([name.strip() for name in names], source, first[0])
    table = csv.reader(feed(), delimiter=separator(first[1]) or ",")
    while True:
        try:
            cells = next(table, None)
        except csv.Error as error:
            raise ReadError(f"{source.path}, line {numbers[-1]}: the row cannot be split into columns ({error})") from error
        if cells is None:
            return
        line = numbers[0] if numbers else 1
        numbers.clear()
        if cells == names:
            source.notes.add("header", f"line {line}: the header comes again and was left out")
            continue
        if line == source.unfinished:
            source.notes.add("cut", f"line {line}, the last one, has no line end: its last value may be cut and was left out")
            cells = cells[:-1]
        elif len(cells) != len(names):
            source.notes.add("ragged", f"line {line} has {len(cells)} columns where the header has {len(names)}")
        yield line, {name: cell for name, cell in zip(columns, cells, strict=False) if name}


def read(source: Source) -> Iterator[Raw]:
    return numbered(_records(source), source.notes)
