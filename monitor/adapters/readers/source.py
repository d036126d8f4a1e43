"""A log file as bounded pieces: text lines with their numbers, raw bytes, notes on what was odd, and the one error a reader raises."""

from __future__ import annotations

import gzip
import io
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

MAX_LINE_BYTES = 4 * 2**20
"""A longer line is read in pieces, so that a file without line ends costs no more memory."""

ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_WRAPPED = re.compile(r"(?:np|numpy|torch|jnp)?\.?(?:float\d*|int\d*|uint\d*|bool_?|tensor|array)\(\s*([^,()]+?)\s*(?:,[^()]*)?\)")
_PLAIN = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_SPELLED = {"nan": math.nan, "inf": math.inf, "infinity": math.inf}
_ABSENT = frozenset({"", "null", "none", "no log", "n/a", "na", "-"})


class ReadError(ValueError):
    """A log cannot be read; the message is one sentence that names the line where there is one."""


def number(value: object) -> float | None:
    """``value`` as a float, NaN and infinities included, or None when it is no number or stands for an absent one.

    Understands Python and JSON spellings, ``np.float64(...)`` and ``tensor(...)`` wrappers, and percentages (as fractions).
    """
    if isinstance(value, bool | int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if not isinstance(value, str):
        return None
    text = value.strip()
    if match := _WRAPPED.fullmatch(text):
        text = match[1]
    if text.lower() in _ABSENT:
        return None
    if text.endswith("%") and _PLAIN.fullmatch(text[:-1].rstrip()):
        return float(text[:-1]) / 100
    if _PLAIN.fullmatch(text):
        return float(text)
    sign = -1.0 if text.startswith("-") else 1.0
    spelled = _SPELLED.get(text.lstrip("+-").lower())
    return None if spelled is None else sign * spelled


def whole(value: object) -> int | None:
    """``value`` as a step number, or None when it is not a whole number that 63 bits hold."""
    found = number(value)
    return int(found) if found is not None and math.isfinite(found) and found == int(found) and abs(found) < 2**63 else None


def fault_line(error: json.JSONDecodeError) -> int:
    """The line from 1 of what is wrong: a missing comma or colon belongs to the end of the line before the one where the parser noticed."""
    before = error.doc[: error.pos]
    return 1 + (before.rstrip() if error.msg.endswith("delimiter") else before).count("\n")


@dataclass(slots=True)
class Notes:
    """What was odd in a file, one sentence per kind with the number of times it came up."""

    _found: dict[str, tuple[str, int]] = field(default_factory=dict)

    def add(self, kind: str, sentence: str) -> None:
        """Remember ``sentence``, unless its ``kind`` came up before: then only count it."""
        first, count = self._found.get(kind, (sentence, 0))
        self._found[kind] = (first, count + 1)

    def sentences(self) -> list[str]:
        """All notes so far, each with its count when it came up more than once."""
        return [first if count == 1 else f"{first} ({count} times in all)" for first, count in self._found.values()]


@dataclass(frozen=True, slots=True)
class Raw:
    """One record as it was written: ``values`` under native keys, finite or not; ``step`` None where the record does not say it. ``regime``
    marks an announced change of settings, in force from its step on."""

    line: int
    step: int | None
    values: dict[str, float]
    regime: bool = False


@dataclass(slots=True)
class Source:
    """One file to be read, as often as a reader needs to; gzip is opened by its magic number. ``header`` is
    filled by a reader whose log opens with a description of the run. ``share`` is, for a text that does not begin like any format, how many of its
    lines fit the one that was chosen, and how many are not blank. ``unfinished`` is the number of the line last given out when it had no
    line end: its last value may be cut."""

    path: Path
    notes: Notes = field(default_factory=Notes)
    header: dict[str, Any] = field(default_factory=dict)
    share: tuple[int, int] | None = None
    unfinished: int | None = None

    def open(self) -> BinaryIO:
        try:
            handle: BinaryIO = self.path.open("rb")
        except OSError as error:
            raise ReadError(f"{self.path} cannot be read: {error.strerror or error}") from error
        if handle.read(2) == b"\x1f\x8b":
            handle.close()
            return cast(BinaryIO, gzip.open(self.path))
        handle.seek(0)
        return handle

    def head(self, size: int = 2**16) -> bytes:
        with self.open() as handle:
            try:
                return handle.read(size)
            except (OSError, EOFError) as error:
                raise ReadError(f"{self.path} cannot be unpacked: {error}") from error

    def lines(self) -> Iterator[tuple[int, str]]:
        """Each line's number from 1 and its text without line end, byte-order mark and terminal colours; bad bytes become U+FFFD."""
        count, whole_line = 0, True
        with self.open() as handle:
            while True:
                try:
                    piece = handle.readline(MAX_LINE_BYTES)
                except (OSError, EOFError) as error:
                    self.notes.add("cut", f"line {count + 1}: the file ends in the middle of its packed data ({error})")
                    return
                if not piece:
                    return
                count += whole_line
                whole_line = piece.endswith(b"\n")
                self.unfinished = None if whole_line else count
                text = piece.decode("utf-8-sig" if count == 1 else "utf-8", errors="replace").rstrip("\r\n")
                yield count, ANSI.sub("", text) if "\x1b" in text else text

    def text(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(self.open(), encoding="utf-8-sig", errors="replace", newline="")
