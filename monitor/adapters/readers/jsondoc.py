"""One JSON document: an array of rows, or ``trainer_state.json`` with its ``log_history``. Arrays are decoded object by object."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from monitor.adapters.readers.jsonl import unwrap
from monitor.adapters.readers.source import Raw, ReadError, Source, fault_line
from monitor.adapters.readers.steps import numbered

TITLE = "a JSON document"
CHUNK = 2**16
MAX_DOCUMENT = 64 * 2**20
"""A document that is neither an array nor has a ``log_history`` is read whole, up to this size."""

_HISTORY = re.compile(r'"log_history"\s*:\s*\[')
_BLANKS = re.compile(r"[\s,]*")


class _Window:
    """A piece of the text that moves forward, knowing its line number."""

    def __init__(self, handle: TextIO) -> None:
        self._handle = handle
        self.text, self.line = "", 1

    def more(self) -> bool:
        """Read on; False at the end of the file."""
        piece = self._handle.read(CHUNK)
        self.text += piece
        return bool(piece)

    def drop(self, end: int) -> None:
        """Forget the text before ``end``."""
        self.line += self.text.count("\n", 0, end)
        self.text = self.text[end:]


def _seek(window: _Window) -> bool:
    """Move to just behind the ``[`` of the rows; False when there is none."""
    while not window.text.strip() and window.more():
        pass
    if window.text.lstrip().startswith("["):
        window.drop(window.text.index("[") + 1)
        return True
    while True:
        if match := _HISTORY.search(window.text):
            window.drop(match.end())
            return True
        if len(window.text) > 2 * CHUNK:
            window.drop(len(window.text) - CHUNK)
        if not window.more():
            return False


def _cut(error: json.JSONDecodeError, text: str) -> bool:
    """Whether ``error`` looks like text that ends too early, not like broken text."""
    return error.msg.startswith("Unterminated") or len(text) - error.pos <= len("-Infinity")


def _objects(window: _Window, source: Source) -> Iterator[tuple[int, Mapping[str, Any]]]:
    decoder = json.JSONDecoder()
    while True:
        start = _BLANKS.match(window.text).end()  # type: ignore[union-attr]
        window.drop(start)
        if window.text.startswith("]"):
            return
        if not window.text:
            if not window.more():
                source.notes.add("cut", f"line {window.line}: the file ends before its list of rows does")
                return
            continue
        try:
            found, end = decoder.raw_decode(window.text)
        except json.JSONDecodeError as error:
            if not _cut(error, window.text):
                raise ReadError(f"{source.path}, line {window.line - 1 + fault_line(error)}: this is not valid JSON ({error.msg})") from error
            if not window.more():
                source.notes.add("cut", f"line {window.line}: the last row is cut off and was left out")
                return
            continue
        except RecursionError as error:
            raise ReadError(f"{source.path}, line {window.line}: the JSON is nested too deeply for a list of metric rows") from error
        if isinstance(found, Mapping):
            yield window.line, unwrap(found)
        else:
            source.notes.add("item", f"line {window.line}: an item of the list is no object and was left out")
        window.drop(end)


def _columns(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of a document that holds one list of numbers per metric."""
    columns = {key: value for key, value in document.items() if isinstance(value, list) and value and not isinstance(value[0], dict | list)}
    return [{key: value for key, value in zip(columns, row, strict=True) if value is not None} for row in itertools.zip_longest(*columns.values())]


def _whole(source: Source) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Rows of any other document: its longest list of objects, or its lists of numbers as columns."""
    with source.text() as handle:
        text = handle.read(MAX_DOCUMENT + 1)
    if len(text) > MAX_DOCUMENT:
        raise ReadError(f"{source.path} is a JSON object of more than {MAX_DOCUMENT >> 20} MiB without a log_history: write one row per line")
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ReadError(f"{source.path}, line {fault_line(error)}: this is not valid JSON ({error.msg})") from error
    except RecursionError as error:
        raise ReadError(f"{source.path}, line 1: the JSON is nested too deeply for a list of metric rows") from error
    if not isinstance(document, dict):
        raise ReadError(f"{source.path}, line 1: a JSON list of rows or an object with log_history is wanted")
    lists = [value for value in document.values() if isinstance(value, list) and value and isinstance(value[0], dict)]
    rows = max(lists, key=len) if lists else _columns(document)
    if not rows:
        raise ReadError(f"{source.path}, line 1: this JSON object holds no log_history, no list of rows and no lists of numbers")
    return ((1, unwrap(row)) for row in rows if isinstance(row, dict))


def _rows(source: Source) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with source.text() as handle:
        window = _Window(handle)
        if _seek(window):
            yield from _objects(window, source)
            return
    yield from _whole(source)


def read(source: Source) -> Iterator[Raw]:
    return numbered(_rows(source), source.notes)
